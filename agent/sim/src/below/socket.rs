//! The name of the devlxd socket, which appears and vanishes immediately.

use std::io;
use std::path::{Path, PathBuf};

use mote_core::flavour::Flavour;

use crate::agent::Agent;
use crate::below::here::here;
use crate::machine::Place;
use crate::runtime::reactor::Async;
use crate::sys::fd::OwnedFd;
use crate::transport::Socket;

pub(crate) fn path(root: &Path, flavour: Flavour) -> PathBuf {
    root.join(flavour.socket_path().trim_start_matches('/'))
}

pub(super) fn open(_: &Agent, _: &Path) -> io::Result<Socket> {
    let listener = OwnedFd::listening(here().net.listen(Place::Devlxd));
    Async::new_nonblocking(listener)
}

pub(super) fn hide(_: &Agent, _: &Path) {}
