//! Splits bytes into lines. Drops an overlong line as a whole, because a truncated one could read
//! as a shorter, valid line.

use heapless::Vec;

use crate::limits;

/// A line without its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The whole line, without a carriage return before the newline.
    Full(Vec<u8, { limits::LINE }>),
    /// More than [`limits::LINE`] bytes, a carriage return included.
    TooLong,
}

/// The part of the current line that has been received.
#[derive(Debug, Default)]
pub struct LineBuf {
    bytes: Vec<u8, { limits::LINE }>,
    overran: bool,
}

impl LineBuf {
    /// Takes one byte. Returns the line if the byte is its newline.
    pub fn push(&mut self, byte: u8) -> Option<Line> {
        if byte != b'\n' {
            self.overran |= self.bytes.push(byte).is_err();
            return None;
        }
        let Self { mut bytes, overran } = core::mem::take(self);
        if overran {
            return Some(Line::TooLong);
        }
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        Some(Line::Full(bytes))
    }

    /// Drops the current line, whose rest will never arrive.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
