//! Sockets on which nothing lasts for ever: the deadline is for all that is read and written, not for
//! each call, so that a peer that sends one byte a second gains nothing.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// How many times longer [`Limit::within`] lasts, in hundredths.
static SLOWDOWN: AtomicU32 = AtomicU32::new(100);

/// Gives peers more time by `MOTE_SLOWDOWN`, such as `2.5`: tests set it on a busy machine. For commands; the daemon's
/// limits are those of the servers, which agents have to keep.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 to 10,000")]
pub fn be_patient() {
    let told = std::env::var("MOTE_SLOWDOWN").ok().and_then(|text| text.parse::<f64>().ok());
    if let Some(times) = told {
        SLOWDOWN.store((times.clamp(1.0, 100.0) * 100.0) as u32, Ordering::Relaxed);
    }
}

/// Returns the duration that peers get instead of this one.
pub fn patient(duration: Duration) -> Duration {
    duration * SLOWDOWN.load(Ordering::Relaxed) / 100
}

/// How long a peer may take.
#[derive(Clone, Copy, Debug)]
pub enum Limit {
    /// Everything must be over by then.
    Until(Instant),
    /// Each read or write must make progress within that; for long bodies.
    Each(Duration),
    /// It may take for ever.
    Never,
}

impl Limit {
    /// From now on.
    pub fn within(duration: Duration) -> Self {
        Self::Until(Instant::now() + patient(duration))
    }

    /// The same, and over after `duration` from now.
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

/// A socket with a limit.
#[derive(Debug)]
pub struct Timed {
    socket: UnixStream,
    limit: Limit,
}

impl Timed {
    /// Takes a socket.
    pub fn new(socket: UnixStream, limit: Limit) -> Self {
        Self { socket, limit }
    }

    /// Connects; a listener whose backlog is full counts as late.
    pub fn connect(path: &Path, limit: Limit) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        set_socket_timeout(&socket, Timeout::Send, limit.left()?)?;
        rustix::net::connect(&socket, &address).map_err(on_time)?;
        Ok(Self { socket: socket.into(), limit })
    }

    /// The socket, without a limit.
    pub fn into_inner(self) -> UnixStream {
        self.socket
    }

    /// Another limit from here on.
    pub fn limit(&mut self, limit: Limit) {
        self.limit = limit;
    }
}

fn on_time(error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    if error.kind() == ErrorKind::WouldBlock { late() } else { error }
}

impl AsFd for Timed {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            self.socket.set_read_timeout(self.limit.left()?)?;
            match self.socket.read(buffer) {
                // By a signal, which no handler restarts after on a socket with a timeout.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_drips_does_not_stretch_the_deadline() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let dripping = std::thread::spawn(move || {
            // 20 s, of which each part is shorter than the limit.
            for _ in 0..1000 {
                if theirs.write_all(b"x").is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let mut timed = Timed::new(ours, Limit::within(Duration::from_millis(200)));
        let error = timed.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(timed);
        dripping.join().unwrap();
    }
}
