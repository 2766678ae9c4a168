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

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec as List;

    fn lines(bytes: &[u8]) -> List<Line> {
        let mut buf = LineBuf::default();
        bytes.iter().filter_map(|byte| buf.push(*byte)).collect()
    }

    fn full(text: &str) -> Line {
        Line::Full(Vec::from_slice(text.as_bytes()).unwrap())
    }

    #[test]
    fn lines_end_at_newlines_with_or_without_a_carriage_return() {
        assert_eq!(lines(b"a\r\nb\n\nrest"), [full("a"), full("b"), full("")]);
    }

    #[test]
    fn overlong_line_is_dropped_whole() {
        for (length, fits) in [(limits::LINE, true), (limits::LINE + 1, false)] {
            let mut bytes = std::vec![b'x'; length];
            bytes.extend(b"\nnext\n");
            let seen = lines(&bytes);
            assert_eq!(seen[0] != Line::TooLong, fits, "{length}");
            assert_eq!(seen[1], full("next"));
        }
    }
    #[test]
    fn keeps_noise_and_removes_only_one_carriage_return() {
        assert_eq!(
            lines(b"\0\xff\r\r\n\r\n"),
            [Line::Full(Vec::from_slice(b"\0\xff\r").unwrap()), full("")]
        );
    }

    #[test]
    fn a_carriage_return_counts_for_the_length() {
        let mut bytes = std::vec![b'x'; limits::LINE];
        bytes.extend(b"\r\n");
        assert_eq!(lines(&bytes), [Line::TooLong]);
    }

    #[test]
    fn clear_removes_all_bytes() {
        let mut buf = LineBuf::default();
        assert!(std::vec![b'x'; 2 * limits::LINE].iter().all(|byte| buf.push(*byte).is_none()));
        buf.clear();
        assert_eq!(buf.push(b'a'), None);
        assert_eq!(buf.push(b'\n'), Some(full("a")));
    }
}
