//! A directory here that is filled from a guest. What is in it is reached through its descriptor and by a single
//! name: neither a link in the way nor a directory that is replaced meanwhile leads elsewhere. What is there already
//! is replaced, never written through.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, mkdirat, openat, statat, symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::session::local;

/// Such a directory.
pub(super) struct LocalDirectory {
    descriptor: OwnedFd,
    /// Where it was found, for messages.
    path: PathBuf,
}

/// How directories are opened.
const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// Until a directory has been filled, it is nobody else's business.
const UNFINISHED: Mode = Mode::RWXU;

impl LocalDirectory {
    /// Opens one that the user named: links on the way to it are his.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let opened = openat(CWD, path, DIRECTORY, Mode::empty());
        Ok(Self { descriptor: opened.with_context(|| local(path))?, path: path.to_owned() })
    }

    /// One in it, made unless it is there.
    pub(super) fn directory(&self, name: &OsStr) -> Result<Self> {
        let path = self.place(name)?;
        match mkdirat(&self.descriptor, name, UNFINISHED) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(|| local(&path)),
        }
        match openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Ok(Self { descriptor, path }),
            Err(Errno::NOTDIR | Errno::LOOP) if self.kind(name) == Ok(FileType::Symlink) => {
                bail!("{} is a link here: nothing is written through it", local(&path))
            }
            Err(error) => Err(error).with_context(|| local(&path)),
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
        fchmod(&self.descriptor, Mode::from(mode & 0o777)).with_context(|| local(&self.path))
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
mod tests {
    use super::*;

    #[test]
    fn only_a_single_name_is_a_place_in_it() {
        let here = LocalDirectory::open(Path::new("")).unwrap();
        assert_eq!(here.place("a".as_ref()).unwrap(), Path::new("./a"));
        for name in ["", ".", "..", "/", "a/b", "/a", "a/", "a/.."] {
            assert!(here.place(name.as_ref()).is_err(), "{name:?}");
        }
    }
}
