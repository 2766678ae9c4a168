//! Follows process 1 into the root file system after an initramfs (switch_root).

use std::os::fd::OwnedFd;

use rustix::fs::{CWD, Mode, OFlags, fstat, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{chroot, fchdir};

use crate::built;
use crate::runtime::log;

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
    let root = |proc: &OwnedFd| openat(proc, "1/root", flags, Mode::empty()).ok();
    if let Ok(proc) = openat(CWD, "/proc", flags, Mode::empty())
        && let Some(root) = root(&proc)
    {
        return Some(root);
    }
    // `/proc` was moved to the new root or unmounted. It is not held open, because an initramfs may
    // unmount it.
    let proc = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    fsconfig_create(&proc).ok()?;
    root(&fsmount(&proc, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).ok()?)
}
