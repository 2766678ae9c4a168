//! Output of commands. A closed or full output becomes an exit code; `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, IsTerminal};
use std::os::fd::BorrowedFd;

use rustix::io::retry_on_intr;
use rustix::stdio::{stderr, stdout};

use crate::runtime::log::printable;

/// Maximum length of an error message, in bytes: a host's error text may be long.
const COMPLAINT: usize = 4 * 1024;

/// Prints to standard output, with terminal control characters escaped.
pub(crate) fn out(text: Arguments<'_>) -> io::Result<()> {
    exact(printable(usize::MAX, true, text).as_bytes())
}

/// Prints the host's bytes unchanged to a program, and escaped to a terminal.
pub(crate) fn passed_on(bytes: &[u8]) -> io::Result<()> {
    if stdout().is_terminal() {
        return out(format_args!("{}", String::from_utf8_lossy(bytes)));
    }
    exact(bytes)
}

/// Errors: any error of write(2).
pub(crate) fn exact(bytes: &[u8]) -> io::Result<()> {
    Ok(write_all(stdout(), bytes)?)
}

/// Errors: any error of write(2).
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        let count = retry_on_intr(|| rustix::io::write(to, bytes))?;
        bytes = bytes.get(count..).unwrap_or_default();
    }
    Ok(())
}

/// Prints a line to standard error. If that fails, only the exit code is left.
pub(crate) fn complain(text: Arguments<'_>) {
    let mut line = printable(COMPLAINT, true, format_args!("mote-agent: {text}"));
    line.push('\n');
    let _ignored = write_all(stderr(), line.as_bytes());
}
