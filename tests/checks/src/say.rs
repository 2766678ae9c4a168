//! Demands; what they say is what was seen in place of what was wanted.

use std::fmt::Debug;

/// Demands equality.
pub fn same<T: PartialEq<U> + Debug, U: Debug>(
    what: &str,
    seen: T,
    wanted: U,
) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what} is {seen:?}, not {wanted:?}")) }
}

/// Demands that a text holds another.
pub fn has(text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) { Ok(()) } else { Err(format!("no {wanted:?} in {text:?}")) }
}

/// The line of a text that holds another.
pub fn line_with(text: &str, wanted: &str) -> Result<String, String> {
    let line = text.lines().find(|line| line.contains(wanted));
    line.map(|line| line.trim().to_owned()).ok_or_else(|| format!("no {wanted:?} in {text:?}"))
}

/// Bytes that do not repeat soon, always the same.
#[must_use]
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let words = std::iter::repeat_with(&mut next).take(length / 8 + 1);
    let mut bytes: Vec<u8> = words.flatten().collect();
    bytes.truncate(length);
    bytes
}
