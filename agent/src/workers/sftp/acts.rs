//! What a session has done, for the audit: a line for each change, and one with its counts at the end.

use std::fmt::Write;

use mote_core::sftp::request::{OpenFlags, Request};

use crate::runtime::log::audit::{self, Quoted};

/// What a session has done.
pub(super) struct Acts {
    /// Files and directories opened to be read.
    reads: u64,
    /// Changes, each of which has a line unless there were too many.
    changes: u64,
    /// Bytes written.
    written: u64,
    session: u32,
}

impl Acts {
    /// Notes the beginning of a session. It is named by its process, whose lines these are.
    pub(super) fn begin() -> Self {
        let session = std::process::id();
        audit::note(format_args!("sftp session={session} begins"));
        Self { reads: 0, changes: 0, written: 0, session }
    }

    /// Counts a request that was carried out, and notes it if it has changed something.
    #[inline(never)] // its size
    pub(super) fn did(&mut self, request: &Request<'_>) {
        const CHANGE: u32 = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
        let (what, path, to): (_, &[u8], &[u8]) = match request {
            Request::Write { data, .. } => {
                self.written = self.written.saturating_add(u64::try_from(data.len()).unwrap_or(0));
                return;
            }
            Request::Open { path, flags, .. } if flags.has(CHANGE) => ("write", path, b""),
            Request::Open { .. } | Request::Opendir { .. } => {
                self.reads += 1;
                return;
            }
            Request::Fsetstat { .. } => {
                self.changes += 1;
                return;
            }
            Request::Remove { path } => ("remove", path, b""),
            Request::Rmdir { path } => ("rmdir", path, b""),
            Request::Mkdir { path, .. } => ("mkdir", path, b""),
            Request::Setstat { path, .. } | Request::Lsetstat { path, .. } => {
                ("setstat", path, b"")
            }
            Request::Rename { from, to } | Request::PosixRename { from, to } => {
                ("rename", from, to)
            }
            Request::Hardlink { from, to } => ("link", from, to),
            Request::Symlink { target, link } => ("symlink", target, link),
            Request::Close { .. }
            | Request::Read { .. }
            | Request::Readdir { .. }
            | Request::Realpath { .. }
            | Request::Readlink { .. }
            | Request::Stat { .. }
            | Request::Lstat { .. }
            | Request::Fstat { .. }
            | Request::Statvfs { .. }
            | Request::Fstatvfs { .. }
            | Request::Fsync { .. }
            | Request::Limits
            | Request::Unknown => return,
        };
        self.changes += 1;
        let session = self.session;
        let mut paths = Quoted(&String::from_utf8_lossy(path)).to_string();
        if !to.is_empty() {
            let _infallible = write!(paths, " {}", Quoted(&String::from_utf8_lossy(to)));
        }
        audit::note(format_args!("sftp session={session} {what} {paths}"));
    }
}

impl Drop for Acts {
    fn drop(&mut self) {
        let Self { reads, changes, written, session } = self;
        audit::note(format_args!(
            "sftp session={session} ends: {reads} opened to read, {changes} changes, {written} bytes written"
        ));
    }
}
