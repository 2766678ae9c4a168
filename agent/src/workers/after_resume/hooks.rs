//! Runs the administrator's hooks after a resume.

use std::ffi::CString;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use crate::runtime::log;
use crate::workers::command::{self, hooks};

pub(super) const DIRECTORY: &str = "/etc/mote/restored.d";
/// Time limit of one hook.
const LIMIT: Duration = Duration::from_secs(30);

/// Runs the hooks that only root can modify, in name order, with this argument, even after a
/// failure. Their output goes to the log.
pub(super) fn tell(directory: &Path, kind: &str) -> u8 {
    let kind = CString::new(kind).unwrap_or_default();
    for hook in hooks(directory) {
        let name = CString::new(hook.as_os_str().as_bytes()).unwrap_or_default();
        if !matches!(command::run(&[&name, &kind], io::stderr().as_fd(), LIMIT), Ok(0)) {
            log::warn(format_args!("{}: failed", hook.display()));
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, read_to_string};

    use super::*;
    use crate::runtime::{chmod, put_mode, scratch};

    #[test]
    fn runs_only_roots_hooks_in_name_order() {
        let root = scratch("restored");
        let (hooks, noted) = (root.join("hooks"), root.join("noted"));
        let text = format!("#!/bin/sh\necho ${{0##*/}} $1 >>{}\nexit 1\n", noted.display());
        for name in ["20-b", "10-a", "10-a~", "b.bak"] {
            put_mode(&hooks, name, &text, 0o755);
        }
        for (name, mode) in [("10-a", 0o700), ("c", 0o644), ("d", 0o777)] {
            put_mode(&hooks, name, &text, mode);
        }
        create_dir_all(hooks.join("e")).unwrap();
        chmod(&hooks, 0o755);
        tell(&hooks, "restored");
        let noted = || read_to_string(&noted).unwrap();
        assert_eq!(noted(), "10-a restored\n20-b restored\n");
        chmod(&hooks, 0o777);
        tell(&hooks, "paused");
        assert!(!noted().contains("paused"));
    }
}
