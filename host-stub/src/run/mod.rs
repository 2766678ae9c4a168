//! `run`: a command in a VM that is there for it alone. The host, QEMU's monitor and the client are this process.
//!
//! ```text
//! machine: what is booted ─▶ world: it runs ─▶ course: until it ends ─▶ outcome: code, words, files
//!                                              guest: files, the command, files (a thread)
//! ```

mod accel;
pub(crate) mod args;
pub(crate) mod boot;
pub(crate) mod child;
mod console;
mod course;
mod guest;
mod machine;
mod matrix;
mod one;
mod outcome;
mod share;
mod world;

use anyhow::Result;

use self::args::RunArgs;

/// Runs it; gives the exit code.
pub(crate) fn run(args: &RunArgs) -> Result<u8> {
    if let Some(one) = matrix::only(args) {
        return one::run(&one);
    }
    if args.vm.kernel.len() > 1 && !args.dry_run { matrix::run(args) } else { one::run(args) }
}
