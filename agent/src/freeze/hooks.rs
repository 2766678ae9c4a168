//! Runs the administrator's hooks before a freeze (`freeze`) and after it (`thaw`), including
//! unmodified ones for qemu-ga.

use std::ffi::{CStr, CString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FileType;
use rustix::stdio::stdin;

use crate::runtime::{io_error, read_bounded};
use crate::sys::{self, file};
use crate::workers::command::{self, hooks, is_roots};

use super::about;

/// Directories of hooks: mote's, qemu-ga's according to its documentation, and Red Hat's; each with
/// the program that qemu-ga runs.
const PLACES: [(&str, &str); 3] = [
    ("etc/mote/freeze.d", ""),
    ("etc/qemu/fsfreeze-hook.d", "etc/qemu/fsfreeze-hook"),
    ("etc/qemu-ga/fsfreeze-hook.d", "etc/qemu-ga/fsfreeze-hook"),
];
/// Maximum size of a script to search for its directory's name, in bytes; qemu-ga's has 1,200.
const SCRIPT: u64 = 64 * 1024;
/// Time limit for one hook at the thaw.
const THAW: Duration = Duration::from_secs(60);

/// Returns all hooks: for each directory, the program that qemu-ga runs, then the files by name.
pub(super) fn list(root: &Path) -> Vec<PathBuf> {
    let (mut all, mut seen) = (Vec::<PathBuf>::new(), Vec::new());
    for (directory, one) in &PLACES {
        let (directory, one) = (root.join(directory), root.join(one));
        let mut is_new = |path: &Path| {
            let Ok(found) = file::id(path) else { return false };
            let is_new = !seen.contains(&found);
            seen.push(found);
            is_new
        };
        if is_roots(&one, FileType::RegularFile) && !runs_its_directory(&one) && is_new(&one) {
            all.push(one);
        }
        if is_new(&directory) {
            all.extend(hooks(&directory));
        }
    }
    all
}

/// Returns whether this is qemu-ga's own script, which runs the hooks in its directory. mote runs
/// them itself, because the script ignores failures.
fn runs_its_directory(program: &Path) -> bool {
    const NAME: &[u8] = b"fsfreeze-hook.d";
    let text = read_bounded(program, SCRIPT).unwrap_or_default();
    text.windows(NAME.len()).any(|part| part == NAME)
}

/// Appends a failure to a text and logs it.
type Note = fn(&mut String, &str);

/// Runs all hooks with `freeze`, until this time since boot. If one fails, runs it and those before
/// it with `thaw`. Errors: the hook that failed, and why.
pub(super) fn freeze(hooks: &[PathBuf], until: Duration, note: Note) -> io::Result<()> {
    for (at, hook) in hooks.iter().enumerate() {
        let limit = until.saturating_sub(sys::since_boot());
        if let Err(mut why) = call(hook, c"freeze", limit) {
            thaw(hooks.get(..=at).unwrap_or_default(), &mut why, note);
            return Err(io_error(why));
        }
    }
    Ok(())
}

/// Runs all hooks with `thaw` in reverse order, even after failures. Returns false if one failed.
pub(super) fn thaw(hooks: &[PathBuf], failed: &mut String, note: Note) -> bool {
    let mut is_well = true;
    for hook in hooks.iter().rev() {
        if let Err(why) = call(hook, c"thaw", THAW) {
            note(failed, &why);
            is_well = false;
        }
    }
    is_well
}

/// Runs a hook to its end, without output: a process that it leaves behind would keep a pipe open.
/// Errors: the hook and why it failed.
fn call(hook: &Path, what: &CStr, limit: Duration) -> Result<(), String> {
    let name = CString::new(hook.as_os_str().as_bytes()).unwrap_or_default();
    // The guard's standard input is /dev/null, so the hook's output is discarded.
    let why = match command::run(&[&name, what], stdin(), limit) {
        Ok(0) => return Ok(()),
        Ok(code) => format!("exit code {code}"),
        Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
            "neither a program nor a script that begins with #!".to_owned()
        }
        Err(error) => error.to_string(),
    };
    let mut name = name.into_bytes();
    name.push(b' ');
    name.extend_from_slice(what.to_bytes());
    Err(about(&CString::new(name).unwrap_or_default(), &why))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::{Scratch, chmod, put_mode, scratch};

    /// Creates three hooks that record their calls; the second one exits with this code.
    fn hooks(name: &str, code: u8) -> Scratch {
        let root = scratch(name);
        let noted = root.join("noted");
        let text =
            |code| format!("#!/bin/sh\necho ${{0##*/}} $1 >>{}\nexit {code}\n", noted.display());
        put_mode(&root, "etc/mote/freeze.d/b", text(0), 0o755);
        put_mode(&root, "etc/mote/freeze.d/a", text(0), 0o755);
        put_mode(&root, "etc/qemu/fsfreeze-hook.d/c", text(code), 0o755);
        put_mode(&root, "etc/qemu/fsfreeze-hook.d/d.dpkg-dist", text(0), 0o755);
        put_mode(&root, "etc/qemu/fsfreeze-hook.d/e", text(0), 0o644);
        fs::create_dir_all(root.join("etc/qemu/fsfreeze-hook.d/f")).unwrap();
        std::os::unix::fs::symlink("qemu", root.join("etc/qemu-ga")).unwrap();
        root
    }

    const LIMIT: Duration = Duration::from_secs(20);

    fn note(failed: &mut String, text: &str) {
        *failed += &format!("; {text}");
    }

    /// Runs all hooks with `freeze`, with this much time left.
    fn freeze_within(root: &Path, left: Duration) -> io::Result<()> {
        freeze(&list(root), sys::since_boot() + left, note)
    }

    #[test]
    fn skips_hooks_that_users_can_change() {
        let root = hooks("others-hook", 0);
        let names = || {
            let name = |path: &PathBuf| path.file_name().unwrap().to_owned();
            list(&root).iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(), ["a", "b", "c"]);
        let mode = |path: &str, mode| chmod(&root.join(path), mode);
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
    fn a_failed_hook_thaws_itself_and_all_before() {
        let root = hooks("failing-hook", 3);
        put_mode(&root, "etc/qemu/fsfreeze-hook.d/z", "#!/bin/sh\nexit 0\n", 0o755);
        let why = freeze_within(&root, LIMIT).unwrap_err().to_string();
        assert!(why.contains("/c freeze: exit code 3; "), "{why}");
        assert!(why.ends_with("/c thaw: exit code 3"), "{why}");
        let noted = fs::read_to_string(root.join("noted")).unwrap();
        assert_eq!(noted, "a freeze\nb freeze\nc freeze\nc thaw\nb thaw\na thaw\n");
    }

    #[test]
    fn reports_why_a_hook_cannot_be_executed() {
        let root = scratch("no-program");
        for (text, wanted) in [
            ("echo there\n", "neither a program nor a script that begins with #!"),
            ("#!/nowhere/sh\n", "No such file or directory (os error 2)"),
        ] {
            put_mode(&root, "etc/mote/freeze.d/a", text, 0o755);
            let why = freeze_within(&root, LIMIT).unwrap_err().to_string();
            assert!(why.contains(&format!("/a freeze: {wanted}")), "{why}");
        }
    }

    #[test]
    fn kills_a_hanging_hook() {
        let root = scratch("hangs");
        put_mode(&root, "etc/mote/freeze.d/a", "#!/bin/sh\n[ $1 = thaw ] || sleep 60\n", 0o755);
        put_mode(&root, "etc/mote/freeze.d/b", "#!/bin/sh\nsleep 60\n", 0o755);
        let begun = std::time::Instant::now();
        let why = freeze_within(&root, Duration::from_millis(300)).unwrap_err().to_string();
        assert!(why.ends_with("/a freeze: timed out"), "{why}");
        assert!(begun.elapsed() < LIMIT);
    }

    #[test]
    fn runs_the_hook_of_qemu_ga_unless_it_runs_the_directory() {
        let root = hooks("one-hook", 0);
        let names = || {
            let name = |path: &PathBuf| path.strip_prefix(&root).unwrap().display().to_string();
            list(&root).iter().map(name).collect::<Vec<_>>()
        };
        let all = ["etc/mote/freeze.d/a", "etc/mote/freeze.d/b", "etc/qemu/fsfreeze-hook.d/c"];
        let theirs = "#!/bin/sh\nFSFREEZE_D=$(dirname -- \"$0\")/fsfreeze-hook.d\n";
        for (text, mode, is_run) in
            [("#!/bin/sh\n", 0o755, true), ("#!/bin/sh\n", 0o644, false), (theirs, 0o755, false)]
        {
            put_mode(&root, "etc/qemu/fsfreeze-hook", text, mode);
            let mut wanted = all.to_vec();
            if is_run {
                wanted.insert(2, "etc/qemu/fsfreeze-hook");
            }
            assert_eq!(names(), wanted);
        }
        // The directory is missing.
        fs::remove_dir_all(root.join("etc/qemu/fsfreeze-hook.d")).unwrap();
        put_mode(&root, "etc/qemu/fsfreeze-hook", "#!/bin/sh\n", 0o755);
        assert_eq!(names().last().unwrap(), "etc/qemu/fsfreeze-hook");
    }
}
