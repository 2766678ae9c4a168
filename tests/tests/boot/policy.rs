//! The guest's policy on its host.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

use mote_core::hostapi::policy::loopholes::COMBINATIONS;
use mote_tests::{NAME, Process, agent, report, wait};
use rustix::fs::OFlags;

use crate::world::{Boot, LIMIT, whole};

#[test]
fn reports_denied_mounts() {
    let boot = Boot::new("lxd");
    boot.put("etc/mote-agent.yml", "features: {guestapi: true, exec: true}\n");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#,
    );
    let _agent = boot.start(&[]);
    boot.logged("agent-mounts.json is not read");
    boot.logged("CONNECTED");
    let add = ["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"];
    let why = boot.host.try_run(&add).unwrap_err();
    assert!(why.contains("the guest's policy does not allow mounts"), "{why}");
    boot.logged("a device event mounts nothing");
    assert!(!boot.root("mnt").exists());
}

#[test]
fn applies_the_policy_for_every_server_and_denies_all_if_invalid() {
    let exec = |boot: &Boot| boot.host.exec(&["true"]);
    for (flavour, file) in [("lxd", "etc/mote-agent.yml"), ("incus", "etc/incus-agent.yml")] {
        let boot = Boot::new(flavour);
        boot.put(file, "features:\n  guestapi: true\n  exec: false\n");
        let mut agent = boot.start(&[]);
        boot.serves();
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("allow exec")));
        agent.kill();
        boot.put(file, "features: {guestapi: true, exec: true}\n");
        agent = boot.start(&["--deny", "guestapi"]);
        boot.logged("STARTED");
        wait("exec", LIMIT, || exec(&boot).ok());
        // The answer names who denies it.
        let (code, text) = boot.ask(&["ready"]);
        let why = "the guest's policy denies guestapi (denied: guestapi files ";
        assert!(code == Some(3) && text.contains(why), "{text}");
        assert!(!boot.log().split("policy: denied").last().unwrap().contains("devlxd on"));
        agent.kill();
        boot.put(file, "features: {exec: *x}\n");
        let _agent = boot.start(&[]);
        boot.logged("line 1: an alias is not supported");
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("policy")));
    }
}

#[test]
fn a_misspelt_policy_denies_everything_and_reports_the_line() {
    for (flavour, file) in [("lxd", "etc/mote-agent.yml"), ("incus", "etc/incus-agent.yml")] {
        let boot = Boot::new(flavour);
        for (text, why) in [
            ("feature:\n  exec: true\n", "line 1: unknown key \"feature\"; known: features"),
            (
                "features:\n  exce: true\n",
                "line 2: unknown feature \"exce\"; known: guestapi, exec,",
            ),
            ("features:\n  exec: 1\n", "line 2: \"1\" is neither true nor false"),
        ] {
            boot.put(file, text);
            let why = format!("{file}: {why}");
            let (code, said) = boot.says(&["--check"]);
            assert!(code != Some(0) && said.contains(&why), "{said}");
            let agent = boot.start(&[]);
            boot.logged(&why);
            let denied = || boot.host.exec(&["true"]).err();
            let (refusal, _) =
                wait("a refusal", LIMIT, || denied().filter(|why| why.contains("policy")));
            assert!(refusal.contains("allow exec: its file is not understood"), "{refusal}");
            let (_, status) = boot.says(&["status"]);
            let policy =
                status.lines().find(|line| line.starts_with("policy: denied: guestapi exec"));
            assert!(policy.is_some_and(|policy| policy.contains(&why)), "{status}");
            drop(agent);
        }
    }
    let boot = Boot::new("lxd");
    for option in ["--deny", "--allow"] {
        let (code, text) = boot.ask(&[option, "exec,ssh"]);
        assert_eq!(code, Some(2));
        assert!(text.contains("unknown feature \"ssh\"; known: guestapi, exec,"), "{text}");
    }
}

#[test]
fn check_warns_of_each_combination() {
    let boot = Boot::new("lxd");
    for row in COMBINATIONS {
        boot.put("etc/mote-agent.yml", &format!("{{{}}}\n", row.file));
        let (_, text) = boot.says(&["--check"]);
        let policy = text.lines().find(|line| line.contains(" policy: ")).expect("a line");
        let expected = row.warning;
        let grade = if expected.is_empty() { "ok " } else { "note " };
        let said = policy.split_once("; limited: ").map_or(policy, |(_, limited)| limited);
        let said = said.split_once("; ").map_or("", |(_, said)| said);
        assert!(policy.starts_with(grade) && said.starts_with(expected), "{row:?}\n{policy}");
        assert_eq!(said.is_empty(), expected.is_empty(), "{row:?}\n{policy}");
    }
}

#[test]
fn check_reports_actions_without_doing_them() {
    let boot = Boot::new("incus");
    boot.share("files/metadata.yaml", "templates: {/etc/x: {template: x}, /etc/y: {template: y}}");
    boot.share("files/x.out", "x");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"incus_d","target":"/mnt/d","fstype":"virtiofs"}]"#,
    );
    boot.put("etc/incus-agent.yml", "features: {exec: true}");
    // Without a port the host would not see it, which the exit code reports.
    whole(&boot);
    let (code, text) = boot.says(&["--check"]);
    assert_eq!(code, Some(0), "{text}");
    for line in [
        "templates: 1 due at start",
        "mounts: incus_d on /mnt/d",
        "policy: denied: guestapi files mounts port-forward metrics state",
        "nics: 0 to be named",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!boot.root("etc/x").exists() && !boot.root("mnt").exists());
}

#[test]
fn does_not_report_a_denied_state_through_the_port() {
    let boot = Boot::new("incus");
    // With a `/proc`, so that there is a state to report, and without vsock.
    report::root(&boot.root(""), [(1, true)].into_iter());
    let port = boot.scratch.0.join("port");
    assert!(Command::new("mkfifo").arg(&port).status().unwrap().success());
    let told = |policy: &[&str]| {
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let mut end = File::options();
        let mut end = end.read(true).write(true).custom_flags(nonblock).open(&port).unwrap();
        let mut command = Command::new(agent());
        command.args(["--flavour", "incus", "--root"]).arg(boot.root(""));
        command.arg("--config-dir").arg(&boot.host.share).arg("--port").arg(&port).args(policy);
        let _agent = Process::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
        // One write arrives as one read.
        let mut text = vec![0; 16 * 1024];
        let (count, _) = wait("STARTED", LIMIT, || end.read(&mut text).ok());
        let text = String::from_utf8_lossy(&text[..count]).into_owned();
        text.strip_prefix("STARTED\n").expect("STARTED first").to_owned()
    };
    let state = told(&[]);
    assert!(state.contains("\"processes\":1,") && state.ends_with("}\n"), "{state}");
    for policy in [["--deny", "state"], ["--allow", "guestapi"]] {
        assert_eq!(told(&policy), "", "{policy:?}");
    }
}

#[test]
fn devlxd_reports_a_missing_vsock() {
    let boot = Boot::new("incus");
    whole(&boot);
    boot.put("sys/class/virtio-ports/vport0p1/name", "org.linuxcontainers.incus\n");
    let command = |words: &[&str]| {
        let mut command = Command::new(agent());
        command.arg("--root").arg(boot.root("")).arg("--config-dir").arg(&boot.host.share);
        command.args(words).stdin(Stdio::null());
        command
    };
    let _agent = Process::start(command(&[]).stderr(Stdio::null()));
    let ask = |words: &[&str]| {
        let output = command(words).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let none = "no vsock: no vsock device in this VM: add one (QEMU's vhost-vsock-pci); its driver is missing, too: module ";
    wait("the view", LIMIT, || {
        ask(&["status"]).1.contains(&format!("last_error: {none}")).then_some(())
    });
    let (code, text) = ask(&["ready"]);
    assert!(text.contains(&format!("it cannot reach the host: {none}")), "{text}");
    assert!(code == Some(3) && !text.contains("lxd"), "{text}");
    let (code, text) = ask(&["--check"]);
    for line in [
        "missing  vsock: no vsock device in this VM: ",
        "the host sees this agent only through the status port\n",
        "ok       devlxd: would be at /dev/incus/sock\n",
        &format!("missing  agent: {none}"),
    ] {
        assert!(text.contains(line), "no {line:?} in:\n{text}");
    }
    assert_eq!(code, Some(1), "{text}");
}
