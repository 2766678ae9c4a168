//! `--check` with one problem of a guest at a time. The output names what was expected, what was found
//! and what to do, and the exit code says whether the host will see the agent.

mod rows;
mod running;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::SystemTime;

use mote_tests::{agent, copy_program, is_root};
use serde_json::Value;

use crate::check::rows::Row;
use crate::world::{Boot, NOBODY, in_private_mounts, whole};

/// Collects each path of a guest with its modification time.
fn tree(directory: &Path, into: &mut BTreeMap<PathBuf, SystemTime>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let about = entry.metadata().expect("the guest");
        into.insert(entry.path(), about.modified().expect("a time"));
        if about.is_dir() {
            tree(&entry.path(), into);
        }
    }
}

fn begin(mut command: Command, args: &[&str]) -> Child {
    let command = command.args(args).arg("--check").stdin(Stdio::null()).stdout(Stdio::piped());
    mote_tests::bounded(command).expect("an agent")
}

fn end(check: Child) -> (Option<i32>, String) {
    let output = check.wait_with_output().expect("an agent");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check(command: Command, args: &[&str]) -> (Option<i32>, String) {
    end(begin(command, args))
}

/// Returns the lines of the document that `--check --json` printed, which must agree with its exit
/// code.
fn lines_of((code, text): &(Option<i32>, String)) -> String {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!(document["ok"], *code == Some(0), "{text}");
    let facts = document["facts"].as_array().expect("facts");
    let word = |fact: &Value, key: &str| fact[key].as_str().expect("a word").to_owned();
    let first = &facts[0];
    let cause = if first["mark"] == "missing" { first["text"].clone() } else { Value::Null };
    assert_eq!(document["cause"], cause, "{text}");
    let line = |fact| {
        format!("{:<9}{}: {}\n", word(fact, "mark"), word(fact, "about"), word(fact, "text"))
    };
    facts.iter().map(line).collect()
}

/// Checks a guest in which only this is broken, and perhaps the share is not mounted. Nothing is
/// written, problems come first, and the JSON document agrees.
fn hold(&(breaks, args, line): &Row, has_share: bool) {
    let boot = Boot::new("lxd");
    let command = || if has_share { boot.command(&[]) } else { bare(&boot) };
    whole(&boot);
    breaks(&boot);
    let (mut before, mut after) = <(BTreeMap<_, _>, BTreeMap<_, _>)>::default();
    tree(&boot.root(""), &mut before);
    // Some rows wait for a device.
    let json = begin(command(), &[args, &["--json"]].concat());
    let (code, text) = check(command(), args);
    let json = end(json);
    tree(&boot.root(""), &mut after);
    assert_eq!(before, after);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the guest");
    let expected = line
        .replace("{none}", "No such file or directory (os error 2)")
        .replace("{lib}", &format!("{{root}}/lib/modules/{}", release.trim()))
        .replace("{root}", boot.root("").to_str().expect("the guest").trim_end_matches('/'))
        .replace("{share}", boot.host.share.to_str().expect("the guest"));
    assert!(text.lines().any(|other| other == expected), "no {expected:?} in:\n{text}");
    let is_seen = has_share && !line.starts_with("missing");
    assert_eq!(code, Some(i32::from(!is_seen)), "{line}:\n{text}");
    assert_eq!(text.starts_with("missing  "), !is_seen, "{text}");
    assert_eq!(lines_of(&json), text);
    let _mounted = Command::new("umount").arg(boot.root("run")).stderr(Stdio::null()).status();
}

/// Returns the agent for a guest whose config share is not mounted yet, in an empty directory.
fn bare(boot: &Boot) -> Command {
    let mut command = Command::new(agent());
    command.arg("--root").arg(boot.root("")).current_dir(boot.root("etc"));
    command
}

#[test]
fn check_reports_what_hides_the_agent_from_its_host() {
    rows::PORTS.iter().chain(rows::FILES).for_each(|row| hold(row, true));
    rows::BARE.iter().for_each(|row| hold(row, false));
}

#[test]
fn check_reports_a_full_or_read_only_run() {
    if in_private_mounts("check::check_reports_a_full_or_read_only_run") {
        rows::MOUNTS.iter().for_each(|row| hold(row, false));
    }
}

#[test]
fn check_reports_missing_privileges() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let secret = |path: &str, mode| {
        fs::set_permissions(boot.root(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    secret("run/mote", 0o000);
    secret("dev/vport0p1", 0o000);
    // Where any user may read it: a home directory may be private, as root's is.
    let copy = boot.scratch.0.join("agent-of-all");
    copy_program(&agent(), &copy);
    let ask = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(boot.command(args).get_args()).stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = ask(&["--check"]);
    let root = boot.root("").display().to_string();
    for line in [
        "missing  port: {root}/dev/vport0p1: {denied}: run the agent as root",
        "missing  run: cannot write {root}/run/mote: {denied}; run the agent as root",
        "note     agent: cannot open {root}/run/mote/lock: {denied}; run the command as root",
    ] {
        let line = line.replace("{root}", root.trim_end_matches('/'));
        let line = line.replace("{denied}", "Permission denied (os error 13)");
        assert!(text.lines().any(|other| other == line), "no {line:?} in:\n{text}");
    }
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = ask(&["status"]);
    assert!(code == Some(3) && text.contains("run the command as root"), "{text}");
    assert!(!text.contains("running: no"), "{text}");
    secret("run/mote", 0o700);
}
