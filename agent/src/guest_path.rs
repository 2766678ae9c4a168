//! Opens paths in the guest that the host names, one component at a time. Follows symbolic links
//! within the root, but only those that root alone can create. The owner of a directory on the way
//! can still replace it, but what was opened stays the same.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mote_core::guest_path::Target;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, fstatfs, mkdirat, openat, readlinkat};
use rustix::io::Errno;

use crate::runtime::io_error;
use crate::sys::file;

/// Maximum number of symbolic links in one path, as in the kernel.
const LINKS: usize = 40;
/// Magic number (statfs(2)) of `/proc`, whose links can lead out of the root.
pub(crate) const PROC: u32 = 0x9fa0;

/// A name in an open directory that was not a symbolic link when it was looked up.
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: CString,
}

/// Resolves a path up to its last name, which need not exist. With `make`, creates missing
/// directories. Errors: a symbolic link that users other than root can modify; any error of open(2)
/// and mkdir(2).
pub(crate) fn find(root: &Path, target: Target<'_>, make: bool) -> io::Result<Place> {
    let top = || file::open(root, directory()).map(OwnedFd::from);
    let mut here = top()?;
    // Depth below the root, and whether only root can modify the path so far.
    let (mut depth, mut trusted) = (0_usize, is_kept(&fstat(&here)?));
    let mut links = 0;
    let mut rest = target.below_root().as_bytes().to_vec();
    loop {
        let end = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
        let mut after = rest.split_off(end);
        let mut name = CString::new(rest)?;
        let is_last = after.iter().all(|byte| *byte == b'/');
        if !is_last {
            after.remove(0);
        }
        rest = after;
        let up = name.as_c_str() == c"..";
        if matches!(name.as_bytes(), b"" | b".") || (up && depth == 0) {
            name = c".".into();
            if !is_last {
                continue;
            }
        }
        if is_last && name.as_c_str() == c"." {
            return Ok(Place { directory: here, name });
        }
        match open_directory(&here, &name, make && !is_last) {
            // If the directory was moved, its parent is another one.
            _ if up && !trusted => return Err(Errno::LOOP.into()),
            Ok(_) | Err(Errno::NOENT) if is_last => return Ok(Place { directory: here, name }),
            Ok(next) => {
                here = next;
                depth = if up { depth - 1 } else { depth + 1 };
                trusted = trusted && is_kept(&fstat(&here)?);
            }
            Err(Errno::NOTDIR | Errno::LOOP) => match link(&here, &name, trusted)? {
                Some(_) if links == LINKS => return Err(Errno::LOOP.into()),
                Some(mut link) => {
                    links += 1;
                    if link.starts_with(b"/") {
                        (here, depth) = (top()?, 0);
                    }
                    link.push(b'/');
                    link.append(&mut rest);
                    rest = link;
                }
                None if is_last => return Ok(Place { directory: here, name }),
                None => return Err(Errno::NOTDIR.into()),
            },
            Err(why) => return Err(why.into()),
        }
    }
}

/// Opens the directory at a path. With `make`, creates it and its missing parents.
/// Errors: as for [`find`]; `InvalidInput` for the root or a path with `..`.
pub(crate) fn enter(root: &Path, target: &str, make: bool) -> io::Result<OwnedFd> {
    let target = Target::parse(target).ok_or(io::ErrorKind::InvalidInput)?;
    let place = find(root, target, make)?;
    Ok(open_directory(&place.directory, &place.name, make)?)
}

fn directory() -> OFlags {
    OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC
}

/// Opens a directory unless it is a symbolic link. With `make`, creates it if missing.
fn open_directory(above: &OwnedFd, name: &CStr, make: bool) -> Result<OwnedFd, Errno> {
    let open = || openat(above, name, directory() | OFlags::NOFOLLOW, Mode::empty());
    match open() {
        Err(Errno::NOENT) if make => match mkdirat(above, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => open(),
            Err(why) => Err(why),
        },
        opened => opened,
    }
}

/// Returns a symbolic link's target; `None` for another file. `trusted`: only root can modify the
/// directories above.
fn link(above: &OwnedFd, name: &CStr, trusted: bool) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let link = openat(above, name, flags, Mode::empty())?;
    let about = fstat(&link)?;
    if FileType::from_raw_mode(about.st_mode) != FileType::Symlink {
        return Ok(None);
    }
    if i128::from(fstatfs(&link)?.f_type) == i128::from(PROC) {
        return Err(Errno::LOOP.into());
    }
    if !trusted || !is_roots(about.st_uid) {
        let path = real_path(above).unwrap_or_default().join(OsStr::from_bytes(name.to_bytes()));
        return Err(io_error(format!(
            "the symbolic link {} is not followed: users other than root can change it",
            path.display()
        )));
    }
    Ok(Some(readlinkat(&link, c"", Vec::new())?.into_bytes()))
}

/// Returns the current path of an open file. Errors: `/proc` is not mounted.
pub(crate) fn real_path(open: &impl AsFd) -> io::Result<PathBuf> {
    Ok(file::readlink(&by_descriptor(open))?)
}

pub(crate) fn by_descriptor(open: &impl AsFd) -> PathBuf {
    format!("/proc/self/fd/{}", open.as_fd().as_raw_fd()).into()
}

/// Returns whether only root, or this process's user, can modify the file; false if it does not
/// exist. False for a symbolic link, whose mode allows all users to write.
pub(crate) fn is_roots_alone(path: &Path) -> bool {
    is_roots_but_for(path, 0o022)
}

/// Returns whether root owns the file and its mode has none of these bits.
pub(crate) fn is_roots_but_for(path: &Path, bits: u32) -> bool {
    file::lstat(path).is_ok_and(|about| is_roots(about.st_uid) && about.st_mode & bits == 0)
}

/// Like [`is_roots_alone`], for known metadata.
pub(crate) fn is_private(about: &Stat) -> bool {
    is_roots(about.st_uid) && about.st_mode & 0o022 == 0
}

/// Returns whether only root can replace root's files in a directory. The directory may be sticky,
/// as the `/` of an initramfs is by default.
fn is_kept(about: &Stat) -> bool {
    is_private(about) || (is_roots(about.st_uid) && about.st_mode & 0o1000 != 0)
}

fn is_roots(uid: u32) -> bool {
    uid == 0 || uid == rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{chmod, scratch};
    use std::fs;
    use std::os::unix::fs::{chown, lchown, symlink};

    const NOBODY: Option<u32> = Some(65_534);

    fn real(root: &Path, target: &str) -> io::Result<PathBuf> {
        real_path(&enter(root, target, true)?)
    }

    #[test]
    fn creates_directories_and_follows_roots_links_within_the_root() {
        let root = scratch("enter");
        let at = |target: &str| real(&root, target);
        assert_eq!(at("mnt/a/b").unwrap(), root.join("mnt/a/b"));
        for (target, link) in [("/mnt", "media"), ("../../../mnt/./a", "up"), ("media/a/", "two")] {
            symlink(target, root.join(link)).unwrap();
        }
        assert_eq!(at("media/./c/").unwrap(), root.join("mnt/c"));
        assert_eq!(at("up//d").unwrap(), root.join("mnt/a/d"));
        assert_eq!(at("two/b/x/y").unwrap(), root.join("mnt/a/b/x/y"));
        symlink("..", root.join("mnt/back")).unwrap();
        assert_eq!(at("mnt/back/e").unwrap(), root.join("e"));
        fs::write(root.join("file"), "").unwrap();
        assert!(at("file/x").is_err() && at("file").is_err());
        symlink("loop", root.join("loop")).unwrap();
        assert!(at("loop").is_err());
        let missing = enter(&root, "none/x", false).unwrap_err();
        assert!(missing.kind() == io::ErrorKind::NotFound && !root.join("none").exists());
        let find = |target| find(&root, Target::parse(target).unwrap(), false).unwrap();
        assert_eq!(find("file").name.as_c_str(), c"file");
        assert_eq!(find("up/file").name.as_c_str(), c"file");
    }

    #[test]
    fn does_not_follow_links_that_users_can_change() {
        if !rustix::process::geteuid().is_root() {
            return mote_machine::skipped("root");
        }
        let root = scratch("others");
        for path in ["etc", "home/user/deep"] {
            fs::create_dir_all(root.join(path)).unwrap();
        }
        let link = |path: &str| symlink("/etc", root.join(path)).unwrap();
        let at = |target: &str| real(&root, target);
        // A link of the user's, in a directory that root owns.
        link("his");
        assert_eq!(at("his/x").unwrap(), root.join("etc/x"));
        lchown(root.join("his"), NOBODY, None).unwrap();
        // Links of root's, in directories where the user can replace them.
        link("home/user/share");
        link("home/user/deep/link");
        link("wide");
        chown(root.join("home/user"), NOBODY, None).unwrap();
        for target in
            ["his", "his/y", "home/user/share", "home/user/share/y", "home/user/deep/link"]
        {
            let why = at(target).unwrap_err().to_string();
            assert!(why.contains("users other than root"), "{why}");
            assert_eq!(why.contains("home/user"), target.starts_with("home"), "{why}");
        }
        assert_eq!(at("wide").unwrap(), root.join("etc"));
        for (mode, followed) in [(0o777, false), (0o775, false), (0o1777, true)] {
            chmod(&root, mode);
            assert_eq!((at("wide").is_ok(), at("his").is_ok()), (followed, false), "{mode:o}");
        }
        // A directory of the user's, unlike a link, is allowed.
        assert_eq!(at("home/user/deep/y").unwrap(), root.join("home/user/deep/y"));
        assert!(!root.join("etc/y").exists());
    }

    #[test]
    fn does_not_follow_links_of_proc() {
        for link in ["cwd", "root", "fd/0"] {
            for target in [format!("proc/self/{link}/mote-x"), format!("proc/self/{link}")] {
                let error = enter(Path::new("/"), &target, true).err();
                let number = error.and_then(|error| error.raw_os_error());
                assert_eq!(number, Some(Errno::LOOP.raw_os_error()), "{target}");
            }
        }
    }
}
