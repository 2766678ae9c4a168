//! Files and trees between here and the guest. A tree's symbolic links stay what they are and are never
//! followed; names that a guest gives are single ones (checked in `sftp_client`), so nothing is written
//! outside of the target.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::file::Session;
use crate::progress;
use crate::sftp_transfer::{download, upload};
use crate::sftp_wire::{Attrs, open};

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
    let mut file = File::open(source)?;
    let about = file.metadata()?;
    if about.is_dir() {
        bail!("is a directory; -r pushes directories");
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
    let handle = session.open(target, flags, &Attrs::default())?;
    let now = session.fstat(&handle)?;
    let attrs = Attrs { mode: Some(mode), owner: owner.over(now.owner), ..Attrs::default() };
    let bar = progress::bar(shown.0, shown.1);
    let sent = upload(session, &handle, source, |count| bar.inc(count));
    bar.finish_and_clear();
    let result = sent.and_then(|_| session.fsetstat(&handle, &attrs));
    session.close(handle)?;
    result
}

/// Pushes a tree.
pub(crate) fn push(
    session: &mut Session,
    source: &Path,
    target: &Path,
    mode: Option<u32>,
    owner: Owner,
) -> Result<()> {
    let about = source.symlink_metadata()?;
    if about.is_symlink() {
        if session.find(target)?.is_some() {
            session.remove(target)?;
        }
        return session.symlink(&fs::read_link(source)?, target);
    }
    if about.is_file() {
        return push_one(session, source, target, mode, owner);
    }
    if !about.is_dir() {
        bail!("is neither a file nor a directory nor a link");
    }
    if session.find(target)?.is_none() {
        session.mkdir(target, &Attrs::default())?;
    }
    let mut entries = fs::read_dir(source)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        push(session, &path, &target.join(entry.file_name()), mode, owner)
            .with_context(|| path.display().to_string())?;
    }
    // Last: a directory that forbids writing could not be filled by others than root.
    let now = session.stat(target)?;
    let mode = Some(about.mode() & 0o777);
    let attrs = Attrs { mode, owner: owner.over(now.owner), ..Attrs::default() };
    session.setstat(target, &attrs)
}

/// Makes a directory and those above it.
pub(crate) fn make_parents(session: &mut Session, path: &Path) -> Result<()> {
    let above: Vec<&Path> = path.ancestors().collect();
    for directory in above.into_iter().rev() {
        match session.stat(directory) {
            Ok(attrs) if attrs.is_directory() => {}
            Ok(_) => bail!("{} is no directory", directory.display()),
            Err(_) => session
                .mkdir(directory, &Attrs::default())
                .with_context(|| directory.display().to_string())?,
        }
    }
    Ok(())
}

/// Pulls the contents of one file.
pub(crate) fn pull_file(session: &mut Session, from: &Path, to: &mut impl Write) -> Result<()> {
    let attrs = session.stat(from)?;
    if attrs.is_directory() {
        bail!("is a directory; -r pulls directories");
    }
    let handle = session.open(from, open::READ, &Attrs::default())?;
    let name = from.file_name().map_or_else(String::new, |name| name.display().to_string());
    let bar = progress::bar(&name, attrs.size.unwrap_or(0));
    let received = download(session, &handle, to, |count| bar.inc(count));
    bar.finish_and_clear();
    session.close(handle)?;
    received.map(drop)
}

/// Pulls one file.
pub(crate) fn pull_one(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    let mode = session.stat(from)?.permissions().unwrap_or(0o644);
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(mode & 0o777)
        .open(to)
        .with_context(|| to.display().to_string())?;
    pull_file(session, from, &mut file)
}

/// Pulls a tree.
pub(crate) fn pull(session: &mut Session, from: &Path, to: &Path) -> Result<()> {
    let attrs = session.lstat(from)?;
    let here = || to.display().to_string();
    if attrs.is_link() {
        if to.symlink_metadata().is_ok_and(|about| about.is_symlink()) {
            fs::remove_file(to).with_context(here)?;
        }
        return symlink(session.readlink(from)?, to).with_context(here);
    }
    if attrs.is_file() {
        return pull_one(session, from, to);
    }
    if !attrs.is_directory() {
        bail!("is neither a file nor a directory nor a link");
    }
    if !to.symlink_metadata().is_ok_and(|about| about.is_dir()) {
        fs::create_dir(to).with_context(here)?;
    }
    for entry in session.list(from)? {
        let path = from.join(&entry.name);
        pull(session, &path, &to.join(&entry.name)).with_context(|| path.display().to_string())?;
    }
    let mode = attrs.permissions().unwrap_or(0o755) & 0o777;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).with_context(here)
}

/// Removes a tree. Links are removed, not what they point to.
pub(crate) fn remove(session: &mut Session, path: &Path) -> Result<()> {
    if session.lstat(path)?.is_directory() {
        for entry in session.list(path)? {
            remove(session, &path.join(entry.name))?;
        }
    }
    session.remove(path)
}
