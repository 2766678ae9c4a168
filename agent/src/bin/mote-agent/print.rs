//! What commands print. An output that is closed or full is an exit code; `println!` would panic.

use std::fmt::Arguments;
use std::io::{self, Write, stderr, stdout};

/// To standard output.
///
/// # Errors
/// The system's.
pub(crate) fn out(text: Arguments<'_>) -> io::Result<()> {
    let mut stdout = stdout().lock();
    stdout.write_fmt(text)?;
    stdout.flush()
}

/// To standard error; if nobody listens there, the exit code must do.
pub(crate) fn complain(text: Arguments<'_>) {
    let _unheard = writeln!(stderr(), "mote-agent: {text}");
}
