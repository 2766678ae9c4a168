//! Limits on what is read from a guest; docs/explanation/security.md lists the most important. The
//! values of a JSON document are counted before it is parsed, because parsed values may take many
//! times the memory of the text.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Head of a response or request, bytes.
pub const HEAD: usize = 64 * 1024;
/// Line before a chunk of a body, bytes.
pub const CHUNK_LINE: usize = 4 * 1024;
/// Body of an agent's answer, bytes, refused before it is read. The largest real one is a list of
/// commands, 4 MiB.
pub const ANSWER: usize = 8 * 1024 * 1024;
/// Body of a guest's request, bytes. Agents accept 64 KiB from their programs.
pub const REQUEST: usize = 256 * 1024;
/// Body of a message between command line and daemon, bytes. It may contain an agent's answer.
pub const CONTROL: usize = 64 * 1024 * 1024;
/// Values in a JSON document, including those in objects and lists. A value takes up to 150 bytes
/// of memory; a state of 10,000 disks has 60,000 values.
pub const VALUES: usize = 500_000;
/// Websocket frame, and message of several frames, bytes. An event may have 1 MiB, a piece of
/// output has 32 KiB.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// Line of the status port, bytes. Longer ones are dropped completely.
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

pub fn json(text: &[u8]) -> Result<Value> {
    if values(text) > VALUES {
        bail!("more than {VALUES} values");
    }
    serde_json::from_slice(text).context("not JSON")
}

/// Returns an upper bound of the number of values: each is the first or follows one of these
/// characters.
fn values(text: &[u8]) -> usize {
    let (mut count, mut in_string, mut is_escaped) = (1, false, false);
    for byte in text {
        match (in_string, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b',' | b':' | b'[' | b'{') => count += 1,
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_values_outside_strings() {
        for (text, least, most) in [
            ("7", 1, 1),
            ("[]", 1, 2),
            ("[1,2]", 3, 3),
            (r#"{"a":1,"b":[2]}"#, 4, 7),
            (r#"["a,b:c[d{", "\",,", "\\", 1]"#, 5, 5),
        ] {
            let count = values(text.as_bytes());
            assert!((least..=most).contains(&count), "{text}: {count}");
        }
    }
}
