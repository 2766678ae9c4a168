//! `mote-agent report state|metrics`: prints one line of JSON and ends. It may hang in a dead file
//! system instead of the agent, so it closes standard output after the line: a thread that hangs in
//! the kernel keeps its process, and every open descriptor, alive.

mod filesystems;
pub(crate) mod lines;
pub(crate) mod metrics;
mod state;

use std::fmt;

use mote_core::flavour::Flavour;
use rustix::fs::OFlags;
use rustix::stdio::{dup2_stdout, stdout};

use crate::built;
use crate::options::Options;
use crate::options::command::Report;
use crate::print::{self, write_all};
use crate::runtime::log;
use crate::sys::{fd, file};

#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, report: Report) -> u8 {
    let flavour = options.flavour.unwrap_or(Flavour::Lxd);
    // A file that cannot be opened counts as absent, so first check that enough can be open.
    if let (Err(error), _) | (_, Err(error)) = (fd::pipe(), fd::pipe()) {
        print::complain(format_args!("cannot open files: {error}"));
        return 1;
    }
    let mut out = Pipe::new();
    let done = match report {
        Report::State if built::STATE => state::write(flavour, &options.root, &mut out)
            .and_then(|()| fmt::Write::write_char(&mut out, '\n')),
        Report::Metrics if built::METRICS => metrics::write(flavour, &options.root, &mut out),
        Report::State | Report::Metrics => return built::absent(),
    };
    let done = done.and_then(|()| out.flush());
    if let Err(error) = file::open("/dev/null".as_ref(), OFlags::WRONLY).and_then(dup2_stdout) {
        log::debug(format_args!("cannot close standard output: {error}"));
    }
    if done.is_ok() { 0 } else { 1 }
}

/// Size of the buffer, in bytes: `PIPE_BUF`, up to which a write to a pipe is atomic.
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
