//! Runs a program to its end, in worker processes: hooks, and commands of `ready-when`.

use std::ffi::CStr;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::freeze::is_hook;
use mote_core::hostapi::exec::Program;
use rustix::fs::FileType;
use rustix::process::{WaitOptions, geteuid, waitpid};

use crate::runtime::{io_error, log};
use crate::sys::{self, DIRECTORIES, PATH, Plan, fd, file};
use crate::system::devices::entries;

/// Interval between checks whether the program has ended.
const LOOK: Duration = Duration::from_millis(20);

/// Returns the hooks that only root can modify, in name order. std's sort would be larger.
pub(crate) fn hooks(directory: &Path) -> Vec<PathBuf> {
    let mut sorted = Vec::<PathBuf>::new();
    if !is_roots(directory, FileType::Directory) {
        return sorted;
    }
    for path in entries(directory) {
        if is_hook(path.as_os_str().as_bytes()) && is_roots(&path, FileType::RegularFile) {
            let is_before = |other: &&PathBuf| other.as_os_str() < path.as_os_str();
            let at = sorted.iter().take_while(is_before).count();
            sorted.insert(at, path);
        }
    }
    sorted
}

/// Returns whether this is a program or directory that only root can modify; logs if not.
pub(crate) fn is_roots(path: &Path, kind: FileType) -> bool {
    let Ok(found) = file::stat(path) else { return false };
    if FileType::from_raw_mode(found.st_mode) != kind || found.st_mode & 0o111 == 0 {
        return false;
    }
    let is_roots = found.st_uid == geteuid().as_raw() && found.st_mode & 0o022 == 0;
    if !is_roots {
        log::warn(format_args!("{}: not run: users other than root can change it", path.display()));
    }
    is_roots
}

/// Runs the program named by the first word and returns its exit code. Kills it after `limit`.
/// Errors: it was killed or did not start; `ENOEXEC` for a script without `#!`.
pub(crate) fn run(words: &[&CStr], stdio: BorrowedFd<'_>, limit: Duration) -> io::Result<i32> {
    let (child, failure) = sys::spawn(&Plan {
        program: Program { name: words.first().copied().unwrap_or_default(), path: DIRECTORIES },
        arguments: words,
        environment: &[PATH],
        stdio: [stdio; 3],
        directory: Some(c"/"),
        ids: None,
        terminal: false,
    })?;
    let until = sys::since_boot() + limit;
    loop {
        match waitpid(Some(child), WaitOptions::NOHANG) {
            Ok(Some((_, status))) => {
                let mut error = [0; 4];
                if fd::read(&failure, &mut error) == Ok(error.len()) {
                    return Err(io::Error::from_raw_os_error(i32::from_ne_bytes(error)));
                }
                return status.exit_status().ok_or_else(|| io_error("killed"));
            }
            Ok(None) if sys::since_boot() < until => sys::sleep(LOOK),
            Ok(None) | Err(_) => {
                sys::kill_group(child);
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}
