//! Output of commands. A closed or full output is an error for the exit code; `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write, stderr, stdout};

use crate::runtime::log::printable;

/// Longest complaint, bytes: a host's error text may be as long as its answers. What is longer is cut.
const COMPLAINT: usize = 4 * 1024;

/// Prints to standard output. What could steer a terminal is escaped.
///
/// # Errors
/// Any error of write(2).
pub(crate) fn out(text: Arguments<'_>) -> io::Result<()> {
    exact(printable(usize::MAX, true, text).as_bytes())
}

/// Prints the host's bytes as they are, for a program; for a terminal as [`out`] does.
///
/// # Errors
/// Any error of write(2).
pub(crate) fn passed_on(bytes: &[u8]) -> io::Result<()> {
    if stdout().is_terminal() {
        return out(format_args!("{}", String::from_utf8_lossy(bytes)));
    }
    exact(bytes)
}

fn exact(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Prints a line to standard error. If that fails, only the exit code tells.
pub(crate) fn complain(text: Arguments<'_>) {
    let line = printable(COMPLAINT, true, format_args!("mote-agent: {text}"));
    let _ignored = writeln!(stderr(), "{line}");
}
