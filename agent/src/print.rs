//! Output of commands. A closed or full output is an error for the exit code; `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;

use rustix::io::retry_on_intr;
use rustix::stdio::{stderr, stdout};

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

/// Prints these bytes as they are.
///
/// # Errors
/// Any error of write(2).
pub(crate) fn exact(bytes: &[u8]) -> io::Result<()> {
    Ok(write_all(stdout(), bytes)?)
}

/// Writes all of it.
///
/// # Errors
/// Any error of write(2).
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let count = retry_on_intr(|| rustix::io::write(to, bytes))?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Prints a line to standard error. If that fails, only the exit code tells.
pub(crate) fn complain(text: Arguments<'_>) {
    let mut line = printable(COMPLAINT, true, format_args!("mote-agent: {text}"));
    line.push('\n');
    let _ignored = write_all(stderr(), line.as_bytes());
}
