//! Limits this process to some directories, at their usual paths, in a root directory that has nothing else. It is
//! made in a mount namespace of its own, so that no symbolic link and no `..` leads out, whatever the request, nor
//! does a directory that is moved away meanwhile.

use std::ffi::{CString, OsStr};
use std::fs::create_dir_all;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::mount::{
    MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{chdir, chroot};

use crate::guest_path::{by_descriptor, enter};
use crate::runtime::run_dir;
use crate::sys;

/// Replaces the root directory by one with these directories alone; empty names are skipped. Symbolic links in
/// their paths are followed only if root alone can change them. `at` is the directory that it works on.
///
/// # Errors
/// What failed. The process can then still reach everything.
pub(super) fn confine<'b>(
    root: &Path,
    below: &'b [PathBuf],
    at: &mut &'b PathBuf,
) -> io::Result<()> {
    let place = path(root.join(run_dir::DIRECTORY))?;
    sys::own_mounts()?;
    // What the guest unmounts is unmounted here too; what is mounted here stays here.
    mount_change(c"/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount(c"tmpfs", &*place, c"tmpfs", flags, Some(c"mode=755"))?;
    for directory in below.iter().filter(|one| !one.as_os_str().is_empty()) {
        *at = directory;
        let text = directory.to_str().ok_or(io::ErrorKind::InvalidInput)?;
        let opened = enter(Path::new("/"), text, false)?;
        let shown = [place.to_bytes(), b"/", text.as_bytes()].concat();
        create_dir_all(OsStr::from_bytes(&shown))?;
        let (open, shown) = (path(by_descriptor(&opened))?, CString::new(shown)?);
        mount_bind_recursive(&*open, &*shown)?;
    }
    mount_remount(&*place, flags | MountFlags::BIND | MountFlags::RDONLY, c"")?;
    chroot(&*place)?;
    Ok(chdir(c"/")?)
}

fn path(path: PathBuf) -> io::Result<CString> {
    Ok(CString::new(path.into_os_string().into_vec())?)
}
