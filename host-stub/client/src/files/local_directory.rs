//! Opens all local files that are written while a guest has influence: the targets of pulls, and
//! the reports of a run, which may be in such a target. It follows no symbolic link, because an
//! earlier pull may have created it for the guest. It opens each entry by a single name relative to
//! its directory's descriptor, so replacing a directory in the meantime has no effect.
//! A pull replaces what it finds and never writes through it.
//!
//! clippy.toml forbids the modules that pull to use `std`'s functions that open for writing.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use anyhow::{Context, Result, bail};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, chmodat, fstat, mkdirat, openat, readlinkat, stat,
    statat, symlinkat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{geteuid, umask};

use super::session::local;

#[derive(Debug)]
pub struct LocalDirectory {
    descriptor: OwnedFd,
    is_new: bool,
    path: PathBuf,
}

/// Flags for directories. With `O_PATH` a parent need not be readable.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
/// The mode of a directory until it is filled.
const UNFINISHED: Mode = Mode::RWXU;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    Make,
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The target is a directory only if one exists, or if its name ends with a slash.
    Any,
    /// The target is always a directory.
    Directory,
}

/// Where a file goes: a directory and a name in it. The guest's root has no name (`None`).
pub type Place<'a> = (LocalDirectory, Option<&'a OsStr>);

/// Returns where the guest's file `from` goes if the target is `to`: below `to` if that is a
/// directory.
pub fn place<'a>(
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
        // The link is not replaced, because the user may have created it.
        Ok(FileType::Symlink) if leads_to_directory() => bail!(is_a_link(to)),
        _ if target == Target::Any && !is_named_so => (above, Some(name)),
        Err(Errno::NOENT) if missing == Missing::Make => {
            (above.made(name, Mode::from(0o777))?, from.file_name())
        }
        _ => (above.existing(name)?, from.file_name()),
    })
}

pub fn report(path: &Path) -> Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from(0o666);
    let opened = match report_place(path)? {
        // A pipe without a reader is an error. Do not wait: another user may have created it.
        Some((above, name)) => {
            let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK;
            openat(&above.descriptor, name, flags, mode)
        }
        None => openat(CWD, path, flags, mode),
    };
    Ok(opened.with_context(|| local(path))?.into())
}

/// Returns the place of a report, or `None` if it is in `/dev` or `/dev/fd`, such as `/dev/stdout`.
/// Links are followed only there. `/dev/shm` is not exempt, because a pull may write to it.
pub fn report_place(path: &Path) -> Result<Option<(LocalDirectory, &OsStr)>> {
    let above = path.parent().unwrap_or(Path::new(""));
    let is_device = ["/dev", "/dev/fd"].map(Path::new).contains(&above);
    let Some(name) = path.file_name().filter(|_| !is_device) else { return Ok(None) };
    let above = LocalDirectory::open(above, Missing::Refuse)?;
    if above.kind(name) == Ok(FileType::Symlink) {
        bail!(is_a_link(path));
    }
    Ok(Some((above, name)))
}

fn is_a_link(path: &Path) -> String {
    format!(
        "{} is a symbolic link here and is not followed, because a guest may have created it; if \
         you did, give the path that it points to (realpath)",
        local(path)
    )
}

fn is(mode: u32, kind: FileType) -> bool {
    FileType::from_raw_mode(mode) == kind
}

/// Makes a path relative if it begins with the current directory (`PWD`), so that links in that
/// directory's path are not followed again and cannot lead elsewhere.
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
    pub fn open(path: &Path, missing: Missing) -> Result<Self> {
        /// Maximum number of links in a path, as in Linux.
        const LINKS: usize = 40;
        let directory = Self::root(".")?.walked(&from_here(path), missing, LINKS)?;
        Ok(Self { path: path.to_owned(), ..directory })
    }

    fn root(path: &str) -> Result<Self> {
        let descriptor = openat(CWD, path, DIRECTORY, Mode::empty()).context(path.to_owned())?;
        Ok(Self { descriptor, is_new: false, path: path.into() })
    }

    fn walked(self, path: &Path, missing: Missing, links: usize) -> Result<Self> {
        let mut directory = self;
        for component in path.components() {
            directory = match component {
                Component::CurDir | Component::Prefix(_) => continue,
                Component::RootDir => Self::root("/")?,
                Component::ParentDir => directory.existing("..".as_ref())?,
                Component::Normal(name) => match (directory.link_of_root(name), missing) {
                    (Some(to), _) if links > 0 => directory.walked(&to, missing, links - 1)?,
                    (_, Missing::Make) => directory.made(name, Mode::from(0o777))?,
                    (_, Missing::Refuse) => directory.existing(name)?,
                },
            };
        }
        Ok(directory)
    }

    /// Returns the target of a link that only root can have created, such as `/home`: only root can
    /// write to its directory.
    fn link_of_root(&self, name: &OsStr) -> Option<PathBuf> {
        let about = fstat(&self.descriptor).ok()?;
        let is_roots = about.st_uid == 0 && about.st_mode & 0o022 == 0 && !geteuid().is_root();
        let link = readlinkat(&self.descriptor, name, Vec::new()).ok().filter(|_| is_roots)?;
        Some(OsString::from_vec(link.into_bytes()).into())
    }

    pub(super) fn directory(&self, name: &OsStr) -> Result<Self> {
        self.place(name)?;
        self.made(name, UNFINISHED)
    }

    fn made(&self, name: &OsStr, mode: Mode) -> Result<Self> {
        match mkdirat(&self.descriptor, name, mode) {
            Ok(()) => Ok(Self { is_new: true, ..self.existing(name)? }),
            Err(Errno::EXIST) => self.existing(name),
            Err(error) => Err(error).with_context(|| local(&self.path.join(name))),
        }
    }

    fn existing(&self, name: &OsStr) -> Result<Self> {
        let path = self.path.join(name);
        match openat(&self.descriptor, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Ok(Self { descriptor, is_new: false, path }),
            Err(Errno::NOTDIR | Errno::LOOP) if self.kind(name) == Ok(FileType::Symlink) => {
                bail!(is_a_link(&path))
            }
            Err(error) => Err(error).with_context(|| local(&path)),
        }
    }

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

    pub(super) fn file(&self, name: &OsStr, mode: u32) -> Result<File> {
        let path = self.make_room(name)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(&self.descriptor, name, flags, Mode::from(mode & 0o777));
        Ok(opened.with_context(|| local(&path))?.into())
    }

    pub(super) fn link(&self, name: &OsStr, to: &Path) -> Result<()> {
        let path = self.make_room(name)?;
        symlinkat(to, &self.descriptor, name).with_context(|| local(&path))
    }

    /// Sets the mode of a full directory; an earlier one might forbid writing. A directory that
    /// existed before keeps its mode.
    pub(super) fn finish(&self, mode: u32) -> Result<()> {
        // The umask can only be read by setting it, for all threads of the process.
        static UMASK: LazyLock<Mode> = LazyLock::new(|| {
            let mask = umask(UNFINISHED.complement());
            umask(mask);
            mask
        });
        let mode = Mode::from(mode & 0o777).difference(*UMASK);
        let changed = self.is_new.then(|| chmodat(&self.descriptor, ".", mode, AtFlags::empty()));
        changed.unwrap_or(Ok(())).with_context(|| local(&self.path))
    }

    fn make_room(&self, name: &OsStr) -> Result<PathBuf> {
        let path = self.place(name)?;
        match self.kind(name) {
            Err(Errno::NOENT) => Ok(path),
            Ok(FileType::RegularFile | FileType::Symlink) => {
                let removed = unlinkat(&self.descriptor, name, AtFlags::empty());
                removed.with_context(|| local(&path))?;
                Ok(path)
            }
            Ok(FileType::Directory) => bail!("{} is a directory on this machine", local(&path)),
            Ok(_) => bail!("{} is neither a file nor a link on this machine", local(&path)),
            Err(error) => Err(error).with_context(|| local(&path)),
        }
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }

    pub(super) fn kind(&self, name: &OsStr) -> Result<FileType, Errno> {
        let about = statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(FileType::from_raw_mode(about.st_mode))
    }

    /// Returns the path of an entry. A name with slashes, `.` or `..` is an error.
    fn place(&self, name: &OsStr) -> Result<PathBuf> {
        match Path::new(name).components().collect::<Vec<_>>()[..] {
            [Component::Normal(only)] if only == name => Ok(self.path.join(name)),
            _ => bail!("{} is not a single path component", local(Path::new(name))),
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "the files are a test's own")]
mod tests {
    use super::*;

    #[test]
    fn accepts_only_single_names() {
        let here = LocalDirectory::open(Path::new(""), Missing::Refuse).unwrap();
        assert_eq!(here.place("a".as_ref()).unwrap(), Path::new("a"));
        for name in ["", ".", "..", "/", "a/b", "/a", "a/", "a/.."] {
            assert!(here.place(name.as_ref()).is_err(), "{name:?}");
        }
    }
    #[test]
    fn a_report_below_dev_follows_links_to_devices_only() {
        let shared = Path::new("/dev/shm");
        if !shared.is_dir() {
            return;
        }
        let directory = tempfile::tempdir_in(shared).unwrap();
        let [link, victim] = ["link", "victim"].map(|name| directory.path().join(name));
        std::fs::write(&victim, "mine").unwrap();
        std::os::unix::fs::symlink(&victim, &link).unwrap();
        for path in [link, "/dev/../dev/shm".into(), directory.path().join("../../fd/1")] {
            assert!(report(&path).is_err(), "{}", path.display());
        }
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "mine");
    }

    #[test]
    fn follows_links_that_only_root_can_create() {
        use std::fs::{Permissions, set_permissions};
        use std::os::unix::fs::PermissionsExt;
        let other = rustix::process::Uid::from_raw(65_534);
        if !geteuid().is_root() {
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir_all(at("real/open/there")).unwrap();
        for (link, to) in [("home", "real"), ("real/open/in", "there"), ("loop", "loop")] {
            std::os::unix::fs::symlink(to, at(link)).unwrap();
        }
        std::os::unix::fs::symlink(at("real/open/in"), at("through")).unwrap();
        set_permissions(at("real/open"), Permissions::from_mode(0o777)).unwrap();
        set_permissions(directory.path(), Permissions::from_mode(0o755)).unwrap();
        let opens = |path: &str| LocalDirectory::open(&at(path), Missing::Refuse).is_ok();
        assert!(opens("real/open/there") && !opens("home/open"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Changes the user of this thread only.
                rustix::thread::set_thread_res_uid(other, other, other).unwrap();
                assert!(opens("home/open/there") && opens("home"));
                // Other users can have created the links in these paths.
                assert!(!opens("home/open/in") && !opens("through") && !opens("loop"));
            });
        });
    }

    #[test]
    fn limits_a_new_directorys_mode_and_keeps_existing_ones() {
        use std::fs::Permissions;
        use std::os::unix::fs::{MetadataExt, PermissionsExt};
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::create_dir(at("there")).unwrap();
        std::fs::set_permissions(at("there"), Permissions::from_mode(0o700)).unwrap();
        std::fs::create_dir(at("usual")).unwrap();
        let here = LocalDirectory::open(directory.path(), Missing::Refuse).unwrap();
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o7777;
        for name in ["there", "new"] {
            here.directory(name.as_ref()).unwrap().finish(0o777).unwrap();
        }
        assert_eq!((mode("there"), mode("new")), (0o700, mode("usual")));
    }

    #[test]
    fn accepts_targets_at_or_below_the_directory() {
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
