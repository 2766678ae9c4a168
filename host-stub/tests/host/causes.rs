//! Diagnosis: `info`, `wait` and commands report the same cause first.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::peers::agent::Agent;
use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, errors};

fn info(host: &Host) -> Value {
    serde_json::from_str(&host.run(&["info", "vm1", "--json"])).unwrap()
}

/// Waits for this cause. Returns the message, which must be the same in every report.
fn cause(host: &Host, expected: &str) -> String {
    let look = || (info(host)["why"]["cause"] == expected).then_some(());
    let found = mote_machine::found(SOON, look);
    assert!(found.is_some(), "{} instead of {expected}", info(host)["why"]);
    let text = info(host)["why"]["text"].as_str().unwrap().to_owned();
    let shown = host.run(&["info", "vm1"]);
    assert!(shown.contains(&format!("\nIn words     {text}\n")), "{text} in {shown}");
    let waited = host.output(&["wait", "vm1", "--for", "Ready", "--timeout", "0"]);
    if waited.status.code() != Some(0) {
        let said = errors(&waited);
        assert!(said.ends_with(&format!(": {text}\n")), "{text} in {said}");
    }
    text
}

#[test]
fn distinguishes_a_vm_without_a_monitor_from_a_stopped_one() {
    let host = Host::started("lxd", &[]);
    let text = cause(&host, "vm-off");
    assert!(text.contains("mote-host qemu vm1 prints how to boot it"), "{text}");
    let refused = host.try_run(&["exec", "vm1", "--", "true"]).unwrap_err();
    assert_eq!(refused, format!("mote-host: LXD VM agent is not currently running: {text}\n"));
    // QEMU runs without -qmp, but its agent calls.
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
    let text = cause(&host, "monitor-silent");
    let option = format!("-qmp unix:{},server=on,wait=off", host.path("vm1.qmp").display());
    assert!(text.contains(&option) && text.contains("still calls over vsock"), "{text}");
}

#[test]
fn reports_a_paused_vm_as_paused() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    qemu.say("CONNECTED\n");
    host.wait_for("CONNECTED");
    qemu.event("STOP");
    let text = cause(&host, "paused");
    assert!(text.contains("send cont to its other monitor"), "{text}");
    assert_eq!(info(&host)["status"], "Frozen");
    assert!(host.run(&["list"]).contains("Frozen"));
    qemu.event("RESUME");
    cause(&host, "connected");
    qemu.event("GUEST_PANICKED");
    cause(&host, "panicked");
    // The host also notices a VM that was paused before the host connected.
    let (mut host, qemu) = Host::with_vm("lxd", &[]);
    host.kill();
    qemu.inner().does = "paused";
    host.start();
    cause(&host, "paused");
}

#[test]
fn reports_which_side_has_another_certificate() {
    let (host, qemu) = Host::with_vm("incus", &[]);
    // This agent has the share of another instance.
    let other = host.init("vm2", "incus", &[]);
    let socket = host.path("vm1.p.listen_8443");
    let agent = Agent::start(&socket, &other, "incus-agent");
    qemu.say("STARTED\n");
    let text = cause(&host, "agents-certificate");
    assert_eq!(agent.lines(), Vec::<String>::new(), "it got nothing");
    assert!(text.contains("agent.crt") && text.contains("create the config disk again"), "{text}");
    // This agent has the right certificate, but knows another host.
    let mixed = host.path("mixed");
    std::fs::create_dir(&mixed).unwrap();
    for (from, file) in
        [("vm1", "agent.crt"), ("vm1", "agent.key"), ("vm2", "server.crt"), ("vm2", "agent.conf")]
    {
        std::fs::copy(host.share(from).join(file), mixed.join(file)).unwrap();
    }
    std::fs::remove_file(&socket).unwrap();
    let _agent = Agent::start(&socket, &mixed, "incus-agent");
    qemu.say("STOPPED\nSTOPPED\n");
    host.wait_for("STOPPED");
    let refused = host.try_run(&["exec", "vm1", "--", "true"]).unwrap_err();
    assert!(refused.starts_with("mote-host: VM agent isn't currently running: "), "{refused}");
    qemu.say("STARTED\n");
    let text = cause(&host, "hosts-certificate");
    assert!(text.contains("server.crt") && text.contains("create the config disk again"), "{text}");
    let error = host.try_run(&["exec", "vm1", "--", "true"]).unwrap_err();
    assert!(error.starts_with(&format!("mote-host: {text}")), "{error}");
    assert!(error.ends_with(": agent: received fatal alert: AccessDenied\n"), "{error}");
    assert_eq!(error.matches("the agent rejects").count(), 1, "{error}");
}

#[test]
fn distinguishes_a_lost_agent_from_one_that_never_started() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    let socket = host.path("vm1.p.listen_8443");
    let _agent = Agent::of(&host, "lxd-agent");
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    cause(&host, "connected");
    // Simulates that the device's process was killed, or its package removed.
    std::fs::remove_file(&socket).unwrap();
    let text = cause(&host, "agent-gone");
    assert!(text.contains("without reporting STOPPED") && text.contains("start it"), "{text}");
    for args in [&["exec", "vm1", "--", "true"][..], &["file", "ls", "vm1/"], &["state", "vm1"]] {
        let error = host.try_run(args).unwrap_err();
        assert!(error.starts_with(&format!("mote-host: {text} (")), "{args:?}: {error}");
        assert!(error.ends_with("No such file or directory)\n"), "{args:?}: {error}");
    }
}

#[test]
fn keeps_vm_and_ready_after_stopped() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    let _agent = Agent::of(&host, "lxd-agent");
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    let ready = r#"{"state":"Ready"}"#;
    assert_eq!(Guest::of(&host).ask("PATCH", "/1.0", ready).0, 200);
    qemu.say("STOPPED\n");
    let text = cause(&host, "stopped");
    assert!(text.contains("VM still runs") && text.contains("had reported Ready"), "{text}");
    let list = host.output(&["list"]);
    let (rows, note) = (String::from_utf8_lossy(&list.stdout), errors(&list));
    assert!(rows.contains("Ready") && rows.contains("STOPPED"), "{rows}");
    assert_eq!(note, format!("mote-host: vm1: {text}\n"));
    let list = host.output(&["list", "--json"]);
    assert_eq!(list.stderr, b"");
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    assert_eq!(list[0]["why"]["cause"], "stopped");
}

#[test]
fn stop_presses_the_power_button_and_does_not_end_the_vm() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    let error = host.try_run(&["stop", "vm1", "--timeout", "0.3"]).unwrap_err();
    assert!(error.contains("vm1 did not power off within 0.3 s: does its guest handle"), "{error}");
    assert!(qemu.is_ordered("system_powerdown") && !qemu.is_ordered("quit"));
}

#[test]
fn wait_reports_the_end_of_the_vm() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    let mut waiting = host.command(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "600"]);
    let waiting = mote_machine::bounded(waiting.stderr(Stdio::piped())).unwrap();
    // The host must have seen the VM run.
    std::thread::sleep(mote_machine::patient(std::time::Duration::from_millis(300)));
    qemu.event_with("SHUTDOWN", &json!({"guest": true, "reason": "guest-panic"}));
    drop(qemu);
    let output = waiting.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    let begin = "mote-host: vm1 is not CONNECTED: the guest's kernel panicked";
    assert!(said.starts_with(begin), "{said}");
}
