//! Applies the host's templates (P§1.7): copies each from the mounted share to its target. Logs a
//! failure and continues; the Go agents exit at the first one, and again after each restart.
//!
//! The guest's policy may deny all templates or cloud-init's seed. No template may change the
//! policy's files through any path, link or mount, so opened files are compared, not only names.
//!
//! An existing target is truncated in place, as in the Go agents: it may be a bind mount or a link,
//! or have its own owner, mode and labels. A new target is written to a temporary file and renamed,
//! because `create_only` would keep a partial file after a crash.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use mote_core::first_boot::template::{self, Template};
use mote_core::flavour::Flavour;
use mote_core::guest_path::Target;
use mote_core::hostapi::policy::{Capability, Features};
use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::config::policy;
use crate::guest_path::{Place, find, is_private};
use crate::runtime::{
    io_error, is_there, log, log::audit, log::audit::Quoted, open_regular, read_if_there,
};
use crate::sys::fd::give;
use crate::sys::file;

/// Maximum size of `metadata.yaml`, in bytes; real ones have a few thousand.
const METADATA: u64 = 256 * 1024;
/// Directory of cloud-init's seeds, which it reads at boot.
const SEEDS: &str = "var/lib/cloud/seed/";
/// Size of the copy buffer, in bytes. It is on the stack, whose used pages stay resident.
const COPY_BUFFER: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// Targets that now have their template's text, as paths relative to the root.
    pub(crate) written: Vec<String>,
    pub(crate) changed: Vec<String>,
    /// Errors, one per failed template, as logged.
    pub(crate) troubles: Vec<String>,
}

impl Applied {
    pub(crate) fn wrote(&self, path: &str) -> bool {
        self.written.iter().any(|written| written == path)
    }

    pub(crate) fn changed(&self, path: &str) -> bool {
        self.changed.iter().any(|changed| changed == path)
    }

    fn report_error(&mut self, text: &dyn fmt::Display) {
        log::warn(format_args!("{text}"));
        self.troubles.push(text.to_string());
    }
}

/// Returns the number of templates in a share, for `--check`.
pub(crate) fn count(share: &Path) -> Result<usize, String> {
    let mut count = 0;
    each(share, &mut |template| {
        count +=
            usize::from(template.is_ok_and(|template| file::exists(&source(share, &template))));
    })?;
    Ok(count)
}

/// Applies all templates that the host has rendered and the guest's policy allows.
pub(crate) fn apply(share: &Path, root: &Path, flavour: Flavour, features: Features) -> Applied {
    let mut applied = Applied::default();
    if !features.allows(Capability::Templates) {
        if is_there(share, "files/metadata.yaml") {
            log::info(format_args!("the policy denies templates"));
        }
        return applied;
    }
    let seeds = features.allows(Capability::FirstBoot);
    // New directories are 0755 (P§1.7); the rest of the agent runs with a stricter umask.
    let umask = rustix::process::umask(Mode::from_raw_mode(0o022));
    let listed = each(share, &mut |template| match template {
        Ok(template) if !seeds && is_seed(&template) => {
            log::info(format_args!("the policy denies cloud-init's seed"));
        }
        Ok(template) => apply_one(share, root, flavour, &template, &mut applied),
        Err(why) => applied.report_error(&why),
    });
    rustix::process::umask(umask);
    if let Err(why) = listed {
        applied.report_error(&why);
    }
    applied
}

/// Passes each entry of `files/metadata.yaml`, if it exists, to `give`.
/// Errors: the file cannot be read or parsed.
fn each(share: &Path, give: &mut dyn FnMut(Result<Template, String>)) -> Result<(), String> {
    let metadata = read_if_there(&share.join("files/metadata.yaml"), METADATA);
    let bad = |why: &dyn fmt::Display| format!("files/metadata.yaml: {why}");
    let Some(metadata) = metadata.map_err(|why| bad(&why))? else { return Ok(()) };
    template::each(&metadata, |one| give(one.map_err(|why| bad(&why)))).map_err(|why| bad(&why))
}

fn source(share: &Path, template: &Template) -> PathBuf {
    share.join("files").join(format!("{}.out", template.name))
}

fn is_seed(template: &Template) -> bool {
    Target::absolute(&template.target).is_some_and(|target| one_spelling(target).starts_with(SEEDS))
}

/// Returns the normalized path below the root.
fn one_spelling(target: Target<'_>) -> String {
    let mut path = String::new();
    for part in target.parts() {
        path.extend([if path.is_empty() { "" } else { "/" }, part]);
    }
    path
}

/// Applies one template and adds the result to `applied`.
fn apply_one(
    share: &Path,
    root: &Path,
    flavour: Flavour,
    template: &Template,
    applied: &mut Applied,
) {
    let source = match open_regular(&source(share, template)) {
        Ok(source) => source,
        // The host has not rendered this template.
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            applied.report_error(&format_args!("template {}: {error}", template.name));
            return;
        }
    };
    let Some(target) = Target::absolute(&template.target) else { return };
    let below_root = one_spelling(target);
    match write(source, root, target, flavour, template) {
        Ok(None) => log::debug(format_args!("template {} exists", template.target)),
        Ok(Some(is_changed)) => {
            audit::note(format_args!("template {}", Quoted(&template.target)));
            if is_changed {
                applied.changed.push(below_root.clone());
            }
            applied.written.push(below_root);
        }
        Err(error) => applied.report_error(&format_args!("template {}: {error}", template.target)),
    }
}

/// Writes the target; returns whether that changed it, or `None` if a `create_only` target exists.
fn write(
    mut source: File,
    root: &Path,
    target: Target<'_>,
    flavour: Flavour,
    template: &Template,
) -> io::Result<Option<bool>> {
    // A dangling symbolic link counts as existing.
    if template.create_only && file::lstat(&root.join(target.below_root())).is_ok() {
        return Ok(None);
    }
    let place = place(root, target)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = match openat(&place.directory, &place.name, flags, Mode::empty()) {
        Err(Errno::NOENT) => {
            return create(source, &place, flavour, template).map(|()| Some(true));
        }
        opened => File::from(opened?),
    };
    let about = fstat(&file)?;
    if about.st_nlink > 1 && !is_private(&fstat(&place.directory)?) {
        return Err(io_error("a hard link that users other than root may have made"));
    }
    check(root, &about)?;
    let same = same(&mut source, &mut file)?;
    if !same {
        io::Seek::rewind(&mut source)?;
        io::Seek::rewind(&mut file)?;
        file.set_len(0)?;
        copy(&mut source, &mut file)?;
    }
    Ok(Some(!same))
}

fn create(
    mut source: File,
    place: &Place,
    flavour: Flavour,
    template: &Template,
) -> io::Result<()> {
    let Place { directory, name } = place;
    let beside = c".mote-template";
    let _stale = unlinkat(directory, beside, AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut file = File::from(openat(directory, beside, flags, Mode::from_raw_mode(0o600))?);
    let made = copy(&mut source, &mut file).and_then(|()| {
        let (ids, mode) = match flavour {
            Flavour::Incus => ((template.uid, template.gid), template.mode),
            Flavour::Lxd | Flavour::LxdOld => ((0, 0), 0o644),
        };
        let ours = fstat(&file)?;
        if (ours.st_uid, ours.st_gid) != ids && flavour == Flavour::Incus {
            give(&file, ids.0, ids.1)?;
        }
        fchmod(&file, Mode::from_raw_mode(mode))?;
        Ok(renameat(directory, beside, directory, name)?)
    });
    if made.is_err() {
        let _ours = unlinkat(directory, beside, AtFlags::empty());
    }
    made
}

fn copy(from: &mut File, to: &mut File) -> io::Result<()> {
    let mut piece = [0; COPY_BUFFER];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            count => to.write_all(piece.get(..count).unwrap_or_default())?,
        }
    }
}

fn same(one: &mut File, other: &mut File) -> io::Result<bool> {
    if fstat(&*one)?.st_size != fstat(&*other)?.st_size {
        return Ok(false);
    }
    let (mut ours, mut theirs) = ([0; COPY_BUFFER], [0; COPY_BUFFER]);
    loop {
        let count = one.read(&mut ours)?;
        let part = theirs.get_mut(..count).unwrap_or_default();
        match other.read_exact(part) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(false),
            Err(error) => return Err(error),
        }
        if count == 0 {
            return Ok(true);
        }
        if ours.get(..count) != Some(&*part) {
            return Ok(false);
        }
    }
}

/// Finds a template's target and creates missing directories. Checks each directory on the way,
/// because a directory with the name of a policy file would make the policy unreadable.
/// Errors: it is a policy file; any error of [`find`] and mkdir(2).
fn place(root: &Path, target: Target<'_>) -> io::Result<Place> {
    let path = target.below_root();
    for (end, _) in path.match_indices('/') {
        let Some(above) = path.get(..end).and_then(Target::parse) else { continue };
        let place = find(root, above, false)?;
        check_place(root, &place)?;
        match mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let place = find(root, target, false)?;
    check_place(root, &place)?;
    Ok(place)
}

/// Errors: a policy file is at this place, or would be.
fn check_place(root: &Path, place: &Place) -> io::Result<()> {
    for own in policy::FILES {
        let own = Target::parse(own).and_then(|own| find(root, own, false).ok());
        if let Some(own) = own
            && own.name == place.name
            && is_same(&own.directory, &place.directory)
        {
            return Err(refused());
        }
    }
    Ok(())
}

fn is_same(one: &impl AsFd, other: &impl AsFd) -> bool {
    let identity = |file: &dyn AsFd| fstat(file.as_fd()).map(|about| (about.st_dev, about.st_ino));
    identity(one).is_ok_and(|one| identity(other) == Ok(one))
}

/// Errors: the open file is a policy file under another name.
fn check(root: &Path, about: &Stat) -> io::Result<()> {
    let id = Ok((about.st_dev, about.st_ino));
    let mut own = policy::FILES.iter().map(|own| file::id(&root.join(own)));
    if own.any(|own| own == id) { Err(refused()) } else { Ok(()) }
}

fn refused() -> io::Error {
    io_error("it would change the guest's policy; not written")
}

#[cfg(test)]
mod tests;
