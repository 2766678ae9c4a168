//! Keeps templates from overwriting the guest's policy files through any path, link or mount. It
//! compares opened files, not only names.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use mote_core::guest_path::Target;
use rustix::fs::{Mode, Stat, fstat, mkdirat};
use rustix::io::Errno;

use crate::config::policy;
use crate::guest_path::{Place, find};
use crate::sys::file;

/// Finds a template's target and creates missing directories. Checks each directory on the way: one
/// instead of a policy file would make that unreadable.
/// Errors: it is a policy file; any error of [`find`] and mkdir(2).
pub(super) fn place(root: &Path, target: Target<'_>) -> io::Result<Place> {
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

/// Errors: the policy has, or would have, a file here.
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

/// Errors: the open file is one of the policy's, under another name.
pub(super) fn check(root: &Path, about: &Stat) -> io::Result<()> {
    let is_own = |own: &&str| {
        let own = file::stat(&root.join(own));
        own.is_ok_and(|own| (own.st_dev, own.st_ino) == (about.st_dev, about.st_ino))
    };
    if policy::FILES.iter().any(is_own) { Err(refused()) } else { Ok(()) }
}

fn refused() -> io::Error {
    io::Error::other("it would change the guest's policy; not written")
}
