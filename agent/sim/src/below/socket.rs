//! The devlxd socket's name, which comes and goes at once.

use std::io;
use std::path::{Path, PathBuf};

use mote_core::flavour::Flavour;

use crate::agent::Agent;
use crate::below::here::here;
use crate::machine::net::Place;
use crate::transport::Socket;

pub(crate) fn path(root: &Path, flavour: Flavour) -> PathBuf {
    root.join(flavour.socket_path().trim_start_matches('/'))
}

pub(super) fn open(_: &Agent, _: &Path) -> io::Result<Socket> {
    Ok(Socket::Listening(here().net.listen(Place::Devlxd)))
}

pub(super) fn hide(_: &Agent, _: &Path) {}
