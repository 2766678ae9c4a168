//! What the simulation lacks or needs no state for: file ownership, terminals, a sandbox, devices'
//! details, first-boot conditions. This module replaces several of the agent's modules.

use std::os::fd::OwnedFd as Listener;

use mote_core::hostapi::exec::Size;
use mote_core::hostapi::policy::Policy;

pub(crate) use crate::config::contents::ConfigFiles;
use crate::options::Options;
use crate::sim_prelude::*;
use crate::start::listen::HostLink;
use crate::status::port::Found;
use crate::sys::fd::{AsFd, OwnedFd, pair};

/// In the simulation, everything belongs to root.
pub(crate) fn is_roots_alone(_: &Path) -> bool {
    true
}

/// Does nothing: there are no hot-plugged devices and no `ready-when` conditions.
pub(crate) async fn run(_agent: Rc<Agent>) {}

/// Opens a terminal, which is a pair of sockets here.
pub(crate) fn open(_: Size, _: u32, _: u32) -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(pair()?)
}

pub(crate) fn resize(_: &impl AsFd, _: Size) {}

pub(crate) const WORD: &str = "; in a sandbox";

pub(crate) fn enter(
    _: &Options,
    _: &Policy,
    _: Flavour,
    _: &HostLink,
    _: Option<&Found>,
) -> Option<Option<Listener>> {
    None
}

pub(crate) mod metrics {
    pub(crate) fn without_worker(_: super::Flavour, _: &super::Path) -> Option<Vec<u8>> {
        None
    }
}

/// What a waiting agent examines: the number of added and removed devices.
pub(crate) fn look(_: &Options) -> Vec<u8> {
    here().kernel.plugged.seen().to_ne_bytes().to_vec()
}

/// Devices differ only by the number of changes before them.
pub(crate) fn entries(directory: &Path) -> Vec<PathBuf> {
    let often = here().kernel.plugged.seen();
    (0..often).map(|number| directory.join(number.to_string())).collect()
}

pub(crate) const NO_PROC: &str = "there is no /proc";

pub(crate) fn without_proc(_: &Path) -> Option<&'static str> {
    None
}

/// Random bytes determined by the seed.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    let number = here().sim.number().to_be_bytes();
    for (byte, digit) in bytes.iter_mut().rev().zip(number.iter().rev().cycle()) {
        *byte = *digit;
    }
}

/// The host's files, on a share that may appear late.
pub(crate) fn find(
    _: &Options,
    visit: &mut dyn FnMut(&Path, &ConfigFiles) -> Result<(), String>,
) -> Result<ConfigFiles, String> {
    let here = here();
    if here.kernel.lacks_files.get() {
        return Err("there is no share".into());
    }
    let agent_conf = here.conf.borrow().clone();
    let files = ConfigFiles { agent_conf, from: "the simulation".into(), ..ConfigFiles::default() };
    visit(Path::new("."), &files).map(|()| files)
}

#[derive(Clone, Copy)]
pub(crate) enum NodeWait {
    None,
    Timeout,
}

/// Does nothing: every needed module is built in.
pub(crate) fn load_vsock(_: &Path, _: NodeWait) -> Result<Option<String>, String> {
    Ok(None)
}
