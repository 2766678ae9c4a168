//! No sandbox.

use std::os::fd::OwnedFd;

use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::Policy;

use crate::options::Options;
use crate::start::listen::HostLink;
use crate::status::port::Found;

pub(crate) const WORD: &str = "; in a sandbox";

pub(crate) fn enter(
    _: &Options,
    _: &Policy,
    _: Flavour,
    _: &HostLink,
    _: Option<&Found>,
) -> Option<Option<OwnedFd>> {
    None
}
