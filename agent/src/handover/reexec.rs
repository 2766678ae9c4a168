//! Re-executes the program in this process. Process id, arguments and environment stay the same, so
//! no service manager notices. exec(2) closes all descriptors except the standard ones and the
//! listener. The host is not notified; what it sent to this agent is in `/run/mote`.
//!
//! After an initramfs, also follows process 1 into the root file system (switch_root).

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{self, CWD, OFlags, fstat, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{chroot, fchdir};

use crate::built;
use crate::options::{INITRAMFS, LEFT};
use crate::runtime::{log, notify};
use crate::sys::{self, SELF, file};

/// First byte of `argv[0]` by which systemd recognises what it must not kill when it leaves the
/// initramfs (<https://systemd.io/ROOT_STORAGE_DAEMONS/>).
const SURVIVES_SYSTEMD: u8 = b'@';

/// How this start differs from the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It does not, but the program's file may be newer.
    Same,
    /// systemd must not kill the agent when it leaves the initramfs.
    Spared,
    /// The agent is in the real root, where it is like any other process.
    Left,
}

/// Re-executes the program; returns only on failure, which it logs.
#[cold]
pub(crate) fn start(mode: Mode) {
    let arguments: Vec<_> = arguments(mode).collect();
    let arguments: Vec<_> = arguments.iter().map(CString::as_c_str).collect();
    // In the new root, that path may belong to another program.
    let newer = if mode == Mode::Left { None } else { path() };
    // Restarts the watchdog's interval.
    notify::watchdog();
    let error = sys::reexec(newer.as_deref().into_iter().chain([SELF]), &arguments);
    log::error(format_args!("cannot re-exec: {error}"));
}

pub(crate) fn is_spared() -> bool {
    sys::arguments().next().is_some_and(|name| name.as_bytes().first() == Some(&SURVIVES_SYSTEMD))
}

/// Returns the path of this program's file, which an upgrade replaces.
fn path() -> Option<CString> {
    let link = file::readlink("/proc/self/exe".as_ref()).ok()?;
    CString::new(file::program(&link)).ok()
}

fn arguments(mode: Mode) -> impl Iterator<Item = CString> {
    sys::arguments().enumerate().filter_map(move |(at, word)| {
        let word = word.as_bytes();
        let word = match mode {
            Mode::Spared if at == 0 => [&[SURVIVES_SYSTEMD], word].concat(),
            Mode::Left if at == 0 => {
                word.strip_prefix(&[SURVIVES_SYSTEMD]).unwrap_or(word).to_vec()
            }
            Mode::Left if word == INITRAMFS.as_bytes() => LEFT.into(),
            Mode::Same | Mode::Spared | Mode::Left => word.to_vec(),
        };
        CString::new(word).ok()
    })
}

/// Device and inode of process 1's root when the agent was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OldRoot(Option<(u64, u64)>);

impl OldRoot {
    pub(crate) fn now() -> Self {
        let root = if built::INITRAMFS { root_of_init() } else { None };
        Self(root.and_then(|root| id(&root)))
    }

    /// Follows process 1 if it has left this root; returns whether it has. Never waits.
    pub(crate) fn left(self) -> bool {
        let Some(new) = root_of_init() else { return false };
        let id = id(&new);
        if self.0.is_none() || id.is_none() || id == self.0 {
            return false;
        }
        match fchdir(&new).and_then(|()| chroot(".")) {
            Ok(()) => log::info(format_args!("left the initramfs; continuing in the new root")),
            Err(error) => log::error(format_args!("cannot enter the new root: {error}")),
        }
        true
    }
}

fn id(root: &OwnedFd) -> Option<(u64, u64)> {
    fstat(root).ok().map(|about| (about.st_dev, about.st_ino))
}

fn root_of_init() -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = |proc: &OwnedFd| openat(proc, "1/root", flags, fs::Mode::empty()).ok();
    if let Ok(proc) = openat(CWD, "/proc", flags, fs::Mode::empty())
        && let Some(root) = root(&proc)
    {
        return Some(root);
    }
    // `/proc` was moved or unmounted. It is not held open, because an initramfs may unmount it.
    let proc = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&proc).ok()?;
    root(&fsmount(&proc, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?)
}
