//! Parsers for lines of `/proc`, `/sys` and some files of `/etc`.
//!
//! A malformed line gives `None`, and too large a number saturates; nothing panics. The Go agents
//! have crashed on such files (lxd 073fd4038a).

#[cfg(feature = "alloc")]
use alloc::vec::Vec;

use crate::decimal::digits;

pub mod mounts;
pub mod stat;

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

/// The text of `/proc/meminfo` (proc(5)).
#[derive(Clone, Copy, Debug)]
pub struct Memory<'t>(pub &'t [u8]);

impl Memory<'_> {
    /// Returns a key's value, in bytes; for `HugePages_*` a count. 0 if it is missing or malformed.
    #[inline(never)] // its size
    pub fn get(self, key: &str) -> u64 {
        let mut lines = self.0.split(|byte| *byte == b'\n');
        let value = lines.find_map(|line| line.strip_prefix(key.as_bytes())?.strip_prefix(b":"));
        let mut words = words(value.unwrap_or_default());
        let value = words.next().and_then(number).unwrap_or(0);
        value.saturating_mul(if words.next() == Some(b"kB") { 1024 } else { 1 })
    }

    /// Returns the swap in use, in bytes.
    pub fn swap(self) -> u64 {
        self.get("SwapTotal").saturating_sub(self.get("SwapFree"))
    }
}

/// Returns the value of variable `name` in `/etc/os-release` (os-release(5)), if the line assigns
/// it in shell syntax, with or without quotes.
#[cfg(feature = "alloc")]
pub fn variable(line: &[u8], name: &str) -> Option<Vec<u8>> {
    let value = line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.trim_ascii();
    let inner = |quote: &[u8]| value.strip_prefix(quote)?.strip_suffix(quote);
    if let Some(plain) = inner(b"'") {
        return Some(plain.to_vec());
    }
    let mut out = Vec::new();
    let mut rest = inner(b"\"").unwrap_or(value).iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => out.extend(rest.next()),
            _ => out.push(*byte),
        }
    }
    Some(out)
}

/// Returns the first name on a line of `/etc/hosts` (hosts(5)) that names `host`: `hostname -f`.
pub fn full_name<'l>(line: &'l [u8], host: &[u8]) -> Option<&'l [u8]> {
    let line = line.split(|byte| *byte == b'#').next()?;
    let mut names = words(line).skip(1);
    let first = names.next()?;
    (first == host || names.any(|name| name == host)).then_some(first)
}

#[cfg(test)]
mod tests;
