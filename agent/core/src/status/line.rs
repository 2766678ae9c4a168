//! Splits bytes into lines. Drops an overlong line as a whole, because a truncated one could read
//! as a shorter, valid line.

use heapless::Vec;

use crate::limits;

/// The part of the current line that has been received.
#[derive(Debug, Default)]
pub struct LineBuf {
    bytes: Vec<u8, { limits::LINE }>,
    overran: bool,
}

impl LineBuf {
    /// Takes one byte. If it is the newline of a line of at most [`limits::LINE`] bytes, returns the
    /// line without it and without a carriage return before it.
    pub fn push(&mut self, byte: u8) -> Option<Vec<u8, { limits::LINE }>> {
        if byte != b'\n' {
            self.overran |= self.bytes.push(byte).is_err();
            return None;
        }
        let Self { mut bytes, overran } = core::mem::take(self);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        (!overran).then_some(bytes)
    }

    /// Drops the current line, whose rest will never arrive.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
