//! Limits of the guest's policy for a session.
//!
//! A session that is limited to directories sees them at their usual paths, in a new root directory
//! in its own mount namespace. So no symbolic link or `..` leads out, nor does a directory that is
//! moved meanwhile. Mounts below the directories are not visible: the `root` links of a `/proc`
//! would lead out.

use std::cell::Cell;
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use mote_core::sftp::attrs::Attrs;
use mote_core::sftp::request::Request;
use mote_core::sftp::{MODES, PLAIN_MODES};
use rustix::fs::statfs;
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::process::{chdir, chroot};

use crate::guest_path::{PROC, by_descriptor, enter};
use crate::options::command::Sftp;
use crate::runtime::{io_error, log, make_directory, run_dir};
use crate::sys::{self, become_user, sandbox};
use crate::workers::sftp::attributes::{self, Target};
use crate::workers::sftp::refusal::Refusal;

/// Capabilities of a session that is limited to directories (`linux/capability.h`): CHOWN,
/// DAC_OVERRIDE, DAC_READ_SEARCH and FOWNER, 0 to 3. Without FSETID, a write clears set-user-id.
const CAPABILITIES: u32 = 0xf;

/// A session's rules. Only its first refusal is logged, because a client can cause any number.
pub(super) struct Rules<'h> {
    how: &'h Sftp,
    /// Whether everything is refused, because the session could not be limited.
    closed: bool,
    logged: Cell<bool>,
}

impl<'h> Rules<'h> {
    /// Limits this process to the directories and user of `how`, or else refuses all requests.
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
            "files are read-only"
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
        confine(root, &how.below, at)?;
    }
    let limited = match how.user {
        Some(user) => become_user(user, how.group),
        None => !is_below || sandbox::keep_capabilities(CAPABILITIES),
    };
    if limited { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Replaces the root directory with one that has only these directories; skips empty names. Follows
/// symbolic links in their paths only if root alone can change them. Sets `at` to the directory in
/// progress. Errors: the call that failed. The process can then still reach everything.
fn confine<'b>(root: &Path, below: &'b [PathBuf], at: &mut &'b Path) -> io::Result<()> {
    let place = path(root.join(run_dir::DIRECTORY))?;
    sys::own_mounts()?;
    // Unmounts in the guest propagate here, so that nothing is busy; mounts here do not propagate.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"tmpfs", &*place, c"tmpfs", flags, Some(c"mode=755"))?;
    chdir(&*place)?;
    for directory in below.iter().filter(|one| !one.as_os_str().is_empty()) {
        *at = directory;
        let text = directory.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let opened = enter(Path::new("/"), text, false)?;
        let shown = [b".", text.as_bytes()].concat();
        make_directory(OsStr::from_bytes(&shown).as_ref())?;
        let (open, shown) = (path(by_descriptor(&opened))?, CString::new(shown)?);
        mount_bind(&*open, &*shown)?;
        mount_change(&*shown, MountPropagationFlags::PRIVATE)?;
        // Bind it again, because until now, mounts in the guest have propagated here.
        mount_bind(&*shown, &*shown)?;
        let about = statfs(&*shown)?;
        if i128::from(about.f_type) == i128::from(PROC) {
            return Err(io_error("it is in /proc"));
        }
        // Device nodes have no effect there. A read-only directory stays read-only.
        let mut flags = flags | MountFlags::BIND;
        if i128::from(about.f_flags) & i128::from(MountFlags::RDONLY.bits()) != 0 {
            flags |= MountFlags::RDONLY;
        }
        mount_remount(&*shown, flags, c"")?;
    }
    mount_remount(c".", flags | MountFlags::BIND | MountFlags::RDONLY, c"")?;
    chroot(c".")?;
    Ok(chdir(c"/")?)
}

fn path(path: PathBuf) -> io::Result<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}
