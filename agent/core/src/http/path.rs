//! Splits request paths into segments, which are compared decoded but forwarded raw.
//!
//! A path is split before decoding, so `%2F` never separates segments. Never allocates.

use heapless::Vec;

/// Maximum number of stored segments: the longest path of the API has eight
/// (`/1.0/storage-pools/P/volumes/T/V/snapshots/S`). Further ones are only counted.
const MAX_SEGMENTS: usize = 9;

/// The segments of a path, still percent-encoded.
#[derive(Debug)]
pub struct Segments<'p> {
    parts: Vec<&'p str, MAX_SEGMENTS>,
    total: usize,
}

impl<'p> Segments<'p> {
    /// Splits an absolute path. `/` has no segments; after a trailing slash there is an empty one.
    /// Returns `None` if any `%` of the path is not followed by two hex digits.
    pub fn split(path: &'p str) -> Option<Self> {
        check_encoding(path.as_bytes())?;
        let mut parts = Vec::new();
        let mut total = 0;
        let inner = path.strip_prefix('/').unwrap_or(path);
        if !inner.is_empty() {
            for part in inner.split('/') {
                total += 1;
                let _kept = parts.push(part).is_ok();
            }
        }
        Some(Self { parts, total })
    }

    pub fn count(&self) -> usize {
        self.total
    }

    /// Returns the segment as received; empty if there is none.
    pub fn raw(&self, index: usize) -> &'p str {
        self.parts.get(index).copied().unwrap_or("")
    }

    pub fn is(&self, index: usize, word: &str) -> bool {
        decoded(self.raw(index)).eq(word.bytes())
    }

    pub fn starts(&self, index: usize, word: &str) -> bool {
        let mut bytes = decoded(self.raw(index));
        word.bytes().all(|byte| bytes.next() == Some(byte))
    }
}

fn check_encoding(path: &[u8]) -> Option<()> {
    let mut rest = path.iter();
    while let Some(byte) = rest.next() {
        if *byte == b'%' {
            for _ in 0..2 {
                rest.next().filter(|digit| digit.is_ascii_hexdigit())?;
            }
        }
    }
    Some(())
}

/// Returns the bytes of a segment, whose encoding has been checked.
fn decoded(segment: &str) -> impl Iterator<Item = u8> + '_ {
    let mut bytes = segment.bytes();
    core::iter::from_fn(move || {
        let byte = bytes.next()?;
        if byte != b'%' {
            return Some(byte);
        }
        let high = hex(bytes.next()?)?;
        let low = hex(bytes.next()?)?;
        Some(high << 4 | low)
    })
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}
