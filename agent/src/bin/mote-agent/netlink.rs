//! A conversation with the kernel about its network interfaces; what is said is the core's
//! `netlink`. The kernel answers at once, so this may wait.

use std::os::fd::OwnedFd;

use mote_agent::netlink::{self as wire, Change, DATAGRAM, Reply, Request, Table};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// A socket for one question at a time.
pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn open() -> Result<Self, Errno> {
        // NETLINK_ROUTE is 0.
        let route = None;
        let flags = SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, route)?;
        Ok(Self { socket, buffer: vec![0; DATAGRAM] })
    }

    /// Shows every line of a table.
    ///
    /// # Errors
    /// The system's; what was shown until then is right.
    pub(crate) fn dump(
        &mut self,
        table: Table,
        mut show: impl FnMut(&Reply<'_>),
    ) -> Result<(), Errno> {
        self.ask(&wire::dump(table), &mut show)
    }

    /// Changes a link.
    ///
    /// # Errors
    /// Why the kernel did not.
    pub(crate) fn change(&mut self, index: u32, change: Change<'_>) -> Result<(), Errno> {
        self.ask(&wire::change(index, change), &mut |_| {})
    }

    fn ask(&mut self, request: &Request, show: &mut dyn FnMut(&Reply<'_>)) -> Result<(), Errno> {
        net::send(&self.socket, request, SendFlags::empty())?;
        loop {
            let (_, length) =
                net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            // Never so, unless a kernel sends more than all have done until now.
            let datagram = self.buffer.get(..length).ok_or(Errno::MSGSIZE)?;
            for reply in wire::replies(datagram) {
                match reply {
                    Reply::Done | Reply::Verdict(0) => return Ok(()),
                    Reply::Verdict(errno) => return Err(Errno::from_raw_os_error(errno)),
                    Reply::Link(_) | Reply::Address(_) => show(&reply),
                    Reply::Other => {}
                }
            }
        }
    }
}
