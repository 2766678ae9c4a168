//! Applies systemd credentials in a guest without systemd: root's ssh keys and the host name. Like
//! systemd, it changes nothing that exists. No credential sets the guest's policy, which the host
//! must not choose.

use std::io::{self, ErrorKind};
use std::path::Path;

use mote_core::first_boot::credentials::{HOSTNAME, KEYS, find, host_name};
use mote_core::hostapi::policy::{Capability, Features};

use super::HOSTNAME as FILE;
use crate::runtime::{io_error, is_there, log, read_bounded, text_of, write_lasting};
use crate::sys::file;

/// The firmware's table, which root can read even without the module `dmi-sysfs`.
const TABLE: &str = "sys/firmware/dmi/tables/DMI";
/// Maximum size of the table, in bytes; a table of SMBIOS 2 has at most 65,535.
const MOST: u64 = 1024 * 1024;
const PLACE: &str = "root/.ssh/authorized_keys";
/// The kernel's host name file, and its content while no name was set.
const KERNEL: &str = "proc/sys/kernel/hostname";
const UNNAMED: [&str; 3] = ["", "(none)", "localhost"];

/// Applies the existing credentials, if the host may write files at start.
pub(crate) fn apply(root: &Path, features: Features) {
    for (name, apply) in [(HOSTNAME, name as Apply), (KEYS, keys)] {
        let done = read(root, name).and_then(|value| {
            if features.allows(Capability::Templates) {
                apply(root, &value)
            } else {
                Err(io_error("denied by the policy (templates)"))
            }
        });
        match done {
            Ok(true) => log::info(format_args!("credential {name}: used")),
            Ok(false) => {
                log::debug(format_args!("credential {name} ignored: the guest has its own"))
            }
            Err(why) if why.kind() == ErrorKind::NotFound => {}
            Err(why) => log::warn(format_args!("credential {name}: {why}")),
        }
    }
}

/// Returns the credential's value.
/// Errors: `NotFound` if there is none, if systemd runs, which uses it itself, or if the table cannot
/// be read; `FileTooLarge`, or why it is malformed.
fn read(root: &Path, name: &str) -> io::Result<Vec<u8>> {
    if is_there(root, "run/systemd/system") {
        return Err(ErrorKind::NotFound.into());
    }
    let is_too_large = |error: &io::Error| error.kind() == ErrorKind::FileTooLarge;
    let table = read_bounded(&root.join(TABLE), MOST)
        .map_err(|error| if is_too_large(&error) { error } else { ErrorKind::NotFound.into() })?;
    find(&table, name).ok_or(ErrorKind::NotFound)?.map_err(io_error)
}

type Apply = fn(&Path, &[u8]) -> io::Result<bool>;

fn name(root: &Path, value: &[u8]) -> io::Result<bool> {
    let name = host_name(value).ok_or_else(|| io_error("not a host name"))?;
    let is_unnamed = |path| UNNAMED.contains(&text_of(root, path).trim_ascii());
    if !text_of(root, FILE).trim_ascii().is_empty() || !is_unnamed(KERNEL) {
        return Ok(false);
    }
    file::write(&root.join(KERNEL), name).map(|()| true)
}

fn keys(root: &Path, value: &[u8]) -> io::Result<bool> {
    let path = root.join(PLACE);
    if file::lstat(&path).is_ok() {
        return Ok(false);
    }
    // The umask makes the directories accessible to root only.
    for (end, _) in PLACE.match_indices('/') {
        let _there = file::mkdir(&root.join(PLACE.get(..end).unwrap_or_default()));
    }
    // An existing file is never written again, even if a power cut left it empty.
    write_lasting(&path, &[value, b"\n"].concat()).map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::{Scratch, scratch};

    const STRINGS: &str = "io.systemd.credential:system.hostname=web1\0\
        io.systemd.credential:ssh.authorized_keys.root=ssh-ed25519 A";

    fn guest(name: &str, strings: &str) -> Scratch {
        let root = scratch(name);
        let table = [&[11, 5, 0, 0, 2], strings.as_bytes(), &[0, 0]].concat();
        for (path, bytes) in [
            ("sys/firmware/dmi/tables/DMI", table.as_slice()),
            (KERNEL, b"(none)\n"),
            (FILE, b""),
            ("root/x", b""),
        ] {
            crate::runtime::put(&root, path, bytes);
        }
        root
    }

    #[test]
    fn applies_keys_and_host_name_once() {
        let root = guest("credentials", STRINGS);
        apply(&root, Features::ALL);
        assert_eq!(text_of(&root, KERNEL), "web1");
        assert_eq!(text_of(&root, PLACE), "ssh-ed25519 A\n");
        // Simulates an administrator who changes both, and a restart of the agent.
        fs::write(root.join(PLACE), "own\n").unwrap();
        fs::write(root.join(KERNEL), "db2\n").unwrap();
        apply(&root, Features::ALL);
        assert_eq!(text_of(&root, KERNEL), "db2\n");
        assert_eq!(text_of(&root, PLACE), "own\n");
    }

    #[test]
    fn does_nothing_under_systemd_or_if_denied() {
        let root = guest("no-credentials", STRINGS);
        apply(&root, Features::ALL.and(Features::NONE));
        fs::create_dir_all(root.join("run/systemd/system")).unwrap();
        apply(&root, Features::ALL);
        assert_eq!(text_of(&root, KERNEL), "(none)\n");
        assert!(!root.join(PLACE).exists());
    }

    #[test]
    fn keeps_an_images_host_name_and_ignores_invalid_ones() {
        let root = guest("own-name", STRINGS);
        fs::write(root.join(FILE), "own\n").unwrap();
        apply(&root, Features::ALL);
        assert_eq!(text_of(&root, KERNEL), "(none)\n");
        let root = guest("no-name", "io.systemd.credential:system.hostname=a b");
        apply(&root, Features::ALL);
        assert_eq!(text_of(&root, KERNEL), "(none)\n");
    }
}
