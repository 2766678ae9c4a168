//! Runs a program to its end, in processes that have nothing else to do: hooks, and commands that are to succeed.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use mote_core::hostapi::exec::Program;
use rustix::process::{WaitOptions, waitpid};

use crate::sys::{self, PATH, Plan};

/// Pause between two looks whether it has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Runs a program, whose path is the first word, with this input and output; gives its exit code. One that takes longer is
/// killed.
///
/// # Errors
/// The end by a signal, the time, any error of starting it.
#[inline(never)] // its size
pub(crate) fn run(words: &[&CStr], stdio: BorrowedFd<'_>, limit: Duration) -> io::Result<i32> {
    let (child, _report) = sys::spawn(&Plan {
        program: Program { name: words.first().copied().unwrap_or_default(), path: "" },
        arguments: words,
        environment: &[PATH],
        stdio: [stdio; 3],
        directory: Some(c"/"),
        ids: None,
        terminal: false,
    })?;
    let until = sys::since_boot() + limit;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                return status.exit_status().ok_or_else(|| io::Error::other("killed"));
            }
            Ok(None) if sys::since_boot() < until => sys::sleep(LOOK),
            Ok(None) | Err(_) => {
                sys::kill_group(child);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
