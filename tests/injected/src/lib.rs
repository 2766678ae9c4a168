//! What code that was injected into a sandboxed agent can and cannot do: as root, a debugger stops
//! the agent and makes its process call the kernel. x86-64 only, because of the registers.
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![cfg(target_arch = "x86_64")]

mod around;
mod attempts;
mod can;
mod ptrace;
mod refused;
mod report;

use std::path::Path;

pub use around::{Around, Way};
use nix::errno::Errno;
pub use ptrace::Injected;
pub use report::Report;

/// Tries everything in this process.
pub fn try_all(injected: &Injected, around: &Around) -> Result<Report, Errno> {
    let mut report = Report::default();
    refused::try_all(injected, &mut report);
    attempts::try_all(injected, around, &mut report)?;
    can::try_all(injected, around, &mut report)?;
    Ok(report)
}

/// Returns whether code in this process can read a file.
pub fn reads(injected: &Injected, file: &Path) -> bool {
    let opened = attempts::open(injected, file, 0);
    opened.inspect(|opened| attempts::close(injected, *opened)).is_ok()
}
