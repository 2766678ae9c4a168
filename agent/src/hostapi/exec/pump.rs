//! Relays between a command and its websockets (P§4.1). Data are binary messages; an empty text
//! message, the barrier, marks the end.

use std::cell::Cell;
use std::io;
use std::time::Duration;

use mote_core::hostapi::exec::{Control, control as read_control};
use mote_core::ws::Opcode;
use smol::future::FutureExt;

use super::pty;
use crate::agent::Operations;
use crate::net::relay::write_all;
use crate::net::websocket::{Frame, Inbox, Received, WebSocket};
use crate::runtime::{Async, Child, now, within};
use crate::sys::fd::{BorrowedFd, OwnedFd};

/// Read size for the host's data, in bytes.
const OUTPUT_PIECE: usize = 16 * 1024;
/// Maximum size of a message on the control socket, in bytes; a longer one is ignored.
const MESSAGE: usize = 1024;
/// If other processes hold a terminal after its command has ended, its output counts as complete
/// after this silence.
const SILENCE: Duration = Duration::from_millis(100);
/// Maximum total wait for this terminal's output.
const GRACE: Duration = Duration::from_secs(1);
/// Maximum output read from this terminal, in bytes; more than the kernel buffers.
const TAIL: usize = 256 * 1024;
/// Maximum size of the output read from a pipe after the agent has hung up, in bytes: the size of
/// the kernel's buffer, which holds everything written before.
const BUFFERED: usize = 64 * 1024;
/// Time limit for the host's own barrier or close frame after a terminal's end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn inbox() -> Inbox {
    Inbox::new(OUTPUT_PIECE)
}

/// Executes control messages. A lost connection kills the command, because its client is gone. So
/// does a close frame, unless all output was sent (`silent`): hosts then close, and the command may
/// continue.
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

/// Copies the host's data to a pipe up to the barrier, then closes the pipe.
pub(super) async fn input(socket: &WebSocket, pipe: Async<OwnedFd>) {
    feed(socket, &mut inbox(), &pipe).await;
}

pub(super) async fn feed(socket: &WebSocket, inbox: &mut Inbox, to: &Async<OwnedFd>) {
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

/// Copies a pipe to a socket, then sends the barrier; returns whether the pipe's end was reached.
/// If the host disconnects, closes the pipe, so that its writer gets SIGPIPE or `EPIPE`. After the
/// agent has hung up, sends only what the pipe contains.
pub(super) async fn output(socket: &WebSocket, pipe: Async<OwnedFd>, all: &Operations) -> bool {
    let ended = Cell::new(false);
    let copy = async {
        let (mut frame, mut rest) = (None, BUFFERED);
        loop {
            let cut = async {
                all.hung_up().await;
                None
            };
            let Some((frame, count)) = next(&pipe, &mut frame).or(cut).await else { break };
            socket.send_frame(frame, count).await?;
            if all.is_hung_up() {
                rest = rest.saturating_sub(count);
                if rest == 0 {
                    break;
                }
            }
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

/// Reads output into a frame; returns the frame and the payload's length, or `None` at the end.
/// Reuses the frame while output is ready, and frees it before waiting.
async fn next<'f>(
    from: &Async<OwnedFd>,
    frame: &'f mut Option<Frame>,
) -> Option<(&'f mut Frame, usize)> {
    loop {
        let room = frame.get_or_insert_with(Frame::new);
        match from.try_read(|pipe| Ok(room.fill(pipe)?)) {
            Ok(0) => return None,
            Ok(count) => return frame.as_mut().map(|frame| (frame, count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                *frame = None;
                from.readable().await.ok()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Copies a terminal's output to a socket, then sends the barrier. Output ends when no process
/// holds the terminal, or when the [`Rest`] is used up after the process's end.
pub(super) async fn pty_output(socket: &WebSocket, master: &Async<OwnedFd>, child: &Child) {
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

/// The output that may still be read from a terminal whose process has ended. Only waiting for the
/// terminal counts as time, not waiting for the host: the process's last output is never cut.
struct Rest {
    bytes: usize,
    time: Duration,
}

impl Rest {
    fn is_over(&self) -> bool {
        self.bytes == 0 || self.time.is_zero()
    }
}

/// Waits up to [`CLOSE_TIMEOUT`] for the host's own barrier or a close frame.
pub(super) async fn drain_and_close(socket: &WebSocket, inbox: &mut Inbox) {
    let done = async {
        while !matches!(
            socket.receive(inbox).await,
            Ok(Received::Data { text: true, .. } | Received::Closed | Received::Lost) | Err(_)
        ) {}
    };
    let _late = within(CLOSE_TIMEOUT, done).await;
}
