//! Programs of the guest's administrator that are told before and after. Those made for qemu-ga count too, as they are: each is
//! called with `freeze` or `thaw`.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FileType, stat};

use crate::workers::command::{self, hooks, is_roots};

/// Where they are: mote's, and qemu-ga's as its documents and as Red Hat's packages have them.
const DIRECTORIES: [&str; 3] =
    ["etc/mote/freeze.d", "etc/qemu/fsfreeze-hook.d", "etc/qemu-ga/fsfreeze-hook.d"];

/// All hooks, each directory's by name.
pub(super) fn list(root: &Path) -> Vec<PathBuf> {
    let (mut all, mut seen) = (Vec::<PathBuf>::new(), [(0, 0); DIRECTORIES.len()]);
    for (at, directory) in DIRECTORIES.iter().enumerate() {
        let directory = root.join(directory);
        // One may be a link to another.
        let Ok(found) = stat(&directory) else { continue };
        if seen.contains(&(found.st_dev, found.st_ino)) {
            continue;
        }
        seen.get_mut(at).iter_mut().for_each(|seen| **seen = (found.st_dev, found.st_ino));
        for path in hooks(&directory) {
            if is_program(&path) {
                all.push(path);
            }
        }
    }
    all
}

fn is_program(path: &Path) -> bool {
    is_roots(path, FileType::RegularFile)
}

/// Tells all. If one fails, those that were told are told to undo it, and that one is.
///
/// # Errors
/// Which one failed, and how.
pub(super) fn freeze(hooks: &[PathBuf], limit: Duration) -> io::Result<()> {
    for (at, hook) in hooks.iter().enumerate() {
        if let Err(why) = call(hook, c"freeze", limit) {
            thaw(hooks.get(..=at).unwrap_or_default(), limit);
            return Err(io::Error::other(format!("{}: {why}", hook.display())));
        }
    }
    Ok(())
}

/// Tells these to go on, the last one first. Whether one can changes nothing.
pub(super) fn thaw(hooks: &[PathBuf], limit: Duration) {
    for hook in hooks.iter().rev() {
        let _whatever = call(hook, c"thaw", limit);
    }
}

/// Runs one to its end. It has no output: what it leaves running would keep that open.
fn call(hook: &Path, what: &CStr, limit: Duration) -> io::Result<()> {
    let hook = CString::new(hook.as_os_str().as_bytes()).unwrap_or_default();
    // The guard has nothing else there.
    match command::run(&[&hook, what], io::stdin().as_fd(), limit)? {
        0 => Ok(()),
        code => Err(io::Error::other(format!("exit code {code}"))),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::runtime::scratch::{Scratch, scratch};

    fn put(root: &Path, path: &str, text: &str, mode: u32) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }

    /// Three hooks that note how they are called; the second one ends with this code.
    fn hooks(name: &str, code: u8) -> Scratch {
        let root = scratch(name);
        let noted = root.join("noted");
        let text =
            |code| format!("#!/bin/sh\necho ${{0##*/}} $1 >>{}\nexit {code}\n", noted.display());
        put(&root, "etc/mote/freeze.d/b", &text(0), 0o755);
        put(&root, "etc/mote/freeze.d/a", &text(0), 0o755);
        put(&root, "etc/qemu/fsfreeze-hook.d/c", &text(code), 0o755);
        put(&root, "etc/qemu/fsfreeze-hook.d/d.dpkg-dist", &text(0), 0o755);
        put(&root, "etc/qemu/fsfreeze-hook.d/e", &text(0), 0o644);
        fs::create_dir_all(root.join("etc/qemu/fsfreeze-hook.d/f")).unwrap();
        std::os::unix::fs::symlink("qemu", root.join("etc/qemu-ga")).unwrap();
        root
    }

    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn hooks_are_told_in_order_and_back() {
        let root = hooks("hooks", 0);
        let all = list(&root);
        freeze(&all, LIMIT).unwrap();
        thaw(&all, LIMIT);
        let noted = fs::read_to_string(root.join("noted")).unwrap();
        assert_eq!(noted, "a freeze\nb freeze\nc freeze\nc thaw\nb thaw\na thaw\n");
    }

    #[test]
    fn one_that_others_can_change_is_not_told() {
        let root = hooks("others-hook", 0);
        let names = || {
            let name = |path: &PathBuf| path.file_name().unwrap().to_owned();
            list(&root).iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["a", "b", "c"]);
        let mode = |path: &str, mode| {
            fs::set_permissions(root.join(path), PermissionsExt::from_mode(mode)).unwrap();
        };
        let directory = "etc/mote/freeze.d";
        for bits in [0o777, 0o775, 0o757] {
            mode("etc/mote/freeze.d/a", bits);
            assert_eq!(names(), ["b", "c"], "{bits:o}");
            mode("etc/mote/freeze.d/a", 0o755);
            mode(directory, bits);
            assert_eq!(names(), ["c"], "{bits:o}");
            mode(directory, 0o755);
        }
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(root.join(directory).join("b"), Some(1000), None).unwrap();
            assert_eq!(names(), ["a", "c"]);
        }
    }

    #[test]
    fn one_that_fails_undoes_all_before_it_and_itself() {
        let root = hooks("failing-hook", 3);
        put(&root, "etc/qemu/fsfreeze-hook.d/z", "#!/bin/sh\nexit 0\n", 0o755);
        let why = freeze(&list(&root), LIMIT).unwrap_err().to_string();
        assert!(why.ends_with("/c: exit code 3"), "{why}");
        let noted = fs::read_to_string(root.join("noted")).unwrap();
        assert_eq!(noted, "a freeze\nb freeze\nc freeze\nc thaw\nb thaw\na thaw\n");
        let missing = call(Path::new("/nowhere"), c"freeze", LIMIT).unwrap_err().to_string();
        assert_eq!(missing, "exit code 127");
    }

    #[test]
    fn one_that_hangs_is_killed() {
        let root = scratch("hangs");
        put(&root, "etc/mote/freeze.d/a", "#!/bin/sh\nsleep 60\n", 0o755);
        let begun = std::time::Instant::now();
        let why = freeze(&list(&root), Duration::from_millis(300)).unwrap_err().to_string();
        assert!(why.ends_with("/a: timed out"), "{why}");
        assert!(begun.elapsed() < LIMIT);
    }
}
