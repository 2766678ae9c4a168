//! Reads files of `/proc` and `/sys`, which may have any length, line by line in constant memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use crate::sys::file::{self, OFlags};

/// Maximum length of a line that is returned whole, in bytes; a longer one is truncated. A mount
/// with two paths of 4 KiB fits, unless most of their bytes are escaped.
const LINE: usize = 16 * 1024;
/// Read size, in bytes.
const PIECE: usize = 4 * 1024;

pub(crate) struct Lines {
    from: BufReader<File>,
    line: Vec<u8>,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Option<Self> {
        let file = file::open(path, OFlags::RDONLY).ok()?;
        Some(Self { from: BufReader::with_capacity(PIECE, file), line: Vec::new() })
    }

    /// Returns the next line, without its newline. A read error counts as the end.
    pub(crate) fn next(&mut self) -> Option<&[u8]> {
        self.line.clear();
        let _end = self.from.by_ref().take(LINE as u64).read_until(b'\n', &mut self.line);
        if self.line.is_empty() {
            return None;
        }
        if self.line.pop_if(|last| *last == b'\n').is_none() && self.line.len() == LINE {
            let _end = self.from.skip_until(b'\n');
        }
        Some(&self.line)
    }
}

/// Passes a file's lines to `show` until `show` returns true; none if the file cannot be opened.
fn until(path: &Path, show: &mut dyn FnMut(&[u8]) -> bool) {
    let Some(mut lines) = Lines::open(path) else { return };
    while let Some(line) = lines.next()
        && !show(line)
    {}
}

/// Passes every line of a file to `show`; none if it cannot be opened.
pub(crate) fn each(path: &Path, mut show: impl FnMut(&[u8])) {
    until(path, &mut |line| {
        show(line);
        false
    });
}

/// Returns the first `Some` of `read` for a line of the file.
pub(crate) fn find<T>(path: &Path, mut read: impl FnMut(&[u8]) -> Option<T>) -> Option<T> {
    let mut found = None;
    until(path, &mut |line| {
        found = read(line);
        found.is_some()
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{put, scratch};

    fn lines(text: &[u8]) -> Vec<Vec<u8>> {
        let root = scratch("lines");
        put(&root, "file", text);
        let mut lines = Lines::open(&root.join("file")).unwrap();
        std::iter::from_fn(|| lines.next().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn the_last_line_may_lack_a_newline() {
        let text = b"one\n\nthree\nno newline";
        assert_eq!(lines(text), [&b"one"[..], b"", b"three", b"no newline"]);
        assert!(lines(b"").is_empty());
    }

    #[test]
    fn an_overlong_line_is_truncated_and_the_next_line_is_whole() {
        for over in [0, 1, 2, LINE - 1, LINE, LINE + 1, 3 * LINE] {
            let mut text = vec![b'x'; LINE + over];
            text.extend(b"\nnext\n");
            let found = lines(&text);
            assert_eq!(found.len(), 2, "{over}");
            assert_eq!((found[0].len(), found[1].as_slice()), (LINE, &b"next"[..]));
            text.truncate(LINE + over);
            assert_eq!(lines(&text).len(), 1);
        }
    }
}
