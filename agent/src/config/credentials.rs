//! Reads systemd credentials of the host if systemd, which would use them itself, does not run.

use std::io::{self, ErrorKind};
use std::path::Path;

use mote_core::first_boot::credentials::find;

use crate::runtime::{is_there, read_bounded};

/// The firmware's table, which root can read even without the module `dmi-sysfs`.
const TABLE: &str = "sys/firmware/dmi/tables/DMI";
/// Longest table, bytes; a table of SMBIOS 2 has at most 65,535.
const MOST: u64 = 1024 * 1024;

/// Returns the credential's value.
/// Errors: `NotFound` if there is none, `FileTooLarge`, or why it is malformed.
pub(crate) fn read(root: &Path, name: &str) -> io::Result<Vec<u8>> {
    find(&table(root)?, name).ok_or(ErrorKind::NotFound)?.map_err(io::Error::other)
}

/// Errors: `NotFound` if systemd runs, without such firmware, and for users other than root;
/// `FileTooLarge`.
fn table(root: &Path) -> io::Result<Vec<u8>> {
    if is_there(root, "run/systemd/system") {
        return Err(ErrorKind::NotFound.into());
    }
    let is_too_large = |error: &io::Error| error.kind() == ErrorKind::FileTooLarge;
    read_bounded(&root.join(TABLE), MOST)
        .map_err(|error| if is_too_large(&error) { error } else { ErrorKind::NotFound.into() })
}
