//! Sockets.

use std::io;
use std::path::PathBuf;

use mote_core::host_address::HostAddress;
use rustix::io::Errno;

use super::here::{Here, here};
use crate::host::calls::AGENT;
use crate::machine::executor::Zone;
use crate::machine::net::{self, NoWay, Place};
use std::rc::Rc;

/// A socket, and who counts it.
pub(crate) enum Socket {
    Listening(net::Listener),
    Connected(net::Stream, Option<Counted>),
}

/// An open connection of a guest.
pub(crate) struct Counted(Rc<Here>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.guests.set(self.0.guests.get() - 1);
    }
}

impl Socket {
    pub(crate) fn stream(&self) -> &net::Stream {
        match self {
            Self::Connected(stream, _) => stream,
            Self::Listening(_) => unreachable!("a listener is read"),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum Transport {
    Vsock,
    Unix(PathBuf),
}

impl Transport {
    pub(crate) async fn dial(&self, address: HostAddress) -> io::Result<Socket> {
        let (place, here) = (Place::Vsock(address.cid, address.port), here());
        if here.lacking.get() {
            return Err(Errno::MFILE.into());
        }
        match here.net.connect(place, Zone::Guest).await {
            Ok(stream) => Ok(Socket::Connected(stream, None)),
            Err(NoWay::Refused) => Err(Errno::CONNRESET.into()),
            Err(NoWay::Other) => Err(Errno::HOSTUNREACH.into()),
        }
    }
}

/// Where the host calls.
pub(crate) struct Listener;

impl Listener {
    pub(crate) fn watched(self) -> Watched {
        Watched(here().net.listen(AGENT))
    }
}

pub(crate) struct Watched(net::Listener);

impl Watched {
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        Ok(Socket::Connected(self.0.accept().await, None))
    }
}

pub(crate) async fn accept(listener: &Socket) -> io::Result<Socket> {
    let Socket::Listening(listener) = listener else { return Err(Errno::INVAL.into()) };
    let stream = listener.accept().await;
    let here = here();
    here.guests.set(here.guests.get() + 1);
    here.oracle.at_most("guest connections", here.guests.get(), here.most_guests);
    Ok(Socket::Connected(stream, Some(Counted(here))))
}

/// All of them are root's.
pub(crate) fn user(_: &Socket) -> u32 {
    0
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_shortage(error)
}

pub(crate) fn is_shortage(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}
