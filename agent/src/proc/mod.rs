//! What Linux tells in `/proc` and `/sys`, and some files of `/etc`: one line in, values out.
//!
//! Every function is total. A line that is cut short or makes no sense gives `None`, and numbers
//! that are too large stay at the largest: no kernel, and nobody who can write such a file, brings
//! the agent down (the Go agents have died of it: field notes 35).

pub mod memory;
pub mod mounts;
pub mod release;
pub mod stat;

/// The words of a line.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// A decimal number and nothing else.
#[must_use]
pub fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() {
        return None;
    }
    let mut value = 0u64;
    for byte in word {
        let digit = char::from(*byte).to_digit(10)?;
        value = value.saturating_mul(10).saturating_add(digit.into());
    }
    Some(value)
}

/// The number behind this key: `oom_kill 7`, `btime 1700000000`, `usage_usec 5`.
#[must_use]
pub fn keyed(line: &[u8], key: &str) -> Option<u64> {
    let mut words = words(line);
    (words.next()? == key.as_bytes()).then(|| words.next().and_then(number)).flatten()
}

#[cfg(test)]
mod tests;
