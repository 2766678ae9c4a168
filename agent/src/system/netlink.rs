//! A route netlink socket that lists and changes network interfaces. The core's `netlink` has the
//! message format. The kernel answers immediately.

use std::os::fd::OwnedFd;

use mote_core::netlink::{self as wire, Change, DATAGRAM, Reply, Request, Table};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

pub(crate) struct Netlink {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Errors: any error of socket(2), such as a kernel without netlink.
    pub(crate) fn open() -> Result<Self, Errno> {
        // NETLINK_ROUTE is 0.
        let route = None;
        let flags = SocketFlags::CLOEXEC;
        let socket = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, route)?;
        Ok(Self { socket, buffer: vec![0; DATAGRAM] })
    }

    /// Passes each entry of a table to `show`.
    /// Errors: any error of send(2) or recv(2), or the kernel's; entries passed before are valid.
    pub(crate) fn dump(
        &mut self,
        table: Table,
        mut show: impl FnMut(&Reply<'_>),
    ) -> Result<(), Errno> {
        self.ask(&wire::dump(table), &mut show)
    }

    /// Changes the link with this interface index.
    pub(crate) fn change(&mut self, index: u32, change: &Change) -> Result<(), Errno> {
        self.ask(&wire::change(index, change), &mut |_| {})
    }

    fn ask(&mut self, request: &Request, show: &mut dyn FnMut(&Reply<'_>)) -> Result<(), Errno> {
        net::send(&self.socket, request, SendFlags::empty())?;
        loop {
            let (_, length) =
                net::recv(&self.socket, self.buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            // MSG_TRUNC returns the datagram's real length; no known kernel sends one this long.
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
