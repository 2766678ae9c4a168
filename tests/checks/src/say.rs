//! Assertions whose messages contain the actual and the expected value.

use std::fmt::Debug;

pub fn same<T: PartialEq<U> + Debug, U: Debug>(
    what: &str,
    seen: T,
    wanted: U,
) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what} is {seen:?}, not {wanted:?}")) }
}

/// Requires that a text contains another.
pub fn has(text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) { Ok(()) } else { Err(format!("no {wanted:?} in {text:?}")) }
}

/// Returns the line of a text that contains another.
pub fn line_with(text: &str, wanted: &str) -> Result<String, String> {
    let line = text.lines().find(|line| line.contains(wanted));
    line.map(|line| line.trim().to_owned()).ok_or_else(|| format!("no {wanted:?} in {text:?}"))
}

/// Returns bytes that do not repeat soon, always the same.
pub fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Noise::default().fill(&mut bytes);
    bytes
}

/// Returns the same piece by piece (xorshift). The length of each piece but the last is a multiple
/// of eight.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }
}

impl Noise {
    pub fn fill(&mut self, out: &mut [u8]) {
        for eight in out.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            eight.copy_from_slice(&self.0.to_le_bytes()[..eight.len()]);
        }
    }
}
