//! The limits on what is read from a guest. docs/explanation/security.md lists the most important.

use std::io::{Error, ErrorKind, Result, Write};

/// The head of a response or request, bytes.
pub const HEAD: usize = 64 * 1024;
/// A head that a stream other than HTTP follows, bytes.
pub const UPGRADE_HEAD: usize = 16 * 1024;
/// The line before a chunk of a body, bytes.
pub const CHUNK_LINE: usize = 4 * 1024;
/// The body of an agent's answer, bytes, refused before it is read: the largest real one is a list of commands, 4 MiB.
pub const ANSWER: usize = 8 * 1024 * 1024;
/// The body of a guest's request: agents take 64 KiB of their programs.
pub const REQUEST: usize = 256 * 1024;
/// A body between the command line and the daemon, where an agent's answer may be quoted.
pub const CONTROL: usize = 64 * 1024 * 1024;
/// Values in a JSON document, those in objects and lists included: one takes up to 150 bytes of memory; a state of 10,000
/// disks has 60,000.
pub const VALUES: usize = 500_000;
/// A frame of a websocket, and a message of several, bytes: an event may be 1 MiB, a piece of output is 32 KiB.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// A line of the status port, bytes; longer ones are dropped whole.
pub const STATUS_LINE: usize = 256;
/// A document of QEMU's monitor, bytes.
pub const MONITOR_DOCUMENT: u64 = 1024 * 1024;
/// A packet of SFTP, bytes: 256 KiB of data is what OpenSSH takes.
pub const SFTP_PACKET: usize = 256 * 1024 + 1024;
/// All that is held of directories' lists at once, bytes: some 300,000 names.
pub const LISTING: usize = 64 * 1024 * 1024;
/// Levels of a tree below the path that was named; a process has 1,024 descriptors.
pub const LEVELS: usize = 256;
/// The guest's list of mounts, bytes: some 10,000 of them.
pub const MOUNTS: usize = 1024 * 1024;

/// Takes a file of the guest's that is held here: so many bytes.
#[derive(Debug)]
pub struct Bounded {
    /// What was read so far.
    pub bytes: Vec<u8>,
    most: usize,
}

impl Bounded {
    /// An empty one.
    pub fn new(most: usize) -> Self {
        Self { bytes: Vec::new(), most }
    }
}

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if self.bytes.len() + bytes.len() > self.most {
            let most = self.most / 1024;
            return Err(Error::new(ErrorKind::FileTooLarge, format!("longer than {most} KiB")));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_held_than_that() {
        let mut bounded = Bounded::new(2048);
        bounded.write_all(&[b'x'; 2048]).unwrap();
        assert_eq!(bounded.write_all(b"y").unwrap_err().to_string(), "longer than 2 KiB");
        assert_eq!(bounded.bytes, [b'x'; 2048]);
    }
}
