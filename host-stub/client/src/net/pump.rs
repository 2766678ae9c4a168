//! Turns a TLS connection into a plain socket that two threads may read and write at the same time.
//! Each direction has a thread here. They lock rustls' state while they seal or open records, never
//! while they wait for a socket.
//!
//! A direction holds at most a record or two, so a side that does not read stops the peer. The end
//! of one direction is passed on as a close_notify or as an end of file; the other direction
//! continues (P§4.4).

use std::io::{ErrorKind, Read, Result, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::spawn;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{read, retry_on_intr};
use rustls::{ClientConnection, StreamOwned};

use super::stream::Timed;

/// Bytes per read: a TLS record.
const PIECE: usize = 16 * 1024;
/// Limit for the last bytes to the peer if the other direction has ended.
const LAST: Duration = Duration::from_secs(5);

struct Pump {
    tls: Mutex<ClientConnection>,
    socket: UnixStream,
    ours: UnixStream,
}

/// Returns the plain socket. The threads end with the connection.
pub fn plain(stream: StreamOwned<ClientConnection, Timed>) -> Result<UnixStream> {
    let (tls, socket) = stream.into_parts();
    let socket = socket.socket;
    socket.set_read_timeout(None)?;
    socket.set_write_timeout(None)?;
    let (ours, theirs) = UnixStream::pair()?;
    let pump = Arc::new(Pump { tls: Mutex::new(tls), socket, ours });
    let (sender, (sending, sent)) = (pump.clone(), channel::<()>());
    spawn(move || {
        let _cut = sender.send();
        // After an error, a local writer must not wait for room.
        let _unread = sender.ours.shutdown(Shutdown::Read);
        drop(sending);
    });
    spawn(move || {
        // An error ends the connection, so the reader sees that data is missing.
        let _cut = pump.deliver();
        let _gone = pump.ours.shutdown(Shutdown::Both);
        let _over = sent.recv_timeout(LAST);
        let _gone = pump.socket.shutdown(Shutdown::Both);
    });
    Ok(theirs)
}

impl Pump {
    fn tls(&self) -> MutexGuard<'_, ClientConnection> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delivers what the peer sends, until its end.
    fn deliver(&self) -> Result<()> {
        let (mut buffer, mut count, mut plain) = ([0; PIECE], 0, Vec::new());
        loop {
            let (mut tls, mut records) = (self.tls(), &buffer[..count]);
            let is_over = loop {
                match tls.reader().read_to_end(&mut plain) {
                    Ok(_) => break true,
                    Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error),
                    Err(_) if records.is_empty() => break false,
                    Err(_) => tls.read_tls(&mut records)?,
                };
                tls.process_new_packets().map_err(std::io::Error::other)?;
            };
            drop(tls);
            (&self.ours).write_all(&plain)?;
            plain.clear();
            // A peer may end without close_notify.
            count = if is_over { 0 } else { retry_on_intr(|| read(&self.socket, &mut buffer))? };
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// Sends what the local side writes, until its end.
    fn send(&self) -> Result<()> {
        let mut piece = [0; PIECE];
        loop {
            // A local side that closes without reading everything causes ECONNRESET.
            let count = retry_on_intr(|| read(&self.ours, &mut piece)).unwrap_or(0);
            let (mut tls, mut records) = (self.tls(), Vec::new());
            match count {
                0 => tls.send_close_notify(),
                _ => tls.writer().write_all(&piece[..count])?,
            }
            while tls.wants_write() {
                tls.write_tls(&mut records)?;
            }
            drop(tls);
            (&self.socket).write_all(&records)?;
            if count == 0 {
                break;
            }
        }
        let mut local = [PollFd::new(&self.ours, PollFlags::empty())];
        poll(&mut local, Some(&Timespec::default()))?;
        if local[0].revents().contains(PollFlags::HUP) {
            // The local side is closed, so it no longer reads either.
            self.socket.shutdown(Shutdown::Both)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Limit;
    use crate::net::tls::{self, Pair};
    use rustls::ServerConnection;

    #[test]
    fn a_local_side_that_closes_with_unread_data_is_an_end() {
        let scratch = tempfile::tempdir().unwrap();
        let [host, agent] =
            ["host", "agent"].map(|name| Pair::load_or_make(scratch.path(), name).unwrap());
        let config = tls::client(&host, agent.certificate.clone()).unwrap();
        let name = "unspecified".try_into().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        let peer = spawn(move || {
            let server = ServerConnection::new(tls::server(&agent).unwrap()).unwrap();
            let far = Timed::new(far, Limit::within(Duration::from_secs(60)));
            let mut peer = StreamOwned::new(server, far);
            peer.write_all(b"unread").unwrap();
            let mut all = Vec::new();
            peer.read_to_end(&mut all).map(|_| all).map_err(|error| error.kind())
        });
        let mut client = StreamOwned::new(
            ClientConnection::new(config, name).unwrap(),
            Timed::new(near, Limit::within(Duration::from_secs(60))),
        );
        client.flush().unwrap();
        let mut local = plain(client).unwrap();
        local.write_all(b"last").unwrap();
        let mut arrived = [PollFd::new(&local, PollFlags::IN)];
        poll(&mut arrived, None).unwrap();
        drop(local);
        // Without close_notify, this would be an unexpected end.
        assert_eq!(peer.join().unwrap(), Ok(b"last".to_vec()));
    }
}
