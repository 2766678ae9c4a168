//! `mote-agent report state|metrics`: a process that lives for one answer and may hang in a dead
//! file system, so that the agent need not. One line of JSON on standard output, which is then let
//! go of: a thread that never comes back from the kernel keeps its process from ending, and with it
//! whatever is still open.

use std::fmt;
use std::process::ExitCode;

use mote_agent::flavour::Flavour;
use rustix::fs::{Mode, OFlags, open};
use rustix::stdio::{dup2_stdout, stdout};

use crate::options::{Options, Report};
use crate::{built, log, metrics, state};

/// Bytes written at once: what a pipe takes whole.
const BUFFER: usize = 4096;

/// Writes the report.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, report: Report) -> ExitCode {
    let flavour = options.flavour.unwrap_or(Flavour::Lxd);
    let out = Pipe::new();
    let done = match report {
        Report::State if built::STATE => {
            let mut out = out;
            let line = state::write(flavour, &options.root, &mut out);
            line.and_then(|()| fmt::Write::write_char(&mut out, '\n')).map(|()| out)
        }
        Report::Metrics if built::METRICS => metrics::write(flavour, &options.root, out),
        Report::State | Report::Metrics => return built::absent(),
    };
    let done = done.and_then(|mut out| out.flush());
    if let Err(error) = open("/dev/null", OFlags::WRONLY, Mode::empty()).and_then(dup2_stdout) {
        log::debug(format_args!("cannot close standard output: {error}"));
    }
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Text on its way to standard output.
pub(crate) struct Pipe(Vec<u8>);

impl Pipe {
    /// Nothing written yet.
    pub(crate) fn new() -> Self {
        Self(Vec::with_capacity(BUFFER))
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// If nobody reads any more.
    pub(crate) fn flush(&mut self) -> fmt::Result {
        let mut rest = self.0.as_slice();
        while !rest.is_empty() {
            let written = rustix::io::retry_on_intr(|| rustix::io::write(stdout(), rest));
            let written = written.map_err(|_| fmt::Error)?;
            rest = rest.get(written..).unwrap_or_default();
        }
        self.0.clear();
        Ok(())
    }
}

impl fmt::Write for Pipe {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for piece in text.as_bytes().chunks(BUFFER) {
            if self.0.len() + piece.len() > BUFFER {
                self.flush()?;
            }
            self.0.extend_from_slice(piece);
        }
        Ok(())
    }
}
