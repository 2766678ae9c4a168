//! Creates, opens and hides the devlxd socket (P§5.1).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use mote_core::flavour::Flavour;
use rustix::io::Errno;

use crate::agent::Agent;
use crate::runtime::{Async, make_directory};
use crate::sys::file;
use crate::transport::{Socket, bind_unnamed, unnamed};

pub(crate) fn path(root: &Path, flavour: Flavour) -> PathBuf {
    root.join(flavour.socket_path().trim_start_matches('/'))
}

/// Opens the socket, or makes visible the one that was created before the sandbox.
pub(super) fn open(agent: &Agent, path: &Path) -> io::Result<Socket> {
    let made = agent.guests.as_ref();
    let listener = made.map_or_else(|| make(path, agent.flavour), OwnedFd::try_clone)?;
    file::rename(&unnamed(path), path)?;
    Async::new_nonblocking(listener)
}

pub(super) fn hide(agent: &Agent, path: &Path) {
    let _gone = match agent.guests {
        Some(_) => file::rename(path, &unnamed(path)),
        None => file::unlink(path),
    };
}

/// Creates the socket (0600) in its directory (0755) (P§5.1), under a temporary name.
pub(crate) fn make(path: &Path, flavour: Flavour) -> io::Result<OwnedFd> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    make_directory(directory)?;
    file::chmod(directory, 0o755)?;
    let listener = bind_unnamed(path)?;
    if flavour == Flavour::Incus {
        link_lxd(directory)?;
    }
    Ok(listener)
}

/// Links `/dev/lxd` to `/dev/incus`, because cloud-init knows only `/dev/lxd/sock` (P§5.1).
fn link_lxd(incus: &Path) -> io::Result<()> {
    let link: PathBuf = incus.with_file_name("lxd");
    match file::symlink("incus".as_ref(), &link) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
