//! Limits on what is read from a guest; docs/explanation/security.md lists the most important. The
//! values of a JSON document are counted before it is parsed, because parsed values may take many
//! times the memory of the text.

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Maximum size of a response's or request's head, in bytes.
pub const HEAD: usize = 64 * 1024;
/// Maximum length of the line before a chunk of a body, in bytes.
pub const CHUNK_LINE: usize = 4 * 1024;
/// Maximum body of an agent's answer, in bytes; a longer one is refused before it is read. The
/// largest real one is a list of commands, 4 MiB.
pub const ANSWER: usize = 8 * 1024 * 1024;
/// Maximum body of a guest's request, in bytes. Agents accept 64 KiB from their programs.
pub const REQUEST: usize = 256 * 1024;
/// Maximum body between command line and daemon, in bytes. It may contain an agent's answer.
pub const CONTROL: usize = 64 * 1024 * 1024;
/// Maximum number of values in a JSON document, including those in objects and lists. A value takes
/// up to 150 bytes of memory; a state of 10,000 disks has 60,000 values.
pub const VALUES: usize = 500_000;
/// Maximum size of a websocket frame, and of a message, in bytes. An event may have 1 MiB; a piece
/// of output has 32 KiB.
pub const MESSAGE: usize = 4 * 1024 * 1024;
/// Maximum length of a line of the status port, in bytes. Longer lines are dropped completely.
pub const STATUS_LINE: usize = 256;
/// Maximum size of a document from QEMU's monitor, in bytes.
pub const MONITOR_DOCUMENT: u64 = 1024 * 1024;
/// Maximum size of an SFTP packet, in bytes. OpenSSH accepts 256 KiB of data.
pub const SFTP_PACKET: usize = 256 * 1024 + 1024;
/// Maximum total size of directory lists in memory, in bytes: some 300,000 names.
pub const LISTING: usize = 64 * 1024 * 1024;
/// Maximum depth of a tree below the path in the command; a process has 1,024 descriptors.
pub const LEVELS: usize = 256;
/// Maximum size of the guest's list of mounts, in bytes: some 10,000 mounts.
pub const MOUNTS: usize = 1024 * 1024;

pub fn json(text: &[u8]) -> Result<Value> {
    if values(text) > VALUES {
        bail!("more than {VALUES} values");
    }
    serde_json::from_slice(text).context("not JSON")
}

/// Returns an upper bound for the number of values, counted by the characters before them.
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
