//! Mounts that hang, remembered from one report to the next. A process in statfs(2) may not react to
//! SIGKILL (a FUSE server has read the request and never answers). A host that asks every 15 s would add
//! such a process each time, so the mount is left out as long as the process that hangs on it exists.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mote_core::report::proc::number;
use rustix::process::{Pid, test_kill_process};

use crate::runtime::small_files::write_small;
use crate::runtime::{log, run_dir};
use crate::workers::report::lines;

/// Most mounts remembered. While so many hang, no other mount that may hang is asked.
const MAX_HANGING: usize = 64;

/// Mounts that hung in earlier reports, each with the id of the process that hangs on it. Mount points stand as in
/// `/proc/mounts`, without newlines.
pub(crate) struct Hanging {
    path: PathBuf,
    known: Vec<(i32, Vec<u8>)>,
}

impl Hanging {
    /// Reads the file.
    pub(crate) fn read(root: &Path) -> Self {
        let path = root.join(run_dir::HANGING);
        let mut known = Vec::new();
        lines::each(&path, |line| {
            let mut parts = line.splitn(2, |byte| *byte == b' ');
            let process = parts.next().and_then(number).and_then(|pid| i32::try_from(pid).ok());
            if let (Some(process), Some(point)) = (process, parts.next())
                && known.len() < MAX_HANGING
            {
                known.push((process, point.to_vec()));
            }
        });
        Self { path, known }
    }

    /// Whether a process still hangs on this mount point.
    pub(crate) fn holds(&self, point: &[u8]) -> bool {
        self.known.iter().any(|(process, known)| known == point && is_there(*process))
    }

    /// How many more mounts can be remembered.
    pub(crate) fn room(&self) -> usize {
        MAX_HANGING.saturating_sub(self.known.len())
    }

    /// Writes the mounts that hang `now`, by the process that hangs there, and the earlier ones that still do; logs the new ones.
    pub(crate) fn remember(mut self, now: Vec<(i32, Vec<u8>)>) {
        let before = self.known.clone();
        self.known.retain(|(process, _)| is_there(*process));
        for (process, point) in now {
            if before.iter().all(|(_, known)| *known != point) {
                let point = std::ffi::OsStr::from_bytes(&point);
                log::warn(format_args!("{} hangs; it is left out", point.display()));
            }
            self.known.push((process, point));
        }
        if self.known == before {
            return;
        }
        let text = self.known.iter().flat_map(|(process, point)| {
            [process.to_string().as_bytes(), b" ", point, b"\n"].concat()
        });
        // Without it, the next report only waits again.
        if let Err(error) = write_small(&self.path, &text.collect::<Vec<u8>>()) {
            log::debug(format_args!("cannot write {}: {error}", self.path.display()));
        }
    }
}

fn is_there(process: i32) -> bool {
    Pid::from_raw(process).is_some_and(|process| test_kill_process(process).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_held_as_long_as_its_process_is_there() {
        let root = crate::runtime::scratch::scratch("hanging");
        std::fs::create_dir_all(root.join("run/mote")).unwrap();
        let point = b"/a b".to_vec();
        let ours = i32::try_from(std::process::id()).unwrap();
        Hanging::read(&root).remember(vec![(ours, point.clone())]);
        let ours = Hanging::read(&root);
        assert!(ours.holds(&point) && !ours.holds(b"/a"));
        // No process has the largest number. Malformed lines are skipped.
        std::fs::write(root.join(run_dir::HANGING), "2147483647 /a b\nx /c\n0 /d\n\n7\n").unwrap();
        let gone = Hanging::read(&root);
        assert_eq!(gone.known.len(), 2);
        assert!(!gone.holds(&point) && !gone.holds(b"/d"));
        gone.remember(Vec::new());
        assert!(Hanging::read(&root).known.is_empty());
    }
}
