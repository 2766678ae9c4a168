//! Bytes between a host's connection and a descriptor of ours, both ways, until either side ends.

use std::io;
use std::os::fd::OwnedFd;

use async_io::Async;
use futures_lite::FutureExt;
use rustix::net::{SendFlags, send};

use crate::stream::Stream;

/// Bytes moved at a time, each way: a TLS record's worth.
const PIECE: usize = 16 * 1024;

/// Moves bytes until one side has no more. What the socket still had to say is passed on.
pub(crate) async fn relay(stream: &Stream, socket: OwnedFd) -> io::Result<()> {
    stream.be_patient();
    let socket = Async::new(socket)?;
    let inward = async {
        let mut buffer = vec![0; PIECE];
        loop {
            let count = stream.read(&mut buffer).await?;
            if count == 0 {
                return Ok(());
            }
            send_all(&socket, buffer.get(..count).unwrap_or_default()).await?;
        }
    };
    let outward = async {
        loop {
            // The buffer lives while there is something in it, not while we wait.
            socket.readable().await?;
            let mut buffer = vec![0; PIECE];
            let count = socket.read_with(|fd| Ok(rustix::io::read(fd, &mut buffer)?)).await?;
            if count == 0 {
                return Ok(());
            }
            stream.write_all(buffer.get(..count).unwrap_or_default()).await?;
        }
    };
    outward.or(inward).await
}

async fn send_all(socket: &Async<OwnedFd>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = socket.write_with(|fd| Ok(send(fd, bytes, SendFlags::NOSIGNAL)?)).await?;
        bytes = bytes.get(sent..).unwrap_or_default();
    }
    Ok(())
}
