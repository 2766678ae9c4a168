//! `/proc/meminfo` (proc(5)).

use super::{number, words};

/// Keys of the lines that are read.
#[rustfmt::skip] // several in a line
const KEYS: [&str; 23] = [
    "MemTotal", "MemFree", "MemAvailable", "Cached", "SwapCached", "Active", "Inactive",
    "Active(anon)", "Inactive(anon)", "Active(file)", "Inactive(file)", "Unevictable", "SwapTotal",
    "SwapFree", "Dirty", "Writeback", "AnonPages", "Mapped", "Shmem", "SReclaimable",
    "HugePages_Total", "HugePages_Free", "Hugepagesize",
];

/// Values in the order of `KEYS`, bytes or counts; 0 if not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory([u64; KEYS.len()]);

impl Memory {
    /// Reads a line; ignores other keys and malformed lines.
    pub fn line(&mut self, line: &[u8]) {
        let mut words = words(line);
        let Some(key) = words.next().and_then(|word| word.strip_suffix(b":")) else { return };
        let Some(value) = words.next().and_then(number) else { return };
        let unit = if words.next() == Some(b"kB") { 1024 } else { 1 };
        let fields = KEYS.iter().zip(&mut self.0);
        for (_, field) in fields.filter(|(name, _)| name.as_bytes() == key) {
            *field = value.saturating_mul(unit);
        }
    }

    /// Returns the value of a key, bytes; for `HugePages_*` a count.
    pub fn get(&self, key: &str) -> u64 {
        KEYS.iter().zip(&self.0).find(|(name, _)| **name == key).map_or(0, |(_, value)| *value)
    }

    /// Returns the swap in use, bytes.
    pub fn swap(&self) -> u64 {
        self.get("SwapTotal").saturating_sub(self.get("SwapFree"))
    }
}
