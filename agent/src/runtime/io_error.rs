//! I/O errors with a text from the agent.

use std::fmt;
use std::io::{self, ErrorKind};

/// Returns an error with this text. `io::Error::other` would link 4 kB: `Debug` of texts, which
/// nothing prints, and its tables of Unicode.
pub(crate) fn io_error(text: impl Into<String>) -> io::Error {
    io_error_of(ErrorKind::Other, text.into())
}

/// Returns an error with this text and kind.
#[inline(never)] // its size
pub(crate) fn io_error_of(kind: ErrorKind, text: String) -> io::Error {
    io::Error::new(kind, Text(text))
}

struct Text(String);

impl fmt::Display for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl std::error::Error for Text {}
