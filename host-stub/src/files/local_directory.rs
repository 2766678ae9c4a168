//! Opens everything that is written on this machine while a guest has a say in it: the targets of pulls, and the files
//! that report on a run, which may lie in one. No symbolic link is followed on the way, since an earlier pull may have made
//! it for the guest. What is in a directory is reached through its descriptor and by a single name, so a directory that is
//! replaced meanwhile leads nowhere else. What a pull finds at its place is replaced, never written through.
//!
//! clippy.toml forbids the functions of `std` that open for writing to the modules that pull.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, chmodat, mkdirat, openat, stat, statat, symlinkat,
    unlinkat,
};
use rustix::io::Errno;

use super::session::local;

/// Such a directory.
#[derive(Debug)]
pub(crate) struct LocalDirectory {
    descriptor: OwnedFd,
    /// Where it was found, for messages.
    path: PathBuf,
}

/// How directories are opened: those on the way may be such as this user can enter and not list.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Until a directory has been filled, it is nobody else's business.
const UNFINISHED: Mode = Mode::RWXU;

/// Whether directories that are missing are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Missing {
    Make,
    Refuse,
}

/// Whether a target is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Only if one is there, or its name ends with a slash.
    Any,
    /// It has to be one.
    Directory,
}

/// Where something goes: a name in a directory. Without a name it is the directory's content.
pub(crate) type Place<'a> = (LocalDirectory, Option<&'a OsStr>);

/// Returns where `from` of the guest goes whose target is `to`: below it if that is a directory.
pub(crate) fn place<'a>(
    from: &'a Path,
    to: &'a Path,
    target: Target,
    missing: Missing,
) -> Result<Place<'a>> {
    let Some(name) = to.file_name() else {
        return Ok((LocalDirectory::open(to, missing)?, from.file_name()));
    };
    let above = LocalDirectory::open(to.parent().unwrap_or(Path::new("")), missing)?;
    let is_named_so = to.as_os_str().as_encoded_bytes().ends_with(b"/");
    let leads_to_directory = || stat(to).is_ok_and(|about| is(about.st_mode, FileType::Directory));
    Ok(match above.kind(name) {
        Ok(FileType::Directory) => (above.existing(name)?, from.file_name()),
        // Not replaced either: it may be the user's.
        Ok(FileType::Symlink) if leads_to_directory() => bail!(is_a_link(to)),
        _ if target == Target::Any && !is_named_so => (above, Some(name)),
        Err(Errno::NOENT) if missing == Missing::Make => {
            (above.made(name, Mode::from(0o777))?, from.file_name())
        }
        _ => (above.existing(name)?, from.file_name()),
    })
}

/// Opens a file that reports on a run, emptied.
pub(crate) fn report(path: &Path) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from(0o666);
    let opened = match report_place(path)? {
        // A pipe that nobody reads is an error, and not waited for: another user may have put it there.
        Some((above, name)) => {
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            openat(&above.descriptor, name, flags, mode)
        }
        None => openat(CWD, path, flags, mode),
    };
    Ok(opened.with_context(|| local(path))?.into())
}

/// Returns where such a file is; `None` for devices, which alone are reached through links: `/dev/stdout` is one.
pub(crate) fn report_place(path: &Path) -> Result<Option<(LocalDirectory, &OsStr)>> {
    let Some(name) = path.file_name().filter(|_| !path.starts_with("/dev")) else {
        return Ok(None);
    };
    let above = LocalDirectory::open(path.parent().unwrap_or(Path::new("")), Missing::Refuse)?;
    if above.kind(name) == Ok(FileType::Symlink) {
        bail!(is_a_link(path));
    }
    Ok(Some((above, name)))
}

fn is_a_link(path: &Path) -> String {
    format!(
        "{} is a symbolic link here: nothing is written through it, as a guest may have made it",
        local(path)
    )
}

fn is(mode: u32, kind: FileType) -> bool {
    FileType::from_raw_mode(mode) == kind
}

/// Returns the path from the current directory, if it begins with the name that the shell has for that: links in that name
/// lead to where this process is already.
fn from_here(path: &Path) -> Cow<'_, Path> {
    let below = || {
        let name = PathBuf::from(std::env::var_os("PWD")?);
        let below = path.strip_prefix(&name).ok().filter(|_| name.is_absolute())?;
        let (named, here) = (stat(&name).ok()?, stat(".").ok()?);
        ((named.st_dev, named.st_ino) == (here.st_dev, here.st_ino)).then_some(below)
    };
    below().map_or(Cow::Borrowed(path), |below| Cow::Owned(Path::new(".").join(below)))
}

impl LocalDirectory {
    /// Opens one that the user named.
    pub(crate) fn open(path: &Path, missing: Missing) -> Result<Self> {
        let near = from_here(path);
        let root = if near.is_absolute() { "/" } else { "." };
        let opened = openat(CWD, root, DIRECTORY, Mode::empty()).with_context(|| local(path))?;
        let mut directory = Self { descriptor: opened, path: root.into() };
        for component in near.components() {
            directory = match component {
                Component::RootDir | Component::CurDir | Component::Prefix(_) => continue,
                Component::ParentDir => directory.existing("..".as_ref())?,
                Component::Normal(name) if missing == Missing::Make => {
                    directory.made(name, Mode::from(0o777))?
                }
                Component::Normal(name) => directory.existing(name)?,
            };
        }
        Ok(Self { path: path.to_owned(), ..directory })
    }

    /// One in it, made unless it is there.
    pub(super) fn directory(&self, name: &OsStr) -> Result<Self> {
        self.place(name)?;
        self.made(name, UNFINISHED)
    }

    fn made(&self, name: &OsStr, mode: Mode) -> Result<Self> {
        match mkdirat(&self.descriptor, name, mode) {
            Ok(()) | Err(Errno::EXIST) => self.existing(name),
            Err(error) => Err(error).with_context(|| local(&self.path.join(name))),
        }
    }

    fn existing(&self, name: &OsStr) -> Result<Self> {
        let path = self.path.join(name);
        match openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Ok(Self { descriptor, path }),
            Err(Errno::NOTDIR | Errno::LOOP) if self.kind(name) == Ok(FileType::Symlink) => {
                bail!(is_a_link(&path))
            }
            Err(error) => Err(error).with_context(|| local(&path)),
        }
    }

    /// The file of that name which the user named, also a device that is there.
    pub(super) fn named_file(&self, name: &OsStr, mode: u32) -> Result<File> {
        match self.kind(name) {
            Ok(FileType::BlockDevice | FileType::CharacterDevice) => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let opened = openat(&self.descriptor, name, flags, Mode::empty());
                Ok(opened.with_context(|| local(&self.path.join(name)))?.into())
            }
            _ => self.file(name, mode),
        }
    }

    /// A new file in it.
    pub(super) fn file(&self, name: &OsStr, mode: u32) -> Result<File> {
        let path = self.make_room(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.descriptor, name, flags, Mode::from(mode & 0o777));
        Ok(opened.with_context(|| local(&path))?.into())
    }

    /// A new symbolic link in it, whatever it points to: it is never followed.
    pub(super) fn link(&self, name: &OsStr, to: &Path) -> Result<()> {
        let path = self.make_room(name)?;
        symlinkat(to, &self.descriptor, name).with_context(|| local(&path))
    }

    /// Its permissions, when it is full: one that forbids writing could not be filled.
    pub(super) fn finish(&self, mode: u32) -> Result<()> {
        let changed = chmodat(&self.descriptor, ".", Mode::from(mode & 0o777), AtFlags::empty());
        changed.with_context(|| local(&self.path))
    }

    /// Takes away the file or link of that name, if there is one.
    fn make_room(&self, name: &OsStr) -> Result<PathBuf> {
        let path = self.place(name)?;
        match self.kind(name) {
            Err(Errno::NOENT) => Ok(path),
            Ok(FileType::RegularFile | FileType::Symlink) => {
                let removed = unlinkat(&self.descriptor, name, AtFlags::empty());
                removed.with_context(|| local(&path))?;
                Ok(path)
            }
            Ok(FileType::Directory) => bail!("{} is a directory here", local(&path)),
            Ok(_) => bail!("{} is neither a file nor a link here", local(&path)),
            Err(error) => Err(error).with_context(|| local(&path)),
        }
    }

    fn kind(&self, name: &OsStr) -> Result<FileType, Errno> {
        let about = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(about.st_mode))
    }

    /// The path of a name in it; an error if the name leads elsewhere.
    fn place(&self, name: &OsStr) -> Result<PathBuf> {
        match Path::new(name).components().collect::<Vec<_>>()[..] {
            [Component::Normal(only)] if only == name => Ok(self.path.join(name)),
            _ => bail!("{} is no single name", local(Path::new(name))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "of the files that a test makes")]
mod tests {
    use super::*;

    #[test]
    fn only_a_single_name_is_a_place_in_it() {
        let here = LocalDirectory::open(Path::new(""), Missing::Refuse).unwrap();
        assert_eq!(here.place("a".as_ref()).unwrap(), Path::new("a"));
        for name in ["", ".", "..", "/", "a/b", "/a", "a/", "a/.."] {
            assert!(here.place(name.as_ref()).is_err(), "{name:?}");
        }
    }
    #[test]
    fn no_link_on_the_way_is_followed_and_a_report_only_reaches_devices_through_one() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("real/below")).unwrap();
        std::os::unix::fs::symlink("real", at("link")).unwrap();
        std::os::unix::fs::symlink("real/file", at("file")).unwrap();
        std::fs::write(at("real/file"), "mine").unwrap();
        for missing in [Missing::Make, Missing::Refuse] {
            assert!(LocalDirectory::open(&at("real/below/.."), missing).is_ok());
            for path in ["link", "link/below", "link/new", "real/../link/below"] {
                let error = LocalDirectory::open(&at(path), missing).unwrap_err().to_string();
                assert!(error.contains("link is a symbolic link here"), "{path}: {error}");
            }
        }
        assert!(!at("real/new").exists());
        for path in ["file", "link/file", "link/new"] {
            let error = report(&at(path)).unwrap_err().to_string();
            assert!(error.contains("is a symbolic link here"), "{path}: {error}");
        }
        assert_eq!(std::fs::read_to_string(at("real/file")).unwrap(), "mine");
        report(Path::new("/dev/null")).unwrap();
        report(&at("real/file")).unwrap();
        assert_eq!(std::fs::read_to_string(at("real/file")).unwrap(), "");
    }

    #[test]
    fn a_target_is_the_place_itself_or_below_it() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("f"), "").unwrap();
        std::os::unix::fs::symlink("d", at("to-directory")).unwrap();
        std::os::unix::fs::symlink("f", at("to-file")).unwrap();
        let of = |to: &str, target, missing| {
            let to = at(to);
            let place = place(Path::new("/g/x"), &to, target, missing);
            place.map(|(directory, name)| directory.path.join(name.unwrap()))
        };
        let any = |to: &str| of(to, Target::Any, Missing::Refuse).ok();
        assert_eq!(any("d"), Some(at("d/x")));
        assert_eq!(any("d/"), Some(at("d/x")));
        assert_eq!(any("new"), Some(at("new")));
        assert_eq!(any("to-file"), Some(at("to-file")));
        for to in ["to-directory", "to-directory/", "to-directory/y", "new/", "f/", "no/y"] {
            assert_eq!(any(to), None, "{to}");
        }
        assert!(of("f", Target::Directory, Missing::Make).is_err());
        assert_eq!(of("new", Target::Directory, Missing::Make).unwrap(), at("new/x"));
        assert_eq!(of("a/b/", Target::Any, Missing::Make).unwrap(), at("a/b/x"));
    }
}
