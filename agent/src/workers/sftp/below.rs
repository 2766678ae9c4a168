//! Limits this process to some directories, at their usual paths, in a root directory that has nothing else. It is
//! made in a mount namespace of its own, so that no symbolic link and no `..` leads out, whatever the request, nor
//! does a directory that is moved away meanwhile. What is mounted below one of them is not there: of a `/proc`, each
//! process's `root` would lead out.

use std::ffi::{CString, OsStr};
use std::fs::create_dir_all;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::statfs;
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_remount,
};
use rustix::process::{chdir, chroot};

use crate::guest_path::{PROC, by_descriptor, enter};
use crate::runtime::run_dir;
use crate::sys;

/// Replaces the root directory by one with these directories alone; empty names are skipped. Symbolic links in
/// their paths are followed only if root alone can change them. `at` is the directory that it works on.
///
/// # Errors
/// What failed. The process can then still reach everything.
pub(super) fn confine<'b>(root: &Path, below: &'b [PathBuf], at: &mut &'b Path) -> io::Result<()> {
    let place = path(root.join(run_dir::DIRECTORY))?;
    sys::own_mounts()?;
    // What the guest unmounts is unmounted here too, so that it is not busy; what is mounted here stays here.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"tmpfs", &*place, c"tmpfs", flags, Some(c"mode=755"))?;
    chdir(&*place)?;
    for directory in below.iter().filter(|one| !one.as_os_str().is_empty()) {
        *at = directory;
        let text = directory.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let opened = enter(Path::new("/"), text, false)?;
        let shown = [b".", text.as_bytes()].concat();
        create_dir_all(OsStr::from_bytes(&shown))?;
        let (open, shown) = (path(by_descriptor(&opened))?, CString::new(shown)?);
        mount_bind(&*open, &*shown)?;
        mount_change(&*shown, MountPropagationFlags::PRIVATE)?;
        // Once more: until now what is mounted there in the guest has come here too.
        mount_bind(&*shown, &*shown)?;
        let about = statfs(&*shown)?;
        if i128::from(about.f_type) == i128::from(PROC) {
            return Err(io::Error::other("it is of /proc"));
        }
        // A device node is none there, whichever name leads to it. What is read-only stays so.
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
