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
    use std::fs::{create_dir_all, read_to_string, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::runtime::scratch;

    #[test]
    fn runs_only_roots_hooks_in_name_order() {
        let root = scratch("restored");
        let put = |path: &str, mode| {
            let path = root.join("hooks").join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            let noted = root.join("noted");
            write(&path, format!("#!/bin/sh\necho ${{0##*/}} $1 >>{}\nexit 1\n", noted.display()))
                .unwrap();
            set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        };
        let hooks = root.join("hooks");
        for (name, mode) in [
            ("20-b", 0o755),
            ("10-a", 0o700),
            ("c", 0o644),
            ("d", 0o777),
            ("10-a~", 0o755),
            ("b.bak", 0o755),
        ] {
            put(name, mode);
        }
        create_dir_all(hooks.join("e")).unwrap();
        set_permissions(&hooks, PermissionsExt::from_mode(0o755)).unwrap();
        tell(&hooks, "restored");
        let noted = || read_to_string(root.join("noted")).unwrap();
        assert_eq!(noted(), "10-a restored\n20-b restored\n");
        set_permissions(&hooks, PermissionsExt::from_mode(0o777)).unwrap();
        tell(&hooks, "paused");
        assert!(!noted().contains("paused"));
    }
}
