//! Checks whether this guest has vsock.

use std::fmt;
use std::io;
use std::path::Path;

use rustix::net::{AddressFamily, bind};

use crate::sys::file::{self, OFlags};
use crate::sys::{self, SystemError, VsockAddr};
use crate::transport::{CID_ANY, stream};

/// Why vsock is unusable.
#[derive(Debug)]
pub(crate) enum NoVsock {
    /// There is no device, or it has no driver.
    NoDevice,
    /// A system call failed.
    System(SystemError),
}

impl fmt::Display for NoVsock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDevice => out.write_str("no vsock device, or its driver is not loaded"),
            Self::System(why) => why.fmt(out),
        }
    }
}

/// Checks that vsock is usable: opens and binds a socket, and returns the guest's context id.
pub(crate) fn probe_vsock(root: &Path) -> Result<u32, NoVsock> {
    let fd =
        stream(AddressFamily::VSOCK).map_err(|error| failed("no vsock sockets", error.into()))?;
    bind(&fd, &VsockAddr { cid: CID_ANY, port: u32::MAX })
        .map_err(|error| failed("cannot bind a vsock", error.into()))?;
    local_cid(root)
}

fn failed(what: &'static str, error: io::Error) -> NoVsock {
    NoVsock::System(SystemError::of(what, error))
}

fn local_cid(root: &Path) -> Result<u32, NoVsock> {
    let device = file::open(&root.join("dev/vsock"), OFlags::RDONLY).map_err(io::Error::from);
    let cid = device.and_then(|device| sys::vsock_local_cid(&device));
    match cid.map_err(|error| failed("/dev/vsock", error))? {
        u32::MAX => Err(NoVsock::NoDevice),
        cid => Ok(cid),
    }
}
