//! `run`: runs a command in a temporary VM. The host, the client of QEMU's monitor and the client of
//! the agent are in this process.
//!
//! ```text
//! machine: the VM ─▶ running_vm: starts it ─▶ course: until it ends ─▶ outcome: code, messages, files
//!                                        guest: files, command, files (a thread)
//! ```

#![forbid(unsafe_code)]
#![allow(
    missing_debug_implementations,
    missing_docs,
    reason = "internal crate: nothing prints these types, and some names need no comment"
)]
#![allow(clippy::disallowed_methods, reason = "only for the module below that reads from guests")]

mod accel;
pub mod args;
pub mod boot;
mod check;
mod child;
mod course;
#[deny(clippy::disallowed_methods)]
mod guest;
mod machine;
mod matrix;
mod one;
mod outcome;
mod retry_policy;
mod running_vm;
mod share;

pub use self::child::become_another;

use anyhow::Result;

use self::args::RunArgs;
pub use self::outcome::NOT_RUN;
use mote_client::common::printable::complain;

/// Runs the command and returns the exit code. Errors that are not the command's are printed and
/// have a code of their own.
pub fn run(args: &RunArgs) -> u8 {
    checked(args).unwrap_or_else(|error| {
        complain(&format!("{error:#}"));
        NOT_RUN
    })
}

fn checked(args: &RunArgs) -> Result<u8> {
    if let Some(one) = matrix::only(args)? {
        return one::run(&one);
    }
    check::outputs(args)?;
    if args.vm.kernel.len() > 1 && !args.dry_run {
        check::inputs(args)?;
        return matrix::run(args);
    }
    one::run(args)
}
