//! Websockets to an agent. Two threads may use one: the reading and the writing half share only the
//! socket, to which each frame is written whole.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::net::{SendFlags, send};
use rustix::process::Pid;
use tungstenite::error::ProtocolError;
use tungstenite::handshake::client::{ClientHandshake, Response};
use tungstenite::protocol::{CloseFrame, Role, WebSocketConfig, frame::coding::CloseCode};
use tungstenite::{Bytes, Error, HandshakeError, Message, WebSocket};

use super::call_failure::FailedCall;
use super::client::{Agent, complaint};
use crate::instance::vsock_device;
use crate::net::http::unanswered;
use crate::net::stream::patient;
use crate::{Instance, Limit, Timed, limits};

/// Interval between checks while nothing arrives.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between pings.
const PING: u32 = 5;
/// Ticks of silence after which the guest is lost.
const SILENCE: u32 = 15;

/// A received message.
#[derive(Debug)]
pub enum Piece {
    Bytes(Bytes),
    /// Text. On a data socket any text is the barrier (P§4.1).
    Text(String),
    /// The peer closed with 1000.
    Closed,
}

pub struct Socket {
    pub incoming: Incoming,
    pub outgoing: Outgoing,
    /// The connection, with which another thread can hang up.
    pub line: UnixStream,
}

/// Hangs up without a close frame, as Go's `Conn.Close` does. The peer receives what was sent
/// before.
pub fn hang_up(line: &UnixStream) {
    let _gone = line.shutdown(Shutdown::Both);
}

pub struct Incoming {
    socket: WebSocket<Half>,
    watch: Option<Watch>,
}

pub struct Outgoing(WebSocket<Half>);

struct Half {
    read: Timed,
    /// Shared, because the reading half answers pings.
    wire: Arc<Wire>,
}

/// The state that both halves share.
struct Wire {
    write: Mutex<UnixStream>,
    /// Counts reads that returned data.
    arrived: AtomicU64,
}

/// Checks whether the peer still answers.
#[derive(Clone)]
pub struct Pulse(Arc<Wire>);

impl Pulse {
    /// Returns a number that grows with each read.
    pub fn arrived(&self) -> u64 {
        self.0.arrived.load(Ordering::Acquire)
    }

    /// Pings the peer unless frames are waiting to be sent. A suspended guest has lost its
    /// connections, and its kernel resets one only when data arrives on it.
    pub fn ping(&self) {
        /// A ping without payload, masked as RFC 6455, 5.2 requires of clients.
        const PING: [u8; 6] = [0x89, 0x80, 0, 0, 0, 0];
        if let Ok(line) = self.0.write.try_lock() {
            let _gone = send(&*line, &PING, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        }
    }
}

/// Measures how long a peer has been silent: the number of [`TICK`]s in which no data arrived.
struct Watch {
    is_paused: Box<dyn Fn() -> bool + Send>,
    /// The process that carries the guest's vsock.
    device: Option<Pid>,
    arrived: u64,
    ticks: u32,
    was_paused: bool,
}

/// The error for a guest that did not answer pings although its VM runs.
#[derive(Debug, thiserror::Error)]
#[error("the guest has not answered for {SILENCE} s")]
pub struct Silent;

impl Watch {
    /// Counts another [`TICK`] without data, and pings the guest every [`PING`] ticks since the last
    /// pause. A paused or suspended guest gets no ping, which would make vhost-device-vsock 0.3.0
    /// stop serving.
    ///
    /// # Errors
    /// The guest is lost: its vsock device has stopped, or it is silent while its VM runs.
    fn tick(&mut self, pulse: &Pulse) -> Result<()> {
        if let Some(why) = self.device.and_then(vsock_device::stopped) {
            bail!(why);
        }
        let arrived = pulse.arrived();
        self.ticks = if arrived == self.arrived { self.ticks + 1 } else { 1 };
        self.arrived = arrived;
        let is_due = self.ticks.is_multiple_of(PING);
        if is_due || self.was_paused || self.ticks > SILENCE / 2 {
            self.was_paused = (self.is_paused)();
        }
        if self.was_paused {
            self.ticks = 0;
        } else if is_due {
            pulse.ping();
        }
        if TICK * self.ticks < patient(TICK * SILENCE) { Ok(()) } else { bail!(Silent) }
    }
}

impl Incoming {
    /// Makes reads fail if the guest is silent while its VM is not paused, or if the process that
    /// carries its vsock stops: the connection itself does not report that.
    pub fn watch(&mut self, instance: &Instance, is_paused: impl Fn() -> bool + Send + 'static) {
        let device = vsock_device::process(instance);
        let is_paused = Box::new(is_paused);
        self.watch = Some(Watch { is_paused, device, arrived: 0, ticks: 0, was_paused: false });
        self.socket.get_mut().read.limit(Limit::Each(TICK));
    }

    pub fn pulse(&self) -> Pulse {
        Pulse(self.socket.get_ref().wire.clone())
    }

    pub fn receive(&mut self) -> Result<Piece> {
        loop {
            match self.socket.read() {
                Ok(Message::Binary(bytes)) => return Ok(Piece::Bytes(bytes)),
                Ok(Message::Text(text)) => return Ok(Piece::Text(text.to_string())),
                Ok(Message::Close(frame)) => match frame.map(|frame| frame.code) {
                    Some(CloseCode::Normal) => return Ok(Piece::Closed),
                    code => bail!("closed with {}", code.map_or(0, u16::from)),
                },
                Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
                Err(Error::Capacity(_)) => {
                    bail!("websocket: a message is longer than {} MiB", limits::MESSAGE >> 20)
                }
                Err(Error::Io(error)) if error.kind() == ErrorKind::TimedOut => {
                    let pulse = self.pulse();
                    let Some(watch) = &mut self.watch else {
                        return Err(error).context("websocket");
                    };
                    watch.tick(&pulse)?;
                }
                Err(error) => return Err(error).context("websocket"),
            }
        }
    }
}

impl Read for Half {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.read.read(buffer)?;
        self.wire.arrived.fetch_add(1, Ordering::AcqRel);
        Ok(count)
    }
}

impl Write for Half {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.wire.write.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

pub fn connect(agent: &Agent, target: &str, limit: Limit) -> Result<Socket> {
    let socket = agent.plain(limit)?;
    let write = Mutex::new(socket.try_clone()?);
    let wire = Arc::new(Wire { write, arrived: AtomicU64::new(0) });
    let half = |limit: Limit| -> Result<Half> {
        Ok(Half { read: Timed::new(socket.try_clone()?, limit), wire: wire.clone() })
    };
    // Nothing flushes later, so each frame is sent immediately.
    let config = WebSocketConfig::default().write_buffer_size(0);
    let config =
        Some(config.max_frame_size(Some(limits::MESSAGE)).max_message_size(Some(limits::MESSAGE)));
    let url = format!("ws://custom.socket{target}");
    let mut incoming = match tungstenite::client::client_with_config(url, half(limit)?, config) {
        Ok((incoming, _)) => incoming,
        Err(HandshakeError::Failure(Error::Http(answer))) => {
            let body = whole_body(&answer, &mut half(limit)?);
            bail!("status {}: {}", answer.status().as_u16(), complaint(&body));
        }
        Err(error) => return Err(FailedCall::explained(meant(error), &agent.instance)),
    };
    incoming.get_mut().read.limit(Limit::Never);
    socket.set_read_timeout(None)?;
    let outgoing = WebSocket::from_raw_socket(half(Limit::Never)?, Role::Client, config);
    let incoming = Incoming { socket: incoming, watch: None };
    Ok(Socket { incoming, outgoing: Outgoing(outgoing), line: socket })
}

/// Reads the whole body of an answer that refuses the upgrade. The handshake returns only the part
/// of the body that came with the head. The status is reported even if the body is truncated.
fn whole_body(answer: &Response, rest: &mut Half) -> Vec<u8> {
    let mut body = answer.body().clone().unwrap_or_default();
    let length = answer.headers().get("Content-Length").and_then(|text| text.to_str().ok());
    let length: usize = length.and_then(|text| text.parse().ok()).unwrap_or_default();
    let missing = length.min(limits::ANSWER).saturating_sub(body.len());
    #[expect(clippy::disallowed_methods, reason = "the limit bounds the length")]
    let _cut = rest.take(missing as u64).read_to_end(&mut body);
    body
}

/// Converts a handshake error. Keeps I/O errors in the chain, so that their cause can be found.
fn meant(error: HandshakeError<ClientHandshake<Half>>) -> anyhow::Error {
    match error {
        HandshakeError::Failure(Error::Io(error)) => anyhow::Error::from(error),
        HandshakeError::Failure(Error::Protocol(ProtocolError::HandshakeIncomplete)) => {
            unanswered().into()
        }
        error @ (HandshakeError::Interrupted(_) | HandshakeError::Failure(_)) => {
            anyhow!("{error}")
        }
    }
    .context("websocket")
}

impl Outgoing {
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.0.send(Message::Binary(Bytes::copy_from_slice(bytes)))?)
    }

    pub fn text(&mut self, text: String) -> Result<()> {
        Ok(self.0.send(Message::Text(text.into()))?)
    }

    /// Ends a stream; the socket stays open (P§4.1).
    pub fn barrier(&mut self) -> Result<()> {
        self.text(String::new())
    }

    pub fn close(&mut self) -> Result<()> {
        let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
        Ok(self.0.close(Some(frame))?)
    }
}
