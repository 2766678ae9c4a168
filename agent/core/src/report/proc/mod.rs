//! Parsers for lines of `/proc`, `/sys` and some files of `/etc`.
//!
//! A malformed line gives `None`, and too large a number saturates; nothing panics. The Go agents
//! have crashed on such files (lxd 073fd4038a).

pub mod memory;
pub mod mountinfo;
pub mod mounts;
#[cfg(feature = "alloc")]
pub mod release;
pub mod stat;

use crate::decimal::digits;

pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a decimal number without a sign; saturates at `u64::MAX`.
pub fn number(word: &[u8]) -> Option<u64> {
    let is_number = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    is_number.then(|| digits(word).unwrap_or(u64::MAX))
}

/// Returns the number after `key`, if the line begins with it: `oom_kill 7`, `btime 1700000000`.
pub fn keyed(line: &[u8], key: &str) -> Option<u64> {
    let mut words = words(line);
    (words.next()? == key.as_bytes()).then(|| words.next().and_then(number)).flatten()
}

#[cfg(test)]
mod tests;
