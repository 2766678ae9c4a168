//! Limits of the guest's policy for a session.

use std::cell::Cell;
use std::io;
use std::path::Path;

use mote_core::sftp::attrs::Attrs;
use mote_core::sftp::request::Request;
use mote_core::sftp::{MODES, PLAIN_MODES};
use rustix::io::Errno;

use crate::options::command::Sftp;
use crate::runtime::log;
use crate::sys::{become_user, sandbox};
use crate::workers::sftp::attributes::{self, Target};
use crate::workers::sftp::below;
use crate::workers::sftp::refusal::Refusal;

/// Capabilities of a session that is limited to directories (`linux/capability.h`): CHOWN,
/// DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER, 0 to 3. Without FSETID, a write clears set-user-id.
const CAPABILITIES: u32 = 0xf;

/// The rules of a session. Only its first refusal is logged, because a client can cause any number.
pub(super) struct Rules<'h> {
    how: &'h Sftp,
    /// Whether everything is refused, because the session could not be limited.
    closed: bool,
    logged: Cell<bool>,
}

impl<'h> Rules<'h> {
    /// Limits this process to the directories and the user of `how`. If that fails, refuses all
    /// requests.
    pub(super) fn apply(root: &Path, how: &'h Sftp) -> Self {
        let mut at = Path::new("a user");
        let limited = limit(root, how, &mut at);
        if let Err(why) = &limited {
            let at = at.display();
            log::error(format_args!("policy: cannot limit files to {at}: {why}"));
        }
        Self { how, closed: limited.is_err(), logged: Cell::new(false) }
    }

    /// Returns the mode bits that can be set.
    pub(super) fn modes(&self) -> u32 {
        let is_limited = self.how.user.is_some() || !self.how.below.is_empty();
        if is_limited { PLAIN_MODES } else { MODES }
    }

    /// Errors: [`Refusal::Denied`].
    pub(super) fn check(&self, request: &Request<'_>) -> Result<(), Refusal> {
        let why = if self.closed {
            "the guest cannot apply its limit on files; see its log"
        } else if self.how.read_only && request.writes() {
            "files can only be read"
        } else {
            return Ok(());
        };
        if !self.logged.replace(true) {
            log::info(format_args!("policy: refused a file request of the host: {why}"));
        }
        Err(Refusal::Denied(why))
    }

    /// Sets attributes. With a user, the kernel checks the permissions.
    pub(super) fn set(&self, target: Target<'_>, attrs: &Attrs) -> Result<(), Refusal> {
        if self.how.below.is_empty() || self.how.user.is_some() {
            attributes::set(target, attrs)
        } else {
            attributes::set_of_file(target, attrs)
        }
    }

    /// Explains that a missing file may only be hidden.
    pub(super) fn explain(&self, refusal: Refusal) -> Refusal {
        let missing = matches!(refusal, Refusal::System(Errno::NOENT));
        if missing && !self.how.below.is_empty() { Refusal::Hidden } else { refusal }
    }
}

/// Errors: the call that failed; `at` is the directory.
fn limit<'h>(root: &Path, how: &'h Sftp, at: &mut &'h Path) -> io::Result<()> {
    let is_below = !how.below.is_empty();
    if is_below {
        below::confine(root, &how.below, at)?;
    }
    let limited = match how.user {
        Some(user) => become_user(user, how.group),
        None => !is_below || sandbox::keep_capabilities(CAPABILITIES),
    };
    if limited { Ok(()) } else { Err(io::Error::last_os_error()) }
}
