//! How many processes there are, without keeping their names and without touching their memory: a
//! process that hangs in a dead file system makes whoever reads its `cmdline` hang too.

use std::mem::MaybeUninit;
use std::path::Path;

use mote_agent::flavour::Flavour;
use rustix::fs::{CWD, Mode, OFlags, RawDir, openat, readlinkat_raw};
use rustix::io::Errno;

/// Directory entries read at once, bytes.
const ENTRIES: usize = 16 * 1024;

/// Counts them as this server's agent does (P§4.6): LXD those that run a program, Incus all, the
/// kernel's own and the dead among them. 0 if there is no telling.
///
/// LXD's agent tells them by an empty command line. A process without memory has no program
/// either, and the link to that costs one call instead of three.
pub(crate) fn count(root: &Path, flavour: Flavour) -> u64 {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = openat(CWD, root.join("proc"), flags, Mode::empty()) else { return 0 };
    let mut space = [MaybeUninit::uninit(); ENTRIES];
    let mut entries = RawDir::new(&directory, &mut space);
    let mut count = 0;
    while let Some(Ok(entry)) = entries.next() {
        let name = entry.file_name().to_bytes();
        if !name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        count += u64::from(match flavour {
            Flavour::Incus => true,
            Flavour::Lxd | Flavour::LxdOld => {
                let path = [name, b"/exe\0"].concat();
                let Ok(path) = std::ffi::CStr::from_bytes_with_nul(&path) else { continue };
                let mut letter = [MaybeUninit::uninit(); 1];
                let link = readlinkat_raw(&directory, path, letter.as_mut_slice());
                !matches!(link, Err(Errno::NOENT | Errno::SRCH))
            }
        });
    }
    count
}
