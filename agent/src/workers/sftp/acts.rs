//! The audit log of an SFTP session: a line for each change, and a summary at the end.

use std::fmt::Write;
use std::os::fd::{AsRawFd, OwnedFd};

use mote_core::sftp::handles::Handles;
use mote_core::sftp::request::{Change, Handle, Request};
use rustix::fs::readlinkat;

use crate::runtime::{log::audit, log::audit::Quoted};
use crate::workers::sftp::perform::{Open, file_or_directory_of};

pub(super) struct Acts {
    /// Number of files and directories opened for reading.
    reads: u64,
    /// Number of changes. Each has a line, except writes to a file that was opened for writing.
    changes: u64,
    written: u64,
    session: u32,
    /// `/proc/self/fd`, which gives open files' paths. Missing if the session is limited to
    /// directories.
    names: Option<OwnedFd>,
}

impl Acts {
    /// Logs the start of a session, which the process id identifies.
    pub(super) fn begin(names: Option<OwnedFd>) -> Self {
        let session = std::process::id();
        audit::note(format_args!("sftp session={session} begins"));
        Self { reads: 0, changes: 0, written: 0, session, names }
    }

    /// Waits until the request may be logged, if it is to be logged.
    pub(super) fn wait(request: &Request<'_>) {
        if request.writes() && !matches!(request, Request::Write { .. }) {
            audit::wait_turn();
        }
    }

    /// Counts a completed request; logs it if it changed something.
    pub(super) fn did(&mut self, request: &Request<'_>, handles: &Handles<Open>) {
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
        let session = self.session;
        if let Request::Fsetstat { handle, .. } = request {
            // The file may have been opened for reading.
            let name = self.name(handles, *handle);
            let name = Quoted(&name);
            return audit::note(format_args!("sftp session={session} setstat {name}"));
        }
        let Some(Change { what, path, to }) = request.change() else { return };
        let mut paths = Quoted(&String::from_utf8_lossy(path)).to_string();
        if let Some(to) = to {
            let _infallible = write!(paths, " {}", Quoted(&String::from_utf8_lossy(to)));
        }
        audit::note(format_args!("sftp session={session} {what} {paths}"));
    }

    /// Returns the path of an open file, or its handle's number without `/proc`.
    fn name(&self, handles: &Handles<Open>, handle: Handle) -> String {
        let named = file_or_directory_of(handles, handle).ok().zip(self.names.as_ref());
        let link = named.and_then(|(file, names)| {
            readlinkat(names, file.as_raw_fd().to_string(), Vec::new()).ok()
        });
        match link {
            Some(path) => String::from_utf8_lossy(path.as_bytes()).into_owned(),
            None => format!("handle {}", handle.0),
        }
    }
}

impl Drop for Acts {
    fn drop(&mut self) {
        let Self { reads, changes, written, session, .. } = self;
        audit::note(format_args!(
            "sftp session={session} ends: {reads} opened to read, {changes} changes, {written} bytes written"
        ));
    }
}
