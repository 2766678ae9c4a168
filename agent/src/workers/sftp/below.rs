//! Limits this process to some directories, at their usual paths, in a new root directory in its
//! own mount namespace. So no symbolic link or `..` leads out, nor does a directory that is moved
//! meanwhile. Mounts below the directories are not visible: the `root` links of a `/proc` would
//! lead out.

use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::process::{chdir, chroot};

use crate::guest_path::{PROC, by_descriptor, enter};
use crate::runtime::{make_directory, run_dir};
use crate::sys;

/// Replaces the root directory by one with only these directories; skips empty names. Follows
/// symbolic links in their paths only if root alone can change them. Sets `at` to the directory in
/// progress. Errors: the call that failed. The process can then still reach everything.
pub(super) fn confine<'b>(root: &Path, below: &'b [PathBuf], at: &mut &'b Path) -> io::Result<()> {
    let place = path(root.join(run_dir::DIRECTORY))?;
    sys::own_mounts()?;
    // Unmounts in the guest propagate here, so that file systems are not busy; mounts here do not
    // propagate to the guest.
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
        // Bind again: until now, mounts in the guest have propagated here.
        mount_bind(&*shown, &*shown)?;
        let about = statfs(&*shown)?;
        if i128::from(about.f_type) == i128::from(PROC) {
            return Err(io::Error::other("it is in /proc"));
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
