//! What a session has done, for the audit: a line for each change, and one with its counts at the end.

use std::fmt::Write;

use mote_core::sftp::request::{Change, Request};

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
        if let Request::Write { data, .. } = request {
            self.written = self.written.saturating_add(u64::try_from(data.len()).unwrap_or(0));
            return;
        }
        if !request.writes() {
            let opened = matches!(request, Request::Open { .. } | Request::Opendir { .. });
            self.reads += u64::from(opened);
            return;
        }
        self.changes += 1;
        // A file that is open has its line already.
        let Some(Change { what, path, to }) = request.change() else { return };
        let session = self.session;
        let mut paths = Quoted(&String::from_utf8_lossy(path)).to_string();
        if let Some(to) = to {
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
