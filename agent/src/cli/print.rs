//! Output of commands. A closed or full output is an error for the exit code; `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, Write, stderr, stdout};

/// Prints to standard output.
///
/// # Errors
/// Any error of write(2).
pub(crate) fn out(text: Arguments<'_>) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_fmt(text)?;
    stdout.flush()
}

/// Prints a line to standard error. If that fails, only the exit code tells.
pub(crate) fn complain(text: Arguments<'_>) {
    let _ignored = writeln!(stderr(), "mote-agent: {text}");
}
