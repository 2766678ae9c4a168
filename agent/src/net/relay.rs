//! Copies bytes between a connection of the host and a local socket, both ways, until either ends.

use std::io;
use std::time::Duration;

use crate::runtime::{Async, within};
use smol::future::FutureExt;

use crate::net::stream::Stream;
use crate::sys::fd::{self, OwnedFd};
use crate::transport::Socket;

/// Read size towards the guest, in bytes: as much as TLS receives at a time, because each write
/// wakes the process behind the socket.
const INWARD: usize = 36 * 1024;
/// Read size towards the host, in bytes: two TLS records, each with 22 bytes of overhead, fill a
/// packet (`session::PACKET`).
pub(super) const OUTWARD: usize = 32 * 1024 - 512 - 2 * 22;
/// Idle time of the guest's side after which its buffer is freed.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the guest's side may accept nothing before mote checks that the host is still
/// connected. Reading would not show that the host disconnected: earlier data comes first.
const STUCK: Duration = Duration::from_secs(10);

/// Copies until one side ends. Sends all that the socket wrote before its end.
pub(crate) async fn relay(stream: &Stream, socket: Socket) -> io::Result<()> {
    stream.disable_write_timeout();
    let inward = async {
        let mut buffer = vec![0; INWARD];
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            let mut bytes = buffer.get(..count).unwrap_or_default();
            while !bytes.is_empty() {
                match within(STUCK, write_some(&socket, bytes)).await {
                    Some(Ok(written)) => bytes = bytes.get(written..).unwrap_or_default(),
                    // The local peer may have sent an answer before it closed.
                    Some(Err(_)) => break,
                    None if stream.has_left() => return Err(io::ErrorKind::BrokenPipe.into()),
                    None => {}
                }
            }
        }
    };
    let outward = async {
        // The buffer is freed after [`PAUSE`].
        let mut buffer = None;
        loop {
            let piece = buffer.get_or_insert_with(|| vec![0; OUTWARD]);
            match socket.try_read(|local| Ok(fd::read(local, piece)?)) {
                Ok(0) => return stream.sent().await,
                Ok(count) => stream.write_ahead(piece.get(..count).unwrap_or_default()).await?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    stream.sent().await?;
                    if within(PAUSE, socket.readable()).await.transpose()?.is_none() {
                        buffer = None;
                        socket.readable().await?;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    };
    outward.or(inward).await
}

/// Writes all bytes. SIGPIPE is ignored, as in every Rust program.
pub(crate) async fn write_all(to: &Async<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = write_some(to, bytes).await?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Writes some bytes; returns how many. Cancellation: nothing has been written.
async fn write_some(to: &Async<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    to.write_with(|local| Ok(fd::write(local, bytes)?)).await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use smol::LocalExecutor;
    use smol::future::zip;

    use super::*;
    use crate::runtime::block_on;

    #[test]
    fn forwards_the_answer_of_a_server_that_closes_before_it_reads_everything() {
        const ANSWER: usize = 64 * 1024;
        let (ours, mut host) = UnixStream::pair().unwrap();
        let (local, mut server) = UnixStream::pair().unwrap();
        server.write_all(&[b'x'; ANSWER]).unwrap();
        drop(server);
        host.write_all(b"more").unwrap();
        let (host, local) = (Async::new(host).unwrap(), Async::new(local.into()).unwrap());
        let stream = Stream::plain(Async::new(ours.into()).unwrap());
        // The host has not read the whole answer when a write to the server fails.
        stream.limit_send_buffer(4096);
        let relayed = async {
            let relayed = relay(&stream, local).await;
            stream.close().await;
            relayed
        };
        let read = async {
            let (mut piece, mut sum) = ([0; 4096], 0);
            while let count @ 1.. = host.read_with(|mut host| host.read(&mut piece)).await.unwrap()
            {
                sum += count;
            }
            sum
        };
        let (relayed, sum) = block_on(&LocalExecutor::new(), zip(relayed, read));
        assert_eq!((relayed.is_ok(), sum), (true, ANSWER));
    }
}
