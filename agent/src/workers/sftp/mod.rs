//! `mote-agent sftp-server [-d DIR]`: SFTP 3 on standard input and output, like OpenSSH's `sftp-server`
//! (P§4.4). The agent starts one process for each session, so that a dead mount blocks one session and
//! not the agent. To try it: `sftp -D "env MOTE_STARTED_BY=agent mote-agent sftp-server"`.
//!
//! The exit code is 0 at the end of input, 1 after an I/O error or a malformed frame. Requests are done
//! one at a time, replies come in the same order, and memory is constant whatever the client does.
//!
//! Decisions that the draft leaves open:
//! - Only regular files are opened. On others offsets mean nothing, and opening one can have an effect (a
//!   watchdog starts, a tape rewinds) or hang. A directory can be opened too, for reading only: Incus
//!   opens a path before it asks for its type, and OpenSSH's and the Go agents' servers allow it. READ on
//!   it fails.
//! - New files are 0644 and new directories 0755 unless the client gives a mode, and the umask is 022
//!   whatever the agent's is, as with both upstreams.
//! - Symbolic links are followed where OpenSSH follows them: not by LSTAT, READLINK, REMOVE, RENAME
//!   and lsetstat.
//! - RENAME replaces a file, as the Go agents' server does and their clients expect; OpenSSH's
//!   refuses. Only posix-rename replaces an empty directory.

mod acts;
mod answer;
mod attributes;
mod below;
mod directories;
mod files;
mod handles;
mod paths;
mod perform;
mod refusal;
mod rules;
mod session;

use std::fmt::Display;
use std::path::Path;
use std::process::ExitCode;

use rustix::fs::{Mode, OFlags};

use crate::options::command::Sftp;
use crate::runtime::log;
use crate::workers::sftp::rules::Rules;

/// Serves one session until its input ends.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, how: &Sftp) -> ExitCode {
    // The agent's own umask would make every file private.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let names = rustix::fs::open(c"/proc/self/fd", flags, Mode::empty()).ok();
    let rules = Rules::apply(root, how);
    if let Some(directory) = &how.directory
        && let Err(error) = std::env::set_current_dir(directory)
    {
        return failed(&format_args!("{}: {error}", directory.display()));
    }
    match session::serve(&rules, names) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => failed(&why),
    }
}

fn failed(why: &dyn Display) -> ExitCode {
    log::error(format_args!("sftp: {why}"));
    ExitCode::FAILURE
}
