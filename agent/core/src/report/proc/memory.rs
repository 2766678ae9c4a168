//! `/proc/meminfo` (proc(5)).

use super::{number, words};

/// The text of the file.
#[derive(Clone, Copy, Debug)]
pub struct Memory<'t>(pub &'t [u8]);

impl Memory<'_> {
    /// Returns the value of a key, bytes; for `HugePages_*` a count. 0 if it is missing or malformed.
    #[inline(never)] // its size
    pub fn get(self, key: &str) -> u64 {
        let mut lines = self.0.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b":"));
        let mut words = words(value.unwrap_or_default());
        let value = words.next().and_then(number).unwrap_or(0);
        value.saturating_mul(if words.next() == Some(b"kB") { 1024 } else { 1 })
    }

    /// Returns the swap in use, bytes.
    pub fn swap(self) -> u64 {
        self.get("SwapTotal").saturating_sub(self.get("SwapFree"))
    }
}
