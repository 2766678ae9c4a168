//! Sockets, including devlxd's, whose name appears and vanishes immediately.

use std::net::SocketAddr;
use std::os::fd::RawFd;

use mote_core::host_address::HostAddress;

use crate::handover::processes::Handle;
use crate::host::calls::AGENT;
use crate::machine::NoWay;
use crate::runtime::reactor::Async;
use crate::sim_prelude::*;
use crate::sys::fd::{Counted, OwnedFd};

pub(crate) type Socket = Async<OwnedFd>;

fn connected(stream: Stream, counted: Option<Counted>) -> Socket {
    Async(OwnedFd::connected(stream, counted))
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Transport {
    #[default]
    Vsock,
    Unix(PathBuf),
}

pub(crate) const AGENT_PORT: u32 = 8443;

impl Transport {
    pub(crate) fn is_vsock(&self) -> bool {
        matches!(self, Self::Vsock)
    }

    pub(crate) fn listen(&self) -> io::Result<Listener> {
        let here = here();
        let agent = here.kernel.current(&here.sim).ok_or(io::ErrorKind::Interrupted)?;
        let listener = match agent.inherited.take() {
            Some(listener) => listener,
            None if here.net.last(AGENT).listener().is_some() => {
                return Err(io::ErrorKind::AddrInUse.into());
            }
            None => here.net.listen(AGENT),
        };
        *agent.listens.borrow_mut() = listener.open();
        Ok(Listener(listener))
    }

    pub(crate) fn hand_on(&self, is_kept: bool) {
        let here = here();
        here.kernel.current(&here.sim).inspect(|agent| agent.hands_on.set(is_kept));
    }

    pub(crate) fn take_over(&self, agent: &Handle, _: RawFd) -> bool {
        let here = here();
        let theirs = agent.0.listens.borrow().listener();
        let ours = here.kernel.current(&here.sim);
        let is_there = theirs.is_some();
        ours.inspect(|ours| drop(ours.inherited.replace(theirs)));
        is_there
    }

    pub(crate) async fn dial(&self, address: HostAddress) -> io::Result<Socket> {
        let (place, here) = (Place::Vsock(address.cid, address.port), here());
        if here.lacking.get() {
            return Err(Errno::MFILE.into());
        }
        match here.net.connect(place, Zone::Guest).await {
            Ok(stream) => Ok(connected(stream, None)),
            Err(NoWay::Refused) => Err(Errno::CONNRESET.into()),
            Err(NoWay::Other) => Err(Errno::HOSTUNREACH.into()),
        }
    }
}

pub(crate) async fn dial_tcp(address: SocketAddr) -> io::Result<Socket> {
    match here().net.connect(Place::Tcp(address.port()), Zone::Guest).await {
        Ok(stream) => Ok(connected(stream, None)),
        Err(_) => Err(Errno::CONNREFUSED.into()),
    }
}

pub(crate) struct Listener(net::Listener);

impl Listener {
    pub(crate) async fn accept(&self) -> io::Result<Socket> {
        let stream = self.0.accept().await;
        here().serves("the host");
        Ok(connected(stream, None))
    }
}

pub(crate) async fn accept(listener: &Socket) -> io::Result<Socket> {
    let Some(listener) = listener.get_ref().listener() else { return Err(Errno::INVAL.into()) };
    let stream = listener.accept().await;
    let here = here();
    here.serves("a guest");
    here.guests.set(here.guests.get() + 1);
    here.oracle.at_most("guest connections", here.guests.get(), here.most_guests);
    Ok(connected(stream, Some(Counted(here))))
}

pub(crate) fn probe_vsock(_: &Path) -> Result<u32, String> {
    if here().kernel.lacks_vsock.get() { Err("no vsock device".into()) } else { Ok(3) }
}

/// All clients run as root.
pub(crate) fn user(_: &Socket) -> u32 {
    0
}

pub(crate) fn is_passing(error: &io::Error) -> bool {
    is_shortage(error)
}

pub(crate) fn is_shortage(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::MFILE)
}

pub(crate) fn path(root: &Path, flavour: Flavour) -> PathBuf {
    root.join(flavour.socket_path().trim_start_matches('/'))
}

pub(crate) fn open(_: &Agent, _: &Path) -> io::Result<Socket> {
    let listener = OwnedFd::listening(here().net.listen(Place::Devlxd));
    Async::new_nonblocking(listener)
}

pub(crate) fn hide(_: &Agent, _: &Path) {}
