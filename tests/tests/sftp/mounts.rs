//! Mounts on or below a directory that a session is limited to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mote_tests::sftp::{Int, Long, Reply, Session, Text, kind, open};
use mote_tests::{Scratch, agent, by_root, put, wait};

use crate::limits::{DENIED, NO_SUCH_FILE};

/// Starts a server that shows this directory, in a mount namespace where `script` ran before. As in
/// a guest, mounts propagate to other namespaces. `later` runs whenever the test creates the file
/// `go`.
fn shows(scratch: &Scratch, directory: &Path, script: &str, later: &str) -> Session {
    let place = scratch.0.display();
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("run/mote")).unwrap();
    let script = format!(
        "set -e; cd {place}; mount --make-rshared /; {script}\n\
         {{ while [ ! -e go ] && [ -d root ]; do sleep 0.05; done; {later}; touch gone; }} </dev/null >/dev/null 2>&1 &\n\
         exec {} --root {} sftp-server -b {}",
        agent().display(),
        root.display(),
        directory.display()
    );
    let mut command = Command::new("unshare");
    let mut session = Session::with(command.args(["-m", "sh", "-c", &script]));
    session.hello();
    session
}

fn go(scratch: &Scratch) {
    put(scratch.0.join("go"), "");
    let gone = scratch.0.join("gone");
    wait("the mount", Duration::from_secs(20), || gone.exists().then_some(()));
}

#[test]
fn does_not_show_mounts_below_a_directory() {
    let true = by_root() else { return };
    let scratch = Scratch::new();
    let shown = scratch.0.join("shown");
    for name in ["proc", "all", "later", "data", "sys"] {
        fs::create_dir_all(shown.join(name)).unwrap();
    }
    let before = "mount -t proc proc shown/proc; mount --rbind / shown/all; \
                  mount -t tmpfs tmpfs shown/data; touch shown/data/x; mount -t sysfs sysfs shown/sys";
    let mut session = shows(&scratch, &shown, before, "mount -t proc proc shown/later");
    let path = |name: &str| shown.join(name).as_os_str().as_bytes().to_owned();
    for turn in ["before", "after"] {
        for name in ["proc", "all", "data", "sys", "later"] {
            assert!(session.list(&path(name)).is_empty(), "{name} {turn}");
        }
        for name in ["proc/self/root/etc/passwd", "later/1/root/etc/passwd", "all/etc/passwd"] {
            assert_eq!(session.ask(kind::STAT, &[Text(&path(name))]), NO_SUCH_FILE, "{name}");
        }
        if turn == "before" {
            go(&scratch);
        }
    }
    let handle = session.open(&path("new"), open::WRITE | open::CREATE);
    session.done(kind::WRITE, &[Text(&handle), Long(0), Text(b"x")]);
    assert!(shown.join("new").exists());
}

#[test]
fn shows_a_directory_that_is_a_mount_point() {
    let true = by_root() else { return };
    let scratch = Scratch::new();
    let shown = scratch.0.join("shown");
    fs::create_dir_all(&shown).unwrap();
    let before = "mount -t tmpfs tmpfs shown; touch shown/x; mount -o remount,bind,ro shown";
    let mut session = shows(&scratch, &shown, before, "true");
    assert_eq!(session.list(shown.as_os_str().as_bytes()).len(), 1);
    let new = shown.join("new");
    let fields = [Text(new.as_os_str().as_bytes()), Int(open::WRITE | open::CREATE), Int(0)];
    assert_eq!(session.ask(kind::OPEN, &fields), Reply::Status(4), "read-only");
}

#[test]
fn does_not_show_proc_below_a_directory() {
    let true = by_root() else { return };
    let scratch = Scratch::new();
    let shown = scratch.0.join("shown");
    fs::create_dir_all(&shown).unwrap();
    for directory in [shown.clone(), "/proc/self".into(), "/proc/sys/kernel".into()] {
        let mut session = shows(&scratch, &directory, "mount -t proc proc shown", "true");
        assert_eq!(session.ask(kind::STAT, &[Text(b"/")]), DENIED, "{}", directory.display());
    }
}
