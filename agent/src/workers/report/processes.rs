//! Counts processes without reading their memory: reading `cmdline` of a process that hangs in a
//! dead file system hangs too.

use std::mem::MaybeUninit;
use std::path::Path;

use mote_core::flavour::Flavour;
use rustix::fs::{OFlags, RawDir, readlinkat_raw};
use rustix::io::Errno;

use crate::sys::file;

/// Buffer for directory entries, bytes.
const ENTRIES: usize = 16 * 1024;

/// Counts processes as this server's agent does (P§4.6): for LXD those that run a program, for
/// Incus all, including kernel threads and zombies. Returns 0 if `/proc` cannot be read.
///
/// LXD's agent skips processes with an empty command line. Those have no program either, and
/// reading the `exe` link takes one call instead of three.
pub(crate) fn count(root: &Path, flavour: Flavour) -> u64 {
    let Ok(directory) = file::open(&root.join("proc"), OFlags::DIRECTORY) else { return 0 };
    // Not on the stack, whose pages would stay in memory.
    let mut space = vec![MaybeUninit::uninit(); ENTRIES];
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
