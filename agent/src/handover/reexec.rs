//! Starts the program anew in this process, which keeps its id, arguments and environment, so that no service
//! manager notices. All descriptors but the standard ones are closed by exec(2), and the host is told nothing; what it
//! told this agent is in `/run/mote`.

use std::ffi::CString;
use std::fs::read_link;
use std::os::unix::ffi::OsStrExt;

use crate::options::{INITRAMFS, LEFT};
use crate::runtime::{log, notify};
use crate::sys::{self, SELF};

/// Suffix of a removed file's name in `/proc`.
pub(crate) const REMOVED: &str = " (deleted)";
/// Begin of `argv[0]` by which systemd knows what it must not kill when it leaves the initramfs
/// (<https://systemd.io/ROOT_STORAGE_DAEMONS/>).
const SURVIVES_SYSTEMD: u8 = b'@';

/// What differs from the last start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing; the program's file may be a newer one.
    Same,
    /// Not to be killed with the initramfs.
    Spared,
    /// In the real root, where it is like any other process.
    Left,
}

/// Starts the program anew; returns only if that fails, with a line in the log.
#[inline(never)] // its size
#[cold]
pub(crate) fn start(mode: Mode) {
    let arguments: Vec<_> = arguments(mode).collect();
    let arguments: Vec<_> = arguments.iter().map(CString::as_c_str).collect();
    // In the new root another program may have the path.
    let newer = if mode == Mode::Left { None } else { path() };
    // The time until the next ping begins anew too.
    notify::watchdog();
    let error = sys::reexec(newer.as_deref().into_iter().chain([SELF]), &arguments);
    log::error(format_args!("cannot start anew: {error}"));
}

/// Whether the arguments say that [`Mode::Spared`] is done.
pub(crate) fn is_spared() -> bool {
    sys::arguments().next().is_some_and(|name| name.as_bytes().first() == Some(&SURVIVES_SYSTEMD))
}

/// Path of this program's file; after an upgrade another file has it.
fn path() -> Option<CString> {
    let path = read_link("/proc/self/exe").ok()?;
    let path = path.as_os_str().as_bytes();
    CString::new(path.strip_suffix(REMOVED.as_bytes()).unwrap_or(path)).ok()
}

fn arguments(mode: Mode) -> impl Iterator<Item = CString> {
    sys::arguments().enumerate().filter_map(move |(at, word)| {
        let word = word.as_bytes();
        let word = match mode {
            Mode::Spared if at == 0 => [&[SURVIVES_SYSTEMD], word].concat(),
            Mode::Left if at == 0 => {
                word.strip_prefix(&[SURVIVES_SYSTEMD]).unwrap_or(word).to_vec()
            }
            Mode::Left if word == INITRAMFS.as_bytes() => LEFT.into(),
            Mode::Same | Mode::Spared | Mode::Left => word.to_vec(),
        };
        CString::new(word).ok()
    })
}
