//! Mounts that hang, stored between reports. A process in statfs(2) may ignore SIGKILL, if a FUSE
//! server has read the request and never answers. A host that queries every 15 s would add such a
//! process each time, so reports omit the mount as long as a process hangs on it.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mote_core::report::proc::number;
use rustix::process::{Pid, test_kill_process};

use crate::runtime::{log, run_dir, write_small};
use crate::workers::report::lines;

/// Upper bound of stored mounts. If it is reached, no other mount that may hang is queried.
const MAX_HANGING: usize = 64;

/// Mounts that hung in earlier reports, each with the id of the process that hangs on it. Mount
/// points as in `/proc/mounts`, without newlines.
pub(crate) struct Hanging {
    path: PathBuf,
    known: Vec<(i32, Vec<u8>)>,
}

impl Hanging {
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

    /// Returns whether a process still hangs on this mount point.
    pub(crate) fn holds(&self, point: &[u8]) -> bool {
        self.known.iter().any(|(process, known)| known == point && is_there(*process))
    }

    /// Returns how many more mounts can be stored.
    pub(crate) fn room(&self) -> usize {
        MAX_HANGING.saturating_sub(self.known.len())
    }

    /// Stores the mounts that hang `now` with their processes, and the earlier ones that still
    /// hang. Logs the new ones.
    pub(crate) fn remember(mut self, now: Vec<(i32, Vec<u8>)>) {
        let before = self.known.clone();
        self.known.retain(|(process, _)| is_there(*process));
        for (process, point) in now {
            if before.iter().all(|(_, known)| *known != point) {
                let point = std::ffi::OsStr::from_bytes(&point);
                log::warn(format_args!("{} hangs; skipped", point.display()));
            }
            self.known.push((process, point));
        }
        if self.known == before {
            return;
        }
        let text = self.known.iter().flat_map(|(process, point)| {
            [process.to_string().as_bytes(), b" ", point, b"\n"].concat()
        });
        // Without the file, the next report only waits again.
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
    fn remembers_a_mount_while_its_process_exists() {
        let root = crate::runtime::scratch("hanging");
        std::fs::create_dir_all(root.join("run/mote")).unwrap();
        let point = b"/a b".to_vec();
        let ours = i32::try_from(std::process::id()).unwrap();
        Hanging::read(&root).remember(vec![(ours, point.clone())]);
        let ours = Hanging::read(&root);
        assert!(ours.holds(&point) && !ours.holds(b"/a"));
        std::fs::write(root.join(run_dir::HANGING), "2147483647 /a b\nx /c\n0 /d\n\n7\n").unwrap();
        let gone = Hanging::read(&root);
        assert_eq!(gone.known.len(), 2);
        assert!(!gone.holds(&point) && !gone.holds(b"/d"));
        gone.remember(Vec::new());
        assert!(Hanging::read(&root).known.is_empty());
    }
}
