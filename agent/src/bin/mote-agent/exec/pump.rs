//! What moves between a command and its websockets (P§4.1). Data are binary messages; an empty text
//! message, the barrier, says that no more comes.

use std::cell::Cell;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use futures_lite::FutureExt;
use mote_agent::exec::{Control, control as read_control};
use mote_agent::ws::Opcode;
use rustix::io::Errno;

use super::pty;
use crate::children::Child;
use crate::clock::{now, within};
use crate::reactor::Async;
use crate::relay::write_all;
use crate::websocket::{Frame, Inbox, Received, WebSocket};

/// What is read of the host's data at a time, bytes.
const PIECE: usize = 16 * 1024;
/// Longest message on the control socket, bytes; a longer one is ignored.
const MESSAGE: usize = 1024;
/// After its process has ended, a terminal that others still hold may be silent for so long, speak
/// for so long, and say so much: more than the kernel holds back for it.
const SILENCE: Duration = Duration::from_millis(100);
const GRACE: Duration = Duration::from_secs(1);
const TAIL: usize = 256 * 1024;
/// How long the host may take to agree that a terminal is done.
const FAREWELL: Duration = Duration::from_secs(2);

/// An inbox for data.
pub(super) fn inbox() -> Inbox {
    Inbox::new(PIECE)
}

/// Obeys the control socket. Losing it means that nobody wants the command any more. So does a goodbye,
/// unless all output was over before: hosts say it then, and the command may have more to do.
pub(super) async fn control(
    socket: &WebSocket,
    child: &Child,
    terminal: Option<BorrowedFd<'_>>,
    silent: &Cell<bool>,
) {
    let mut inbox = Inbox::new(256);
    let mut message = Vec::new();
    loop {
        match socket.receive(&mut inbox).await {
            Ok(Received::Data { bytes, last, .. }) => {
                if message.len() + bytes.len() <= MESSAGE {
                    message.extend_from_slice(bytes);
                }
                if !last {
                    continue;
                }
                match (read_control(&message), terminal) {
                    (Some(Control::Resize(size)), Some(terminal)) => pty::resize(&terminal, size),
                    (Some(Control::Signal(signal)), _) => child.signal(signal),
                    (Some(Control::Resize(_)), None) | (None, _) => {}
                }
                message.clear();
            }
            Ok(Received::Pong) => {}
            Ok(Received::Closed) if silent.get() => return,
            Ok(Received::Closed | Received::Lost) | Err(_) => return child.kill(),
        }
    }
}

/// Copies what the host sends into a pipe, up to the barrier, and closes it.
pub(super) async fn input(socket: &WebSocket, pipe: Async<OwnedFd>) {
    feed(socket, &mut inbox(), &pipe).await;
}

/// Copies what the host sends to a terminal.
pub(super) async fn keys(socket: &WebSocket, inbox: &mut Inbox, master: &Async<OwnedFd>) {
    feed(socket, inbox, master).await;
}

/// Copies up to the barrier, the socket's end, or the descriptor's refusal.
async fn feed(socket: &WebSocket, inbox: &mut Inbox, to: &Async<OwnedFd>) {
    loop {
        match socket.receive(inbox).await {
            Ok(Received::Data { text: false, bytes, .. }) => {
                if write_all(to, bytes).await.is_err() {
                    return;
                }
            }
            Ok(Received::Pong) => {}
            Ok(Received::Data { text: true, .. } | Received::Closed | Received::Lost) | Err(_) => {
                return;
            }
        }
    }
}

/// Copies a pipe to a socket up to the pipe's end, then says so; tells whether it came that far. A host
/// that leaves ends it too: the pipe closes, and who writes to it learns that.
pub(super) async fn output(socket: &WebSocket, pipe: Async<OwnedFd>) -> bool {
    let ended = Cell::new(false);
    let copy = async {
        let mut frame = None;
        while let Some((frame, count)) = next(&pipe, &mut frame).await {
            socket.send_frame(frame, count).await?;
        }
        drop(pipe);
        ended.set(true);
        socket.send(Opcode::Text, &[]).await
    };
    let left = async {
        socket.left().await;
        Err(io::ErrorKind::BrokenPipe.into())
    };
    let _gone = copy.or(left).await;
    ended.get()
}

/// What the descriptor gives next, and in which frame; `None` at its end. The frame is kept from one call
/// to the next while there is something to put into it, and given back when we have to wait.
async fn next<'f>(
    from: &Async<OwnedFd>,
    frame: &'f mut Option<Frame>,
) -> Option<(&'f mut Frame, usize)> {
    loop {
        match frame.get_or_insert_with(Frame::new).fill(from.get_ref()) {
            Ok(0) => return None,
            Ok(count) => return frame.as_mut().map(|frame| (frame, count)),
            Err(Errno::AGAIN) => {
                *frame = None;
                from.readable().await.ok()?;
            }
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

/// Copies a terminal to a socket, then says that no more comes. The terminal's end is reached when
/// nobody holds it any more, or soon after the process has ended.
pub(super) async fn screen(socket: &WebSocket, master: &Async<OwnedFd>, child: &Child) {
    let mut frame = None;
    let mut rest: Option<Rest> = None;
    loop {
        let begun = now();
        let step = match &mut rest {
            Some(rest) if rest.is_over() => None,
            Some(_) => within(SILENCE, next(master, &mut frame)).await.flatten(),
            None => {
                let ended = async {
                    child.ended().await;
                    None
                };
                match async { Some(next(master, &mut frame).await) }.or(ended).await {
                    Some(step) => step,
                    None => {
                        rest = Some(Rest { bytes: TAIL, time: GRACE });
                        continue;
                    }
                }
            }
        };
        let Some((frame, count)) = step else { break };
        if let Some(rest) = &mut rest {
            rest.bytes = rest.bytes.saturating_sub(count);
            rest.time = rest.time.saturating_sub(now() - begun);
        }
        if socket.send_frame(frame, count).await.is_err() {
            return;
        }
    }
    let _gone = socket.send(Opcode::Text, &[]).await;
}

/// What may still come from a terminal whose process has ended. Time counts while we wait for the
/// terminal, not while we wait for the host: its own last words are never cut.
struct Rest {
    bytes: usize,
    time: Duration,
}

impl Rest {
    fn is_over(&self) -> bool {
        self.bytes == 0 || self.time.is_zero()
    }
}

/// Waits, for a while, for the host to say that it has no more either.
pub(super) async fn farewell(socket: &WebSocket, inbox: &mut Inbox) {
    let done = async {
        while !matches!(
            socket.receive(inbox).await,
            Ok(Received::Data { text: true, .. } | Received::Closed | Received::Lost) | Err(_)
        ) {}
    };
    let _patience = within(FAREWELL, done).await;
}
