//! `mote-agent sftp-server [-d DIR]`: SFTP 3 on standard input and output, like OpenSSH's
//! `sftp-server` (P§4.4). The agent starts one process per session, so that a dead mount blocks
//! only one session. To try it: `sftp -D "env MOTE_STARTED_BY=agent mote-agent sftp-server"`.
//!
//! The exit code is 0 at the end of input, 1 after an I/O error or a malformed frame. Requests are
//! handled in order, one at a time, in constant memory.
//!
//! Decisions that the draft leaves open:
//! - Only regular files and, for reading only, directories can be opened. On other files offsets
//!   have no meaning, and opening one may have an effect (start a watchdog, rewind a tape) or hang.
//!   Incus opens a path before it asks for its type; READ on a directory fails.
//! - New files are 0644 and new directories 0755 unless the client gives a mode; the umask is 022,
//!   as in both upstreams.
//! - LSTAT, READLINK, REMOVE, RENAME and lsetstat do not follow symbolic links, as in OpenSSH.
//! - RENAME replaces a file, as the Go agents' clients expect; OpenSSH's refuses. Only posix-rename
//!   replaces an empty directory.

mod acts;
mod attributes;
mod files;
mod perform;
mod refusal;
mod rules;
mod session;

use std::fmt::Display;
use std::path::Path;

use rustix::fs::Mode;
use rustix::process::chdir;

use crate::options::command::Sftp;
use crate::runtime::log;
use crate::sys::file::{self, OFlags};
use crate::workers::sftp::rules::Rules;

/// Serves one session until its input ends.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(root: &Path, how: &Sftp) -> u8 {
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let names = file::open("/proc/self/fd".as_ref(), OFlags::PATH | OFlags::DIRECTORY).ok();
    let rules = Rules::apply(root, how);
    if let Some(directory) = &how.directory
        && let Err(error) = file::name(directory).and_then(|name| chdir(&*name))
    {
        return failed(&format_args!("{}: {error}", directory.display()));
    }
    match session::serve(&rules, names.map(Into::into)) {
        Ok(()) => 0,
        Err(why) => failed(&why),
    }
}

fn failed(why: &dyn Display) -> u8 {
    log::error(format_args!("sftp: {why}"));
    1
}
