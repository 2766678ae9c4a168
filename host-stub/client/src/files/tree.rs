//! Copies files and trees between host and guest. Symbolic links are copied and never followed. The
//! guest is not trusted: its files are written below one local directory (`local_directory`), and
//! memory for its lists is bounded.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, openat, readlinkat, statat};
use rustix::io::Errno;

use super::local_directory::{LocalDirectory, Missing, Place};
use super::session::{self, Session, guest, local};
use super::sftp::client::{self, Entry};
use super::sftp::transfer::{download, upload};
use super::sftp::wire::{Attrs, NO_SUCH_FILE, PERMISSION_DENIED, open};
use crate::common::limits::{LEVELS, LISTING};
use crate::{complain, printable};

/// The owner of pushed files; root by default, as with real hosts.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Owner {
    /// User id of the owner
    #[arg(long)]
    uid: Option<u32>,
    /// Group id of the owner
    #[arg(long)]
    gid: Option<u32>,
}

impl Owner {
    /// Returns the owner to set, or `None` if nothing changes.
    pub fn over(self, now: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let (user, group) = now.unwrap_or((0, 0));
        let is_set = self.uid.is_some() || self.gid.is_some();
        is_set.then(|| (self.uid.unwrap_or(user), self.gid.unwrap_or(group)))
    }
}

/// A push in progress.
pub struct Push<'a> {
    pub session: &'a mut Session,
    pub mode: Option<u32>,
    pub owner: Owner,
    pub unlike: Unlike,
}

impl Push<'_> {
    pub(super) fn file(&mut self, mut file: File, source: &Path, target: &Path) -> Result<()> {
        let here = || local(source);
        let about = file.metadata().with_context(here)?;
        if about.is_dir() {
            bail!("{} is a directory; -r pushes directories", here());
        }
        let mode = self.mode.unwrap_or(about.mode() & 0o7777);
        let name = source.file_name().map_or_else(String::new, |name| name.display().to_string());
        self.stream(&mut file, (&name, about.len()), mode, target)
    }

    /// Pushes a stream. `shown` has its name and length.
    pub(super) fn stream(
        &mut self,
        source: &mut impl Read,
        shown: (&str, u64),
        mode: u32,
        target: &Path,
    ) -> Result<()> {
        // These are the flags that real hosts send.
        let flags = open::READ | open::WRITE | open::CREATE | open::TRUNCATE;
        let (session, there) = (&mut *self.session, || guest(target));
        let handle = match session.open(target, flags, &Attrs::default()) {
            Ok(handle) => handle,
            Err(error) => return Err(why_not_made(session, target, error)),
        };
        let now = session.fstat(&handle).with_context(there)?;
        let owner = self.owner.over(now.owner);
        let attrs = Attrs { mode: Some(mode), owner, ..Attrs::default() };
        let bar = session::bar(shown.0, shown.1);
        let sent = upload(session, &handle, source, |count| bar.inc(count));
        bar.finish_and_clear();
        let result = sent
            .and_then(|_| session.fsetstat(&handle, &attrs))
            .and_then(|()| self.unlike.check(mode, target, || session.fstat(&handle)));
        session.close(handle).with_context(there)?;
        result.with_context(there)
    }

    /// Pushes a tree. Links in its path are not followed: a guest that shares the directory may
    /// have created one since the user named it.
    pub fn tree(&mut self, source: &Path, target: &Path) -> Result<()> {
        let above = LocalDirectory::open(source.parent().unwrap_or(source), Missing::Refuse)?;
        let name = source.file_name().unwrap_or(".".as_ref());
        let kind = above.kind(name).with_context(|| local(source))?;
        if !matches!(kind, FileType::Symlink | FileType::RegularFile | FileType::Directory) {
            bail!("{} is not a file, directory or symbolic link", local(source));
        }
        self.below((above.descriptor(), name, source), target)
    }

    /// Pushes an entry of an open directory; the directory's path may meanwhile lead elsewhere.
    fn below(
        &mut self,
        (above, name, source): (BorrowedFd<'_>, &OsStr, &Path),
        target: &Path,
    ) -> Result<()> {
        let (here, there) = (|| local(source), || guest(target));
        let about = statat(above, name, AtFlags::SYMLINK_NOFOLLOW).with_context(here)?;
        let kind = FileType::from_raw_mode(about.st_mode);
        if kind == FileType::Symlink {
            let link = readlinkat(above, name, Vec::new()).with_context(here)?;
            if self.session.find(target).with_context(there)?.is_some() {
                self.session.remove(target).with_context(there)?;
            }
            let link = Path::new(OsStr::from_bytes(link.to_bytes()));
            return self.session.symlink(link, target).with_context(there);
        }
        if !matches!(kind, FileType::RegularFile | FileType::Directory) {
            self.unlike.special.add(here());
            return Ok(());
        }
        // The file may have become a pipe, and opening that would wait for its other end.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(above, name, flags, Mode::empty()).with_context(here)?);
        let about = file.metadata().with_context(here)?;
        if about.is_file() {
            return self.file(file, source, target);
        }
        let mut names = names(&file).with_context(here)?;
        names.sort();
        if self.session.find(target).with_context(there)?.is_none()
            && let Err(error) = self.session.mkdir(target, &Attrs::default())
        {
            return Err(why_not_made(self.session, target, error));
        }
        for name in names {
            self.below((file.as_fd(), &name, &source.join(&name)), &target.join(&name))?;
        }
        // The mode is set last, because only root can fill a directory that forbids writing.
        let (session, mode) = (&mut *self.session, about.mode() & 0o7777);
        let owner = self.owner.over(session.stat(target).with_context(there)?.owner);
        let attrs = Attrs { mode: Some(mode), owner, ..Attrs::default() };
        session.setstat(target, &attrs).with_context(there)?;
        self.unlike.check(mode, target, || session.stat(target)).with_context(there)
    }
}

/// Adds why a file cannot be created: its directory is missing, or Linux protects another user's
/// file in a sticky directory.
fn why_not_made(session: &mut Session, target: &Path, error: anyhow::Error) -> anyhow::Error {
    /// The sticky bit of a mode.
    const STICKY: u32 = 0o1000;
    let above = target.parent().map(|parent| (parent, session.stat(parent)));
    match (client::code(&error), above) {
        (Some(NO_SUCH_FILE), Some((parent, Err(missing))))
            if client::code(&missing) == Some(NO_SUCH_FILE) =>
        {
            anyhow!("the guest has no directory {}; -p creates it", local(parent))
        }
        (Some(PERMISSION_DENIED), Some((_, Ok(Attrs { mode: Some(mode), owner, .. }))))
            if mode & STICKY != 0
                && let Some((user, _)) = session.lstat(target).ok().and_then(|it| it.owner)
                && user != 0
                && owner.is_some_and(|(above, _)| above != user) =>
        {
            error.context(format!(
                "{}: it belongs to user {user}, and in a sticky directory Linux \
                 (fs.protected_regular) denies it to other users, even root; remove it first",
                guest(target)
            ))
        }
        _ => error.context(guest(target)),
    }
}

fn names(directory: &File) -> Result<Vec<OsString>, Errno> {
    let entries = Dir::read_from(directory)?;
    let name = |entry: DirEntry| OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
    let all = entries.map(|entry| entry.map(name));
    all.filter(|name| !name.as_ref().is_ok_and(|name| name == "." || name == "..")).collect()
}

pub fn make_parents(session: &mut Session, path: &Path) -> Result<()> {
    let above: Vec<&Path> = path.ancestors().collect();
    for directory in above.into_iter().rev() {
        match session.stat(directory) {
            Ok(attrs) if attrs.is_directory() => {}
            Ok(_) => bail!("{} is not a directory", guest(directory)),
            Err(_) => {
                let made = session.mkdir(directory, &Attrs::default());
                made.with_context(|| guest(directory))?;
            }
        }
    }
    Ok(())
}

pub fn pull_file(session: &mut Session, from: &Path, to: &mut impl Write) -> Result<()> {
    let there = || guest(from);
    let attrs = session.stat(from).with_context(there)?;
    if attrs.is_directory() {
        bail!("{} is a directory; -r pulls directories", there());
    }
    let handle = session.open(from, open::READ, &Attrs::default()).with_context(there)?;
    let name = from.file_name().map_or_else(String::new, |name| name.display().to_string());
    let bar = session::bar(&name, attrs.size.unwrap_or(0));
    let received = download(session, &handle, to, |count| bar.inc(count));
    bar.finish_and_clear();
    // After a failure, answers may still be in flight, so the session is unusable.
    received.with_context(there)?;
    session.close(handle).with_context(there)
}

pub fn pull_one(session: &mut Session, from: &Path, to: Place<'_>) -> Result<()> {
    let attrs = session.stat(from).with_context(|| guest(from))?;
    let (false, (directory, Some(name))) = (attrs.is_directory(), to) else {
        bail!("{} is a directory; -r pulls directories", guest(from));
    };
    let mut file = directory.named_file(name, attrs.permissions().unwrap_or(0o644))?;
    pull_file(session, from, &mut file)
}

/// The remaining budget for a guest's tree: levels, each of which needs a descriptor and a stack
/// frame, and bytes of lists in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    levels: usize,
    bytes: usize,
}

impl Left {
    pub(super) const ALL: Self = Self { levels: LEVELS, bytes: LISTING };

    /// Lists a directory, in which each name may occur once, and returns the budget that is left
    /// below it.
    fn list(self, session: &mut Session, path: &Path) -> Result<(Vec<Entry>, Self)> {
        let there = || guest(path);
        let Some(levels) = self.levels.checked_sub(1) else {
            bail!("{}: the tree is deeper than {LEVELS} directories", there());
        };
        let (entries, cost) = session.list(path, self.bytes).with_context(there)?;
        let twice = entries.windows(2).find(|two| two[0].name == two[1].name);
        if let Some([entry, _]) = twice {
            bail!("{} lists {} twice", there(), printable::name(&entry.name));
        }
        Ok((entries, Self { levels, bytes: self.bytes - cost }))
    }
}

/// A pull in progress.
pub struct Pull<'a> {
    pub session: &'a mut Session,
    pub unlike: Unlike,
}

impl Pull<'_> {
    pub fn tree(&mut self, from: &Path, to: Place<'_>) -> Result<()> {
        match to {
            (above, Some(name)) => self.entry(from, &above, name, Left::ALL),
            (directory, None) => self.content(from, &directory, Left::ALL),
        }
    }

    fn entry(
        &mut self,
        from: &Path,
        above: &LocalDirectory,
        name: &OsStr,
        left: Left,
    ) -> Result<()> {
        let (session, there) = (&mut *self.session, || guest(from));
        let attrs = session.lstat(from).with_context(there)?;
        let mode = attrs.permissions();
        if attrs.is_link() {
            return above.link(name, &session.readlink(from).with_context(there)?);
        }
        if attrs.is_file() {
            return pull_file(session, from, &mut above.file(name, mode.unwrap_or(0o644))?);
        }
        if !attrs.is_directory() {
            if left.levels == LEVELS {
                bail!("{} is not a file, directory or symbolic link", there());
            }
            self.unlike.special.add(local(from));
            return Ok(());
        }
        let directory = above.directory(name)?;
        self.content(from, &directory, left)?;
        directory.finish(mode.unwrap_or(0o755))
    }

    fn content(&mut self, from: &Path, to: &LocalDirectory, left: Left) -> Result<()> {
        let (entries, left) = left.list(self.session, from)?;
        let mut pull = |entry: &Entry| self.entry(&from.join(&entry.name), to, &entry.name, left);
        entries.iter().try_for_each(&mut pull)
    }
}

/// Removes a tree. Links are removed, their targets are not.
pub(super) fn remove(session: &mut Session, path: &Path, left: Left) -> Result<()> {
    if session.lstat(path)?.is_directory() {
        let (entries, left) = left.list(session, path)?;
        for entry in entries {
            remove(session, &path.join(entry.name), left)?;
        }
    }
    session.remove(path)
}

/// Collects names for one line of stderr. A tree may have any number of them.
#[derive(Debug, Default)]
struct Names {
    first: Vec<String>,
    more: usize,
}

impl Names {
    const SHOWN: usize = 8;

    fn add(&mut self, name: String) {
        if self.first.len() < Self::SHOWN {
            self.first.push(name);
        } else {
            self.more += 1;
        }
    }

    fn complain(&self, what: &str) {
        let more = if self.more > 0 { format!(" and {} more", self.more) } else { String::new() };
        if !self.first.is_empty() {
            complain(&format!("{what}: {}{more}", self.first.join(", ")));
        }
    }
}

/// The differences of one push or pull, reported when dropped.
#[derive(Debug, Default)]
pub struct Unlike {
    special: Names,
    bits: Names,
}

impl Drop for Unlike {
    fn drop(&mut self) {
        self.special.complain("skipped, because only files, directories and links can be copied");
        self.bits.complain("the guest did not apply the original's setuid, setgid or sticky bit");
    }
}

/// Mode bits that agents may drop: setuid, setgid, sticky.
const SPECIAL_BITS: u32 = 0o7000;

impl Unlike {
    /// Notes whether a pushed file has its special bits. Calls the server only if one is set.
    fn check(
        &mut self,
        wanted: u32,
        target: &Path,
        ask: impl FnOnce() -> Result<Attrs>,
    ) -> Result<()> {
        let is_kept = |attrs: Attrs| attrs.permissions().is_some_and(|mode| mode == wanted);
        if wanted & SPECIAL_BITS != 0 && !is_kept(ask()?) {
            self.bits.add(format!("{} ({wanted:o})", local(target)));
        }
        Ok(())
    }
}
