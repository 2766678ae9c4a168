//! What a waiting agent examines: the number of added and removed devices.

use crate::below::here::here;
use crate::options::Options;

pub(crate) fn look(_: &Options) -> Vec<u8> {
    here().kernel.plugged.seen().to_ne_bytes().to_vec()
}
