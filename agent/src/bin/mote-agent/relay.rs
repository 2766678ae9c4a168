//! Bytes between a host's connection and a descriptor of ours, both ways, until either side ends.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use futures_lite::FutureExt;
use rustix::io::Errno;

use crate::clock::within;
use crate::reactor::Async;
use crate::socket::Socket;
use crate::stream::Stream;

/// Bytes moved at a time towards the guest: a TLS record's worth.
const INWARD: usize = 16 * 1024;
/// Bytes moved at a time towards the host: some of the answers that an SFTP server has ready.
const OUTWARD: usize = 32 * 1024;
/// How long the guest's side may take nothing before we look whether the host is still there. We would
/// not learn it by reading: what the host sent before it left is in the way.
const STUCK: Duration = Duration::from_secs(10);

/// Moves bytes until one side has no more. What the socket still had to say is passed on.
pub(crate) async fn relay(stream: &Stream, socket: Socket) -> io::Result<()> {
    stream.be_patient();
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
                    Some(written) => bytes = bytes.get(written?..).unwrap_or_default(),
                    None if stream.has_left() => return Err(io::ErrorKind::BrokenPipe.into()),
                    None => {}
                }
            }
        }
    };
    let outward = async {
        // The buffer lives while there is something to put into it, not while we wait.
        let (mut buffer, mut ahead) = (None, false);
        loop {
            let piece = buffer.get_or_insert_with(|| vec![0; OUTWARD]);
            match rustix::io::read(socket.get_ref(), &mut *piece) {
                Ok(0) => return stream.sent().await,
                Ok(count) => {
                    stream.write_ahead(piece.get(..count).unwrap_or_default()).await?;
                    ahead = true;
                }
                Err(Errno::AGAIN) if ahead => {
                    // Then we look again: what came meanwhile would not be told of a second time.
                    stream.sent().await?;
                    ahead = false;
                }
                Err(Errno::AGAIN) => {
                    buffer = None;
                    socket.readable().await?;
                }
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    };
    outward.or(inward).await
}

/// Writes all of it. SIGPIPE is ignored, as in every Rust program.
pub(crate) async fn write_all(to: &Async<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = write_some(to, bytes).await?;
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Writes what is taken at once, but something.
///
/// # Cancellation
/// Loses nothing.
async fn write_some(to: &Async<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    to.write_with(|fd| Ok(rustix::io::write(fd, bytes)?)).await
}
