//! Reads systemd credentials from the host where systemd does not run, which would use them itself.

use std::io::{self, ErrorKind};
use std::path::Path;

use mote_core::first_boot::credentials::find;

use crate::runtime::small_files::{is_there, read_bounded};

/// The firmware's table, which root can read with or without the module `dmi-sysfs`.
const TABLE: &str = "sys/firmware/dmi/tables/DMI";
/// Longest table, bytes: 65,535 in its first form, without this limit in its second one.
const MOST: u64 = 1024 * 1024;

/// Returns the credential's value.
///
/// # Errors
/// `NotFound` if there is none, `FileTooLarge`, or why it is malformed.
pub(crate) fn read(root: &Path, name: &str) -> io::Result<Vec<u8>> {
    find(&table(root)?, name).ok_or(ErrorKind::NotFound)?.map_err(io::Error::other)
}

/// Reads the table of credentials.
///
/// # Errors
/// `NotFound` where systemd runs, without such firmware, and for users other than root;
/// `FileTooLarge`.
fn table(root: &Path) -> io::Result<Vec<u8>> {
    if is_there(root, "run/systemd/system") {
        return Err(ErrorKind::NotFound.into());
    }
    let is_said = |error: &io::Error| error.kind() == ErrorKind::FileTooLarge;
    read_bounded(&root.join(TABLE), MOST)
        .map_err(|error| if is_said(&error) { error } else { ErrorKind::NotFound.into() })
}
