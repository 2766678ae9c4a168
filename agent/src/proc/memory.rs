//! `/proc/meminfo` (proc(5)).

use super::{number, words};

/// The lines we read.
const KEYS: [&str; 23] = [
    "MemTotal",
    "MemFree",
    "MemAvailable",
    "Cached",
    "SwapCached",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "Unevictable",
    "SwapTotal",
    "SwapFree",
    "Dirty",
    "Writeback",
    "AnonPages",
    "Mapped",
    "Shmem",
    "SReclaimable",
    "HugePages_Total",
    "HugePages_Free",
    "Hugepagesize",
];

/// What they said; 0 until they did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory([u64; KEYS.len()]);

impl Memory {
    /// Takes a line.
    pub fn line(&mut self, line: &[u8]) {
        let mut words = words(line);
        let Some(key) = words.next().and_then(|word| word.strip_suffix(b":")) else { return };
        let Some(value) = words.next().and_then(number) else { return };
        let unit = if words.next() == Some(b"kB") { 1024 } else { 1 };
        let places = KEYS.iter().zip(&mut self.0);
        for (_, place) in places.filter(|(name, _)| name.as_bytes() == key) {
            *place = value.saturating_mul(unit);
        }
    }

    /// One of them, in bytes; the huge pages are a count.
    #[must_use]
    pub fn get(&self, key: &str) -> u64 {
        KEYS.iter().zip(&self.0).find(|(name, _)| **name == key).map_or(0, |(_, value)| *value)
    }

    /// Swap in use, bytes.
    #[must_use]
    pub fn swap(&self) -> u64 {
        self.get("SwapTotal").saturating_sub(self.get("SwapFree"))
    }
}
