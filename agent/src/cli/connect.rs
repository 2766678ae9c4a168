//! `connect`: joins standard input and output to a TCP port or unix socket, so that a host reaches
//! it through exec, without a network.

use std::fmt::Display;
use std::time::Duration;

use mote_core::hostapi::policy::Capability;
use mote_core::hostapi::port_forward::Target;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result, ioctl_fionbio, read, retry_on_intr, write};
use rustix::net::sockopt::{Timeout, set_socket_timeout, set_tcp_nodelay};
use rustix::net::{
    Shutdown, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};
use rustix::stdio::{dup2_stdout, stdin, stdout};

use crate::config::policy;
use crate::handover::view;
use crate::options::Options;
use crate::print;
use crate::sys::fd::{AsFd, BorrowedFd, OwnedFd};

/// Default time limit for the target to accept.
const ACCEPT: Duration = Duration::from_secs(30);
/// Size of each direction's buffer, in bytes.
const BUFFER: usize = 64 * 1024;
/// Maximum write to stdout, in bytes (`PIPE_BUF`): a pipe that poll(2) reports as writable takes it
/// immediately. `O_NONBLOCK` would also affect other programs that share the pipe.
const PIECE: usize = 4096;
/// How long input may pause after a TCP target has ended its side, because a closed connection looks
/// like a half-closed one, and exec's client keeps its output open until this process ends.
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// Exit codes as in sysexits.h, which differ from those of other commands.
const UNREACHABLE: u8 = 68;
const REFUSED: u8 = 69;
const TIMED_OUT: u8 = 75;
const NOT_ALLOWED: u8 = 77;

#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, text: &str) -> u8 {
    let Some(target) = Target::named(text) else {
        print::complain(format_args!("connect needs IP:PORT, localhost:PORT or unix:PATH"));
        return 2;
    };
    if is_denied(options, &target) {
        return NOT_ALLOWED;
    }
    let joined = dial_target(&target, options.timeout.unwrap_or(ACCEPT));
    let (code, verb, error) = match joined.map(|socket| relay(&socket, target.port > 0)) {
        Ok(Ok(())) => return 0,
        Ok(Err(error)) => (1, "lost the connection", error),
        Err(error) => {
            let code = match error {
                Errno::CONNREFUSED | Errno::NOENT => REFUSED,
                Errno::TIMEDOUT => TIMED_OUT,
                Errno::ACCESS | Errno::PERM => NOT_ALLOWED,
                _ => UNREACHABLE,
            };
            (code, "cannot connect", error)
        }
    };
    print::complain(format_args!("{verb} to {text}: {error}"));
    code
}

/// Returns whether the policy denies the target, as for `POST /1.0/port-forward`; if so, prints it.
fn is_denied(options: &Options, target: &Target) -> bool {
    let judged = policy::read(options);
    // The agent's own options may deny more than the files.
    let feature = Capability::PortForward;
    let is_off = view::current(&options.root).is_some_and(|view| view.denies(feature.name()));
    let checked = judged.policy.check_port(target);
    let what: &dyn Display = match &checked {
        _ if is_off || !judged.policy.allows(feature) => &feature.name(),
        Err(what) => what,
        Ok(()) => return false,
    };
    print::complain(format_args!("the guest's policy does not allow {what}"));
    true
}

fn dial_target(target: &Target, limit: Duration) -> Result<OwnedFd> {
    let address = match target.address() {
        Some(address) => address.into(),
        None => SocketAddrUnix::new(target.path())?.into(),
    };
    let socket = dial(&address, limit)?;
    // Unix sockets have no such option.
    let _tcp_only = set_tcp_nodelay(&socket, true);
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

/// Connects a stream socket; `ETIMEDOUT` if the peer does not accept within `limit`.
pub(super) fn dial(address: &SocketAddrAny, limit: Duration) -> Result<OwnedFd> {
    let family = address.address_family();
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(limit))?;
    match connect(&socket, address) {
        Ok(()) => Ok(socket),
        // The kernel's codes for a timeout of TCP and unix sockets.
        Err(Errno::INPROGRESS | Errno::AGAIN) => Err(Errno::TIMEDOUT),
        Err(error) => Err(error),
    }
}

/// One direction.
struct Way<'f> {
    from: BorrowedFd<'f>,
    to: BorrowedFd<'f>,
    buffer: Vec<u8>,
    /// The bytes in the buffer that are not written yet.
    start: usize,
    end: usize,
    is_open: bool,
}

/// Copies both ways until both have ended, the target hangs up, or it has ended its side and input
/// pauses.
fn relay(socket: &OwnedFd, is_tcp: bool) -> Result<()> {
    let (input, output) = (stdin(), stdout());
    let mut ways = [Way::new(input, socket.as_fd()), Way::new(socket.as_fd(), output)];
    let mut lost = Ok(());
    loop {
        let [inward, outward] = &ways;
        let first = if inward.is_open { inward } else { outward };
        if !first.is_open {
            return lost;
        }
        let mut waits = [first.waits(), outward.waits()];
        let is_last = is_tcp && !outward.is_open && inward.start == inward.end;
        if retry_on_intr(|| poll(&mut waits, is_last.then_some(&PAUSE)))? == 0 {
            return lost;
        }
        let found = waits.map(|wait| wait.revents());
        let [inward, outward] = &mut ways;
        if inward.is_open && !found[0].is_empty() {
            // The target may have sent an answer before it closed.
            if let Err(error) = inward.step(BUFFER) {
                lost = Err(error);
            }
        }
        if !found[1].is_empty() {
            if !outward.is_open {
                // The target has closed; an error means that it has not read everything.
                let is_reset = found[1].contains(PollFlags::ERR);
                return if is_reset { Err(Errno::CONNRESET) } else { lost };
            }
            outward.step(PIECE)?;
            if !outward.is_open {
                // Closes the pipe.
                dup2_stdout(socket)?;
            }
        }
    }
}

impl<'f> Way<'f> {
    fn new(from: BorrowedFd<'f>, to: BorrowedFd<'f>) -> Self {
        Self { from, to, buffer: vec![0; BUFFER], start: 0, end: 0, is_open: true }
    }

    fn waits(&self) -> PollFd<'f> {
        if self.start == self.end {
            // Once the input has ended, wait only for a hang-up.
            let event = if self.is_open { PollFlags::IN } else { PollFlags::empty() };
            PollFd::from_borrowed_fd(self.from, event)
        } else {
            PollFd::from_borrowed_fd(self.to, PollFlags::OUT)
        }
    }

    /// Reads if the buffer is empty, otherwise writes up to `piece` bytes.
    fn step(&mut self, piece: usize) -> Result<()> {
        let done = if self.start == self.end {
            read(self.from, &mut self.buffer).map(|count| {
                (self.start, self.end) = (0, count);
                self.is_open = count > 0;
            })
        } else {
            let bytes = self.buffer.get(self.start..self.end).unwrap_or_default();
            write(self.to, bytes.get(..piece).unwrap_or(bytes)).map(|count| self.start += count)
        };
        if matches!(done, Err(Errno::AGAIN | Errno::INTR)) {
            return Ok(());
        }
        self.is_open &= done.is_ok();
        if !self.is_open {
            // Fails if `to` is a pipe.
            let _half = shutdown(self.to, Shutdown::Write);
        }
        done
    }
}
