//! Sockets with time limits. A limit applies to all reads and writes together, so a peer that sends
//! one byte per second gains nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Factor for [`Limit::within`], in hundredths.
static SLOWDOWN: AtomicU32 = AtomicU32::new(100);

/// Multiplies time limits by `MOTE_SLOWDOWN`, such as `2.5`, which tests set on a busy machine.
/// Applies to commands only: agents must meet the daemon's limits, which are the servers'.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 to 10,000")]
pub fn be_patient() {
    let told = std::env::var("MOTE_SLOWDOWN").ok().and_then(|text| text.parse::<f64>().ok());
    if let Some(times) = told {
        SLOWDOWN.store((times.clamp(1.0, 100.0) * 100.0) as u32, Ordering::Relaxed);
    }
}

pub fn patient(duration: Duration) -> Duration {
    duration * SLOWDOWN.load(Ordering::Relaxed) / 100
}

/// A peer's time limit.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// One limit for all reads and writes together.
    Until(Instant),
    /// A limit for each read or write that makes progress, for long bodies.
    Each(Duration),
    Never,
}

impl Limit {
    pub fn within(duration: Duration) -> Self {
        Self::Until(Instant::now() + patient(duration))
    }

    pub fn at_most(self, duration: Duration) -> Self {
        match (self, Self::within(duration)) {
            (Self::Until(end), Self::Until(other)) => Self::Until(end.min(other)),
            (_, other) => other,
        }
    }

    fn left(self) -> io::Result<Option<Duration>> {
        let left = match self {
            Self::Until(end) => end.saturating_duration_since(Instant::now()),
            Self::Each(duration) => duration,
            Self::Never => return Ok(None),
        };
        if left.is_zero() { Err(late()) } else { Ok(Some(left)) }
    }
}

fn late() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the peer took too long")
}

#[derive(Debug)]
pub struct Timed {
    pub socket: UnixStream,
    limit: Limit,
}

impl Timed {
    pub fn new(socket: UnixStream, limit: Limit) -> Self {
        Self { socket, limit }
    }

    /// Connects. A listener with a full backlog counts as late.
    pub fn connect(path: &Path, limit: Limit) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        set_socket_timeout(&socket, Timeout::Send, limit.left()?)?;
        rustix::net::connect(&socket, &address).map_err(on_time)?;
        Ok(Self { socket: socket.into(), limit })
    }

    pub fn limit(&mut self, limit: Limit) {
        self.limit = limit;
    }
}

fn on_time(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    if error.kind() == ErrorKind::WouldBlock { late() } else { error }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(self.limit.left()?)?;
            match self.socket.read(buffer) {
                // On a socket with a timeout, no call is restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                read => return read.map_err(on_time),
            }
        }
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(self.limit.left()?)?;
        self.socket.write(bytes).map_err(on_time)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
