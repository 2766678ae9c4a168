//! A buffered writer for standard output.

use std::fmt;

use rustix::stdio::stdout;

use crate::print::write_all;

/// Size of the buffer, bytes: `PIPE_BUF`, up to which a write to a pipe is atomic.
const PIPE_BUFFER: usize = 4096;

pub(crate) struct Pipe(Vec<u8>);

impl Pipe {
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(PIPE_BUFFER))
    }

    /// Writes the buffered text. Errors: the reader has closed the pipe.
    pub(crate) fn flush(&mut self) -> fmt::Result {
        let written = write_all(stdout(), &self.0);
        self.0.clear();
        written.map_err(|_| fmt::Error)
    }
}

impl fmt::Write for Pipe {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(PIPE_BUFFER) {
            if self.0.len() + piece.len() > PIPE_BUFFER {
                self.flush()?;
            }
            self.0.extend_from_slice(piece);
        }
        Ok(())
    }
}
