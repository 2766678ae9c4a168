//! What the guest's policy leaves a session.

use std::cell::Cell;
use std::path::Path;

use mote_core::sftp::request::Request;
use rustix::io::Errno;

use crate::cli::options::Sftp;
use crate::runtime::log;
use crate::workers::sftp::below;
use crate::workers::sftp::refusal::Refusal;

/// The rules of a session, and whether a refusal was logged: a client can cause any number of them.
pub(super) struct Rules<'h> {
    how: &'h Sftp,
    /// Everything is refused: the session cannot be limited as the policy wants it.
    closed: bool,
    logged: Cell<bool>,
}

impl<'h> Rules<'h> {
    /// Limits this process to the directories of `how`. If that fails, all requests are refused.
    pub(super) fn apply(root: &Path, how: &'h Sftp) -> Self {
        let mut closed = false;
        if let [first, ..] = how.below.as_slice() {
            let mut at = first.as_path();
            if let Err(why) = below::confine(root, &how.below, &mut at) {
                let at = at.display();
                log::error(format_args!("policy: files cannot be limited to {at}: {why}"));
                closed = true;
            }
        }
        Self { how, closed, logged: Cell::new(false) }
    }

    /// # Errors
    /// [`Refusal::Denied`] if the policy does not allow the request.
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let why = if self.closed {
            "it limits files, which failed; see the guest's log"
        } else if self.how.read_only && request.writes() {
            "files can only be read"
        } else {
            return Ok(());
        };
        if !self.logged.replace(true) {
            log::info(format_args!("policy: the host was refused a request for files: {why}"));
        }
        Err(Refusal::Denied(why))
    }

    /// Says of a file that is not there that it may only be hidden.
    pub(super) fn explain(&self, refusal: Refusal) -> Refusal {
        let missing = matches!(refusal, Refusal::System(Errno::NOENT));
        if missing && !self.how.below.is_empty() { Refusal::Hidden } else { refusal }
    }
}
