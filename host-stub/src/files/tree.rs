//! Files and trees between here and the guest. A tree's symbolic links stay what they are and are never
//! followed, and a guest is not trusted: what it lists goes below one directory here (`local_directory`), and what is
//! held of its lists is bounded.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use super::local_directory::LocalDirectory;
use super::progress;
use super::session::{Session, guest, local};
use super::sftp::client::{self, Entry, LISTING};
use super::sftp::transfer::{download, upload};
use super::sftp::wire::{Attrs, NO_SUCH_FILE, open};
use crate::common::printable;

/// Who is to own what is pushed; nobody said means root, as with real hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owner {
    /// User.
    pub(crate) user: Option<u32>,
    /// Group.
    pub(crate) group: Option<u32>,
}

impl Owner {
    /// What was said, over what there is. `None` if there is nothing to change.
    pub(crate) fn over(self, now: Option<(u32, u32)>) -> Option<(u32, u32)> {
        if self.user.is_none() && self.group.is_none() {
            return None;
        }
        let (user, group) = now.unwrap_or((0, 0));
        Some((self.user.unwrap_or(user), self.group.unwrap_or(group)))
    }
}

/// Pushes one file.
pub(crate) fn push_one(
    session: &mut Session,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
    owner: Owner,
) -> Result<()> {
    let here = || local(source);
    let mut file = File::open(source).with_context(here)?;
    let about = file.metadata().with_context(here)?;
    if about.is_dir() {
        bail!("{} is a directory; -r pushes directories", here());
    }
    let mode = mode.unwrap_or(about.mode() & 0o777);
    let name = source.file_name().map_or_else(String::new, |name| name.display().to_string());
    push_file(session, &mut file, (&name, about.len()), target, mode, owner)
}

/// Pushes what can be read. `shown` is its name and length.
pub(crate) fn push_file(
    session: &mut Session,
    source: &mut impl Read,
    shown: (&str, u64),
    target: &Path,
    mode: u32,
    owner: Owner,
) -> Result<()> {
    // As real hosts open it: read and write, created, emptied.
    let flags = open::READ | open::WRITE | open::CREATE | open::TRUNCATE;
    let there = || guest(target);
    let handle = match session.open(target, flags, &Attrs::default()) {
        Ok(handle) => handle,
        Err(error) => return Err(parent_is_missing(session, target, error)),
    };
    let now = session.fstat(&handle).with_context(there)?;
    let attrs = Attrs { mode: Some(mode), owner: owner.over(now.owner), ..Attrs::default() };
    let bar = progress::bar(shown.0, shown.1);
    let sent = upload(session, &handle, source, |count| bar.inc(count));
    bar.finish_and_clear();
    let result = sent.and_then(|_| session.fsetstat(&handle, &attrs));
    session.close(handle).with_context(there)?;
    result.with_context(there)
}

/// What to say if a file cannot be made: usually there is no directory for it.
fn parent_is_missing(session: &mut Session, target: &Path, error: anyhow::Error) -> anyhow::Error {
    let is_missing = |path: &Path, session: &mut Session| matches!(session.stat(path), Err(error) if client::code(&error) == Some(NO_SUCH_FILE));
    match target.parent() {
        Some(parent)
            if client::code(&error) == Some(NO_SUCH_FILE) && is_missing(parent, session) =>
        {
            anyhow!("in the guest, there is no directory {}; -p makes it", local(parent))
        }
        _ => error.context(guest(target)),
    }
}

/// Pushes a tree.
pub(crate) fn push(
    session: &mut Session,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
    owner: Owner,
) -> Result<()> {
    let (here, there) = (|| local(source), || guest(target));
    let about = source.symlink_metadata().with_context(here)?;
    if about.is_symlink() {
        if session.find(target).with_context(there)?.is_some() {
            session.remove(target).with_context(there)?;
        }
        let link = fs::read_link(source).with_context(here)?;
        return session.symlink(&link, target).with_context(there);
    }
    if about.is_file() {
        return push_one(session, source, target, mode, owner);
    }
    if !about.is_dir() {
        bail!("{} is neither a file nor a directory nor a link", here());
    }
    if session.find(target).with_context(there)?.is_none()
        && let Err(error) = session.mkdir(target, &Attrs::default())
    {
        return Err(parent_is_missing(session, target, error));
    }
    let entries = fs::read_dir(source).with_context(here)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().with_context(here)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        push(session, &entry.path(), &target.join(entry.file_name()), mode, owner)?;
    }
    // Last: a directory that forbids writing could not be filled by others than root.
    let now = session.stat(target).with_context(there)?;
    let mode = Some(about.mode() & 0o777);
    let attrs = Attrs { mode, owner: owner.over(now.owner), ..Attrs::default() };
    session.setstat(target, &attrs).with_context(there)
}

/// Makes a directory and those above it.
pub(crate) fn make_parents(session: &mut Session, path: &Path) -> Result<()> {
    let above: Vec<&Path> = path.ancestors().collect();
    for directory in above.into_iter().rev() {
        match session.stat(directory) {
            Ok(attrs) if attrs.is_directory() => {}
            Ok(_) => bail!("{} is no directory", guest(directory)),
            Err(_) => {
                let made = session.mkdir(directory, &Attrs::default());
                made.with_context(|| guest(directory))?;
            }
        }
    }
    Ok(())
}

/// Pulls the contents of one file.
pub(crate) fn pull_file(session: &mut Session, from: &Path, to: &mut impl Write) -> Result<()> {
    let there = || guest(from);
    let attrs = session.stat(from).with_context(there)?;
    if attrs.is_directory() {
        bail!("{} is a directory; -r pulls directories", there());
    }
    let handle = session.open(from, open::READ, &Attrs::default()).with_context(there)?;
    let name = from.file_name().map_or_else(String::new, |name| name.display().to_string());
    let bar = progress::bar(&name, attrs.size.unwrap_or(0));
    let received = download(session, &handle, to, |count| bar.inc(count));
    bar.finish_and_clear();
    session.close(handle).with_context(there)?;
    received.map(drop).with_context(there)
}

/// Pulls one file.
pub(crate) fn pull_one(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    let attrs = session.stat(from).with_context(|| guest(from))?;
    if attrs.is_directory() {
        bail!("{} is a directory; -r pulls directories", guest(from));
    }
    let mode = attrs.permissions().unwrap_or(0o644);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode & 0o777)
        .open(to)
        .with_context(|| local(to))?;
    pull_file(session, from, &mut file)
}

/// How much further into a guest's tree: levels, each of which is a descriptor here and a call on the stack, and bytes
/// of lists that are held on the way.
#[derive(Clone, Copy, Debug)]
struct Left {
    levels: usize,
    bytes: usize,
}

/// Deepest tree, levels below the path that was named; a process has 1,024 descriptors.
const DEEPEST: usize = 256;

impl Left {
    const ALL: Self = Self { levels: DEEPEST, bytes: LISTING };

    /// The names in a directory, each once, and what is left with these in memory.
    fn list(self, session: &mut Session, path: &Path) -> Result<(Vec<Entry>, Self)> {
        let there = || guest(path);
        let Some(levels) = self.levels.checked_sub(1) else {
            bail!("{}: the tree is deeper than {DEEPEST} directories", there());
        };
        let listing = session.list(path, self.bytes).with_context(there)?;
        let twice = listing.entries.windows(2).find(|two| two[0].name == two[1].name);
        if let Some([entry, _]) = twice {
            bail!("{} lists {} twice", there(), printable::name(&entry.name));
        }
        Ok((listing.entries, Self { levels, bytes: self.bytes - listing.cost }))
    }
}

/// Pulls a tree. The target's own path is the user's, links in it included, but for its last name.
pub(crate) fn pull(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    match to.file_name() {
        Some(name) => {
            let above = LocalDirectory::open(to.parent().unwrap_or(Path::new("")))?;
            pull_into(session, from, &above, name, Left::ALL)
        }
        // The directory that `.`, `..` or `/` is.
        None => fill(session, from, &LocalDirectory::open(to)?, Left::ALL),
    }
}

/// Pulls something to a name in a directory here.
fn pull_into(
    session: &mut Session,
    from: &Path,
    above: &LocalDirectory,
    name: &OsStr,
    left: Left,
) -> Result<()> {
    let there = || guest(from);
    let attrs = session.lstat(from).with_context(there)?;
    let mode = attrs.permissions();
    if attrs.is_link() {
        return above.link(name, &session.readlink(from).with_context(there)?);
    }
    if attrs.is_file() {
        return pull_file(session, from, &mut above.file(name, mode.unwrap_or(0o644))?);
    }
    if !attrs.is_directory() {
        bail!("{} is neither a file nor a directory nor a link", there());
    }
    let directory = above.directory(name)?;
    fill(session, from, &directory, left)?;
    directory.finish(mode.unwrap_or(0o755))
}

/// Pulls all that is in a directory.
fn fill(session: &mut Session, from: &Path, to: &LocalDirectory, left: Left) -> Result<()> {
    let (entries, left) = left.list(session, from)?;
    entries
        .iter()
        .try_for_each(|entry| pull_into(session, &from.join(&entry.name), to, &entry.name, left))
}

/// Removes a tree. Links are removed, not what they point to.
pub(crate) fn remove(session: &mut Session, path: &Path) -> Result<()> {
    remove_below(session, path, Left::ALL)
}

fn remove_below(session: &mut Session, path: &Path, left: Left) -> Result<()> {
    if session.lstat(path)?.is_directory() {
        let (entries, left) = left.list(session, path)?;
        for entry in entries {
            remove_below(session, &path.join(entry.name), left)?;
        }
    }
    session.remove(path)
}
