//! What a host gives a VM as systemd's credentials, where systemd does not run: it would use them itself.

use std::io::{self, ErrorKind};
use std::path::Path;

use mote_core::first_boot::credentials::find;

use crate::runtime::small_files::{is_there, read_bounded};

/// The firmware's table, which the kernel shows to root, with or without its module `dmi-sysfs`.
const TABLE: &str = "sys/firmware/dmi/tables/DMI";
/// Longest table, bytes: 65,535 in its first form, without this limit in its second one.
const MOST: u64 = 1024 * 1024;

/// The value of the one of this name.
///
/// # Errors
/// `NotFound` if there is none, `FileTooLarge`, and what is wrong with it.
pub(crate) fn read(root: &Path, name: &str) -> io::Result<Vec<u8>> {
    find(&table(root)?, name).ok_or(ErrorKind::NotFound)?.map_err(io::Error::other)
}

/// The table in which they are.
///
/// # Errors
/// `NotFound` where systemd runs, without such a firmware, and for others than root; `FileTooLarge`.
fn table(root: &Path) -> io::Result<Vec<u8>> {
    if is_there(root, "run/systemd/system") {
        return Err(ErrorKind::NotFound.into());
    }
    let is_said = |error: &io::Error| error.kind() == ErrorKind::FileTooLarge;
    read_bounded(&root.join(TABLE), MOST)
        .map_err(|error| if is_said(&error) { error } else { ErrorKind::NotFound.into() })
}
