//! `freeze` and `thaw` end, and hooks run for the thaw, even if something hangs or fails. A file lists the mounts,
//! so nothing of the machine that runs the test is frozen.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mote_tests::{agent, is_root, kill, program, skipped, wait};
use rustix::process::Signal;

use super::fuse::Fuse;
use crate::world::{Boot, LIMIT, in_private_mounts, mount};

/// Returns a guest with these mounts, and a hook that records its calls.
fn guest(mounts: &[(&str, &Path)]) -> Boot {
    let boot = Boot::new("lxd");
    let line = |(at, (kind, point)): (usize, &(&str, &Path))| {
        format!("1 2 8:{at} / {} rw - {kind} /dev/x rw\n", point.display())
    };
    boot.put("proc/self/mountinfo", &mounts.iter().enumerate().map(line).collect::<String>());
    hook(&boot, "exit 0");
    boot
}

/// Has the hook record its calls and run `then`.
fn hook(boot: &Boot, then: &str) {
    let noted = boot.root("noted");
    let text = format!("#!/bin/sh\necho $1 >>{}\n{then}\n", noted.display());
    program(boot.root("etc/mote/freeze.d/hook"), text);
}

fn says(boot: &Boot, args: &[&str]) -> (Option<i32>, String) {
    told(boot, boot.command(args))
}

fn told(boot: &Boot, mut command: Command) -> (Option<i32>, String) {
    let said = boot.scratch.0.join("said");
    let file = fs::File::create(&said).expect("it works");
    command.stdout(file.try_clone().expect("it works")).stderr(file).stdin(Stdio::null());
    let mut child = command.spawn().expect("it works");
    let (status, _) = wait("its end", LIMIT, || child.try_wait().expect("it works"));
    (status.code(), fs::read_to_string(said).expect("it works"))
}

fn can(test: &str, needs: &str) -> bool {
    if !is_root() || !Path::new(needs).exists() {
        skipped(&format!("root and {needs}"));
        return false;
    }
    in_private_mounts(&format!("stuck::freeze::{test}"))
}

#[test]
fn runs_hooks_for_the_thaw_if_freezing_fails() {
    let true = can("runs_hooks_for_the_thaw_if_freezing_fails", "/proc") else { return };
    // This mount cannot be frozen.
    let boot = guest(&[("ext4", Path::new("/proc"))]);
    let (code, said) = says(&boot, &["freeze"]);
    assert_eq!((code, said.as_str()), (Some(1), "mote-agent: nothing here can be frozen\n"));
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    hook(&boot, "exit 3");
    let (code, said) = says(&boot, &["freeze"]);
    let hook = boot.root("etc/mote/freeze.d/hook").display().to_string();
    let why = format!("mote-agent: {hook} freeze: exit code 3; {hook} thaw: exit code 3\n");
    assert_eq!((code, said), (Some(1), why));
}

#[test]
fn a_hanging_open_delays_neither_hooks_nor_thaw() {
    let true = can("a_hanging_open_delays_neither_hooks_nor_thaw", "/dev/fuse") else { return };
    let place = mote_tests::Scratch::new();
    let dead = Fuse::mount(&place.0);
    dead.fall_silent();
    let file = dead.file();
    // The path leads through it.
    let boot = guest(&[("ext4", Path::new("/proc")), ("ext4", &file)]);
    let (code, said) = says(&boot, &["freeze", "--for", "1s"]);
    let why = format!("mote-agent: {}: out of time, or it hangs\n", file.display());
    assert_eq!((code, said), (Some(1), why));
    assert_eq!(boot.text("noted"), "", "a hook was called");
    for (command, answer) in
        [(&["thaw"][..], "mote-agent: not frozen\n"), (&["freeze", "--status"], "not frozen\n")]
    {
        assert_eq!(says(&boot, command).1, answer);
    }
    // It covers the path, which must not be opened.
    let _asked = dead.read.try_iter().count();
    let boot = guest(&[("ext4", &file), ("fuse", &place.0), ("ext4", Path::new("/proc"))]);
    let (code, said) = says(&boot, &["freeze"]);
    assert_eq!((code, said.as_str()), (Some(1), "mote-agent: nothing here can be frozen\n"));
    assert_eq!(dead.read.try_iter().count(), 0, "it was asked");
}

fn disk(boot_dir: &Path) -> PathBuf {
    let (image, point) = (boot_dir.join("image"), boot_dir.join("point"));
    fs::File::create(&image).expect("it works").set_len(4 << 20).expect("it works");
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).status();
    assert!(made.expect("it works").success());
    fs::create_dir(&point).expect("it works");
    mount(&["-o", "loop", &image.display().to_string()], &point);
    point
}

#[test]
fn reports_a_hook_that_fails_at_the_thaw() {
    let true = can("reports_a_hook_that_fails_at_the_thaw", "/dev/loop-control") else { return };
    let place = mote_tests::Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    let frozen = format!("frozen for 60 s: {}\n", point.display());
    hook(&boot, "[ $1 = freeze ] || exit 3");
    assert_eq!(says(&boot, &["freeze"]), (Some(0), frozen.clone()));
    let hook_path = boot.root("etc/mote/freeze.d/hook").display().to_string();
    let why = format!("mote-agent: thawed, but a hook failed; {hook_path} thaw: exit code 3\n");
    assert_eq!(says(&boot, &["thaw"]), (Some(5), why));
    fs::write(point.join("file"), "it is thawed").unwrap();
    // The next freeze is not affected.
    hook(&boot, "exit 0");
    assert_eq!(says(&boot, &["freeze"]), (Some(0), frozen));
    assert_eq!(says(&boot, &["thaw"]), (Some(0), "thawed\n".to_owned()));
    fs::write(point.join("file"), "it is thawed").unwrap();
}

#[test]
fn thaw_runs_hooks_if_the_guard_was_killed() {
    let true = can("thaw_runs_hooks_if_the_guard_was_killed", "/dev/loop-control") else { return };
    let place = mote_tests::Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    let kill_guard = || {
        let state = fs::read(boot.root("run/mote/freeze")).expect("it works");
        let guard = u32::from_le_bytes(state[8..12].try_into().expect("it works"));
        kill(Signal::KILL, guard);
        let status = || says(&boot, &["freeze", "--status"]).1;
        wait("its end", LIMIT, || (status() == "not frozen\n").then_some(()));
    };
    assert_eq!(says(&boot, &["freeze"]).0, Some(0));
    kill_guard();
    let unguarded = "mote-agent: thawed file systems that had no guard\n".to_owned();
    // The caller may ignore SIGCHLD, which a program inherits.
    let by = ["env", "--ignore-signal=CHLD"];
    let mut thaw = agent::command_by(&by, &boot.scratch.0, "lxd", &boot.host.share);
    thaw.arg("thaw");
    assert_eq!(told(&boot, thaw), (Some(1), unguarded));
    fs::write(point.join("file"), "it is thawed").unwrap();
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    // Once, and only the hooks that ran for the freeze.
    assert_eq!(says(&boot, &["thaw"]), (Some(1), "mote-agent: not frozen\n".to_owned()));
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    // While the agent calls them.
    hook(&boot, "[ $1 = thaw ] || sleep 9999");
    let mut freeze = boot.command(&["freeze"]).stderr(Stdio::null()).spawn().expect("it works");
    wait("its call", LIMIT, || boot.text("noted").ends_with("thaw\nfreeze\n").then_some(()));
    kill_guard();
    assert_eq!(wait("its end", LIMIT, || freeze.try_wait().expect("it works")).0.code(), Some(1));
    assert_eq!(says(&boot, &["thaw"]).0, Some(1));
    assert_eq!(boot.text("noted"), "freeze\nthaw\nfreeze\nthaw\n");
}

#[test]
fn freezes_nothing_that_it_cannot_record() {
    let true = can("freezes_nothing_that_it_cannot_record", "/dev/loop-control") else { return };
    let place = mote_tests::Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    boot.put("run/mote/x", "");
    mount(&["-t", "tmpfs", "-o", "size=4k", "none"], &boot.root("run/mote"));
    fs::write(boot.root("run/mote/full"), [1; 4096]).expect("it works");
    let (code, said) = says(&boot, &["freeze"]);
    assert!(code == Some(1) && said.contains("No space left"), "{code:?} {said}");
    fs::write(point.join("file"), "it is not frozen").unwrap();
    assert_eq!(boot.text("noted"), "");
}
