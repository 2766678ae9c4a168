//! The console.

use std::os::fd::OwnedFd;

use rustix::io::Errno;

use crate::sys::file::{self, OFlags};

/// Opens the console, or `/dev/null` without one. It does not become a controlling terminal.
pub(crate) fn open() -> Result<OwnedFd, Errno> {
    let open = |path: &str| file::open(path.as_ref(), OFlags::RDWR | OFlags::NOCTTY);
    open("/dev/console").or_else(|_| open("/dev/null")).map(OwnedFd::from)
}

/// Makes the console standard input, output and error, if it can be opened.
pub(crate) fn use_it() {
    if let Ok(console) = open() {
        let all =
            [rustix::stdio::dup2_stdin, rustix::stdio::dup2_stdout, rustix::stdio::dup2_stderr];
        for set in all {
            let _as_before = set(&console);
        }
    }
}
