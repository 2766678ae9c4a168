//! The guest's policy on its host.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};

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
    boot.logged("ignoring agent-mounts.json");
    boot.logged("CONNECTED");
    let add = ["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"];
    let why = boot.host.try_run(&add).unwrap_err();
    assert!(why.contains("the guest's policy does not allow mounts"), "{why}");
    boot.logged("ignoring a device event");
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
    mote_tests::fifo(&port);
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
