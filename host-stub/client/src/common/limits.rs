//! Limits on what is read from a guest. docs/explanation/security.md lists the most important.

use std::io::{Error, ErrorKind, Result, Write};

/// Head of a response or request, bytes.
pub const HEAD: usize = 64 * 1024;
/// Head of an upgrade's answer, bytes.
pub const UPGRADE_HEAD: usize = 16 * 1024;
/// Line before a chunk of a body, bytes.
pub const CHUNK_LINE: usize = 4 * 1024;
/// Body of an agent's answer, bytes, refused before it is read. The largest real one is a list of
/// commands, 4 MiB.
pub const ANSWER: usize = 8 * 1024 * 1024;
/// Body of a guest's request, bytes. Agents accept 64 KiB from their programs.
pub const REQUEST: usize = 256 * 1024;
/// Body between the command line and the daemon, bytes. It may contain an agent's answer.
pub const CONTROL: usize = 64 * 1024 * 1024;
/// Values in a JSON document, including those in objects and lists. One takes up to 150 bytes of
/// memory; a state of 10,000 disks has 60,000.
pub const VALUES: usize = 500_000;
/// Websocket frame, and message of several frames, bytes. An event may have 1 MiB, a piece of
/// output has 32 KiB.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// Line of the status port, bytes. Longer ones are dropped whole.
pub const STATUS_LINE: usize = 256;
/// Document of QEMU's monitor, bytes.
pub const MONITOR_DOCUMENT: u64 = 1024 * 1024;
/// SFTP packet, bytes. OpenSSH accepts 256 KiB of data.
pub const SFTP_PACKET: usize = 256 * 1024 + 1024;
/// Directory lists in memory at the same time, bytes: some 300,000 names.
pub const LISTING: usize = 64 * 1024 * 1024;
/// Levels of a tree below the path in the command; a process has 1,024 descriptors.
pub const LEVELS: usize = 256;
/// The guest's list of mounts, bytes: some 10,000 mounts.
pub const MOUNTS: usize = 1024 * 1024;

/// Memory for a file of the guest, up to a limit.
#[derive(Debug)]
pub struct Bounded {
    pub bytes: Vec<u8>,
    most: usize,
}

impl Bounded {
    /// Returns an empty buffer for at most `most` bytes.
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
