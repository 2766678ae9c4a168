//! SFTP packets on a stream: whole and of bounded length.

use std::io::{self, ErrorKind, Read, Write};

use anyhow::{Context, Result, anyhow, bail};

use crate::common::limits::SFTP_PACKET;

pub(crate) fn send(stream: &mut impl Write, kind: u8, body: &[u8]) -> Result<()> {
    let length = u32::try_from(body.len() + 1)?;
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.extend(length.to_be_bytes());
    packet.push(kind);
    packet.extend_from_slice(body);
    stream.write_all(&packet).map_err(in_words).context("sftp")
}

/// Converts the stream's time limit and its end to messages.
fn in_words(error: io::Error) -> anyhow::Error {
    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        return anyhow!("the guest no longer answers");
    }
    if error.kind() == ErrorKind::UnexpectedEof {
        return anyhow!("the guest ended the session");
    }
    error.into()
}

/// Reads a packet; returns its kind and body.
pub(crate) fn receive(stream: &mut impl Read) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(in_words)?;
    let [a, b, c, d, kind] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
    if length == 0 || length > SFTP_PACKET {
        bail!("a packet of {length} bytes");
    }
    let mut body = vec![0; length - 1];
    stream.read_exact(&mut body).map_err(in_words)?;
    Ok((kind, body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    #[test]
    fn gives_up_a_silent_guest() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = receive(&mut ours).unwrap_err();
        assert_eq!(error.to_string(), "the guest no longer answers");
        drop(theirs);
        assert_eq!(receive(&mut ours).unwrap_err().to_string(), "the guest ended the session");
    }

    #[test]
    fn limits_the_length_of_packets() {
        assert!(receive(&mut &[0xff; 5][..]).is_err());
        assert!(receive(&mut &[0; 5][..]).is_err());
        assert_eq!(receive(&mut &[0, 0, 0, 1, 7][..]).unwrap(), (7, vec![]));
    }
}
