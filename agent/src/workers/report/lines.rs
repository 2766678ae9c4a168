//! Reads files of `/proc` and `/sys`, which may have any length, line by line in constant memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::sys::file::{self, OFlags};

/// Longest line that is returned whole, bytes; a longer one is truncated. A mount with two paths of
/// 4 KiB fits, unless most of their bytes are escaped.
const LINE: usize = 16 * 1024;

pub(crate) struct Lines<R> {
    from: R,
    buffer: Box<[u8]>,
    /// Start in `buffer` of the bytes that are not yet returned.
    start: usize,
    end: usize,
    /// Whether the rest of the current line is to be skipped.
    overlong: bool,
}

impl Lines<File> {
    /// Opens a file; `None` if that fails.
    pub(crate) fn open(path: &Path) -> Option<Self> {
        Some(Self::new(file::open(path, OFlags::RDONLY).ok()?))
    }
}

impl<R: Read> Lines<R> {
    fn new(from: R) -> Self {
        let buffer = vec![0; LINE].into_boxed_slice();
        Self { from, buffer, start: 0, end: 0, overlong: false }
    }

    /// Returns the next line, without its newline. A read error counts as the end.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        // Bytes from `start` on that contain no newline.
        let mut searched = 0;
        loop {
            let there = self.buffer.get(self.start..self.end)?;
            let newline = there.iter().skip(searched).position(|byte| *byte == b'\n');
            if let Some(after) = newline {
                let (start, length) = (self.start, searched + after);
                self.start += length + 1;
                searched = 0;
                if !std::mem::take(&mut self.overlong) {
                    return self.buffer.get(start..start + length);
                }
                continue;
            }
            searched = there.len();
            if searched == LINE {
                (self.start, self.end) = (0, 0);
                searched = 0;
                if !std::mem::replace(&mut self.overlong, true) {
                    return Some(&self.buffer);
                }
            }
            if !self.fill() {
                let last = self.start..self.end;
                (self.start, self.end) = (0, 0);
                let rest_of_overlong = std::mem::take(&mut self.overlong);
                return self.buffer.get(last).filter(|last| !last.is_empty() && !rest_of_overlong);
            }
        }
    }

    /// Reads more bytes; false at the end.
    fn fill(&mut self) -> bool {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        let Some(room) = self.buffer.get_mut(self.end..) else { return false };
        let read = loop {
            match self.from.read(room) {
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                other => break other.unwrap_or(0),
            }
        };
        self.end += read;
        read > 0
    }
}

/// Passes every line of a file to `show`; none if it cannot be opened.
pub(crate) fn each(path: &Path, mut show: impl FnMut(&[u8])) {
    let Some(mut lines) = Lines::open(path) else { return };
    while let Some(line) = lines.next() {
        show(line);
    }
}

/// Returns the first `Some` of `read` for a line of the file.
pub(crate) fn find<T>(path: &Path, mut read: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut lines = Lines::open(path)?;
    loop {
        if let Some(found) = read(lines.next()?) {
            return Some(found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns at most this many bytes per read.
    struct Drip<'a>(&'a [u8], usize);

    impl Read for Drip<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            let length = self.1.min(out.len()).min(self.0.len());
            let (now, later) = self.0.split_at(length);
            out[..length].copy_from_slice(now);
            self.0 = later;
            Ok(length)
        }
    }

    fn lines(text: &[u8], drip: usize) -> Vec<Vec<u8>> {
        let mut lines = Lines::new(Drip(text, drip));
        std::iter::from_fn(|| lines.next().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn reads_the_same_lines_from_any_pieces() {
        let text = b"one\n\nthree\nno newline";
        for drip in [1, 2, 3, 5, 100] {
            assert_eq!(lines(text, drip), [&b"one"[..], b"", b"three", b"no newline"]);
        }
        assert!(lines(b"", 9).is_empty());
    }

    #[test]
    fn an_overlong_line_is_truncated_and_the_next_line_is_whole() {
        for over in [0, 1, 2, LINE - 1, LINE, LINE + 1, 3 * LINE] {
            let mut text = vec![b'x'; LINE + over];
            text.extend(b"\nnext\n");
            for drip in [777, LINE, LINE * 9] {
                let lines = lines(&text, drip);
                assert_eq!(lines.len(), 2, "{over} {drip}");
                assert_eq!((lines[0].len(), lines[1].as_slice()), (LINE, &b"next"[..]));
            }
            text.truncate(LINE + over);
            assert_eq!(lines(&text, 4096).len(), 1);
        }
    }
}
