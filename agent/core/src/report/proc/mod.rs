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

pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

/// Parses a decimal number without a sign; saturates at `u64::MAX`.
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

/// Returns the number after `key`, if the line begins with it: `oom_kill 7`, `btime 1700000000`.
pub fn keyed(line: &[u8], key: &str) -> Option<u64> {
    let mut words = words(line);
    (words.next()? == key.as_bytes()).then(|| words.next().and_then(number)).flatten()
}

#[cfg(test)]
mod tests;
