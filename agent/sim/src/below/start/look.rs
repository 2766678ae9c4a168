//! What is looked at while the agent waits: how often a device came or went.

use crate::below::here::here;
use crate::options::Options;

pub(crate) fn look(_: &Options) -> Vec<u8> {
    here().kernel.plugged.seen().to_ne_bytes().to_vec()
}
