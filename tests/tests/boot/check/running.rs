//! `--check` and `status` next to a running agent: both report what its log says, and whether the
//! host can use it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use mote_tests::conform::client::Caller;
use mote_tests::{Host, Process, Scratch, Terminal, agent, wait};
use serde_json::Value;

use crate::check::rows::two_servers;
use crate::check::{bare, check, lines_of};
use crate::world::{Boot, LIMIT, whole};

/// Calls the agent with a certificate other than the host's.
fn intrude(boot: &Boot) {
    let called = boot.client().connect_as(Caller::Untrusted);
    let answer = called.and_then(|mut wire| wire.ask("GET", "/1.0", "", b""));
    assert!(answer.is_err(), "{answer:?}");
}

/// Returns the output of `status --json`, and its exit code.
fn status(boot: &Boot) -> (Option<i32>, Value) {
    let (code, text) = boot.says(&["status", "--json"]);
    let document = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
    (code, document)
}

/// Checks that log, status and check report this, and that the host cannot use the agent.
fn assert_blocked(boot: &Boot, why: &str) {
    boot.logged(&format!("warn: {why}"));
    wait("the view", LIMIT, || (status(boot).1["last_error"] == why).then_some(()));
    let (code, view) = status(boot);
    assert_eq!((code, &view["blocked"]), (Some(4), &Value::Bool(true)), "{view}");
    let (code, text) = boot.ask(&["status"]);
    assert_eq!((code, text), (Some(4), format!("mote-agent: {why}\n")));
    let (code, text) = check(boot.command(&[]), &[]);
    assert!(code == Some(1) && text.starts_with(&format!("missing  agent: {why}\n")), "{text}");
}

#[test]
fn check_distinguishes_an_unread_policy() {
    let boot = Boot::new("lxd");
    let agent = boot.start(&[]);
    boot.logged("CONNECTED");
    let theirs =
        "note     policy: the running agent has another one until SIGHUP: everything is allowed\n";
    let text = check(boot.command(&[]), &[]).1;
    assert!(!text.contains("the running agent has another"), "{text}");
    boot.put("etc/mote-agent.yml", "features: {state: true}\n");
    let text = check(boot.command(&[]), &[]).1;
    assert!(text.contains(theirs) && text.contains("sandbox: would be in a sandbox"), "{text}");
    assert!(text.contains("policy: denied: guestapi exec "), "{text}");
    mote_tests::kill(rustix::process::Signal::HUP, agent.0.id());
    wait("the policy", LIMIT, || (!check(boot.command(&[]), &[]).1.contains(theirs)).then_some(()));
}

#[test]
fn check_uses_the_running_agents_view() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let sockets = boot.root("vs").display().to_string();
    let check = |expected: &str, code: i32| {
        let (was, text) = check(bare(&boot), &["--vsock-unix", &sockets]);
        assert!(text.lines().any(|line| line == expected), "no {expected:?} in:\n{text}");
        assert_eq!(was, Some(code), "{text}");
    };
    let mut running = boot.start(&["--deny", "guestapi"]);
    boot.logged("STARTED");
    wait("the view", LIMIT, || boot.root("run/mote/status").exists().then_some(()));
    let share = boot.host.share.display().to_string();
    check(&format!("ok       files: read by the running agent: {share}"), 0);
    check("note     agent: the host has not called yet", 0);
    running.kill();
    // An agent that waits for its files.
    let nowhere = boot.root("nowhere").display().to_string();
    let mut command = Command::new(agent());
    command.args(["--config-dir", &nowhere, "--root"]).arg(boot.root("")).stderr(Stdio::null());
    let _waiting = Process::start(&mut command);
    wait("the view", LIMIT, || boot.text("run/mote/status").contains("waiting").then_some(()));
    check(&format!("ok       agent: running, waiting for the config files in {nowhere}"), 1);
    let none = "has none of agent.crt, agent.key, server.crt: copy them there";
    check(&format!("missing  agent: {nowhere} {none}"), 1);
    let (code, view) = status(&boot);
    assert_eq!((code, &view["running"]), (Some(0), &Value::Bool(true)), "{view}");
    assert_eq!(view["last_error"], format!("{nowhere} {none}"));
}

/// The files of another instance: the agent reaches its host, which cannot call it.
#[test]
fn check_reports_a_refused_host() {
    const WHY: &str =
        "refused a caller whose certificate is not server.crt: is this another host's share?";
    let (boot, elsewhere) = (Boot::new("lxd"), Scratch::new());
    whole(&boot);
    let other = Host::on_sockets(&elsewhere.0, &elsewhere.0.join("vs"), "lxd", &[]);
    fs::copy(other.share.join("server.crt"), boot.host.share.join("server.crt")).unwrap();
    let mut agent = boot.start(&[]);
    boot.logged(" CONNECTED");
    let told = boot.client().host_info().unwrap().to_string();
    assert!(boot.client().ask("PUT", "/1.0", &told).is_err());
    assert_blocked(&boot, WHY);
    // The same 30 s later and after other messages: it is CONNECTED, but the host does not see it.
    assert_eq!(status(&boot).1["state"], "CONNECTED");
    agent.kill();
    // Another caller comes before the host: blocked until the host calls.
    let right = boot.host.directory.join("instances/vm1/agent-client.crt");
    fs::copy(right, boot.host.share.join("server.crt")).unwrap();
    let _agent = boot.start(&[]);
    boot.serves();
    wait("its view", LIMIT, || (status(&boot).1["last_error"].is_null()).then_some(()));
    intrude(&boot);
    assert_blocked(&boot, WHY);
    boot.client().announce();
    wait("no error", LIMIT, || status(&boot).1["last_error"].is_null().then_some(()));
    let (code, view) = status(&boot);
    assert_eq!((code, &view["blocked"]), (Some(0), &Value::Bool(false)), "{view}");
    assert_eq!(view["called"], true);
    // Afterwards such a call has no effect.
    intrude(&boot);
    let (code, text) = check(boot.command(&[]), &[]);
    assert!(code == Some(0) && text.contains("ok       agent: running, CONNECTED\n"), "{text}");
}

/// As with another server's port, or a chardev of another name: the host's address was in the
/// share.
#[test]
fn check_reports_a_host_that_never_calls() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let port = Terminal::open(80, 24);
    let _agent = boot.start(&["--port", &port.path()]);
    boot.logged(" CONNECTED");
    wait("the view", LIMIT, || (status(&boot).1["state"] == "CONNECTED").then_some(()));
    let found = boot.root("dev/vport0p1").display().to_string();
    let before = check(boot.command(&[]), &[]);
    for line in [
        format!("ok       port: {found} (lxd)\n"),
        format!("note     port: the running agent uses {}\n", port.path()),
        "note     agent: the host has not called yet\n".to_owned(),
    ] {
        assert!(before.0 == Some(0) && before.1.contains(&line), "{line} in {}", before.1);
    }
    assert_eq!(lines_of(&check(boot.command(&[]), &["--json"])), before.1);
    assert_blocked(&boot, "the host has not called: does it read this port (name, chardev)?");
    assert_eq!(boot.log().matches("warn: the host has not called").count(), 1, "{}", boot.log());
}

/// With ports of two servers, the agent may have selected the unread one, unless its host calls.
#[test]
fn check_reports_a_doubtful_port_if_calls_are_missing() {
    const WHY: &str = "ports of two servers: using Incus'; if the server is LXD, use --flavour lxd";
    let boot = Boot::new("incus");
    whole(&boot);
    two_servers(&boot);
    let sockets = boot.scratch.0.join("vs").display().to_string();
    let share = boot.host.share.display().to_string();
    let args = ["--vsock-unix", &sockets, "--config-dir", &share];
    let log = File::create(boot.scratch.0.join("agent.log")).unwrap();
    let _agent = Process::start(bare(&boot).args(args).stdin(Stdio::null()).stderr(log));
    boot.logged(&format!("warn: {WHY}"));
    assert_blocked(&boot, WHY);
    boot.client().announce();
    wait("no error", LIMIT, || status(&boot).1["last_error"].is_null().then_some(()));
    let (code, text) = check(bare(&boot), &args);
    assert!(code == Some(0) && text.contains(&format!("note     port: {WHY}\n")), "{text}");
}

#[test]
fn status_has_the_same_members_for_programs() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let mut agent = boot.start(&[]);
    boot.serves();
    wait("CONNECTED", LIMIT, || (status(&boot).1["state"] == "CONNECTED").then_some(()));
    let (code, view) = status(&boot);
    let keys = |view: &Value| -> Vec<_> { view.as_object().unwrap().keys().cloned().collect() };
    let all = keys(&view);
    let expected = "blocked called devlxd files flavour host last_error pid policy port program ready \
                    running since_uptime_ms state version";
    assert_eq!(all.join(" "), expected);
    assert_eq!((code, &view["running"], &view["called"]), (Some(0), &true.into(), &false.into()));
    let numbers = (view["pid"].as_u64(), view["since_uptime_ms"].is_u64());
    assert_eq!(numbers, (Some(agent.0.id().into()), true));
    agent.kill();
    let (code, view) = status(&boot);
    assert_eq!((code, &view["running"], keys(&view)), (Some(3), &false.into(), all));
    assert!(view["state"].is_null() && view["version"].is_string(), "{view}");
    let (_, text) = boot.says(&["status"]);
    for line in ["running: no\n", "pid: -\n", "state: -\n", "host: -\n", "devlxd: -\n"] {
        assert!(text.contains(line), "{text}");
    }
    let (_, text) = boot.ask(&["status"]);
    let was = format!("process {} ended unexpectedly in state CONNECTED", agent.0.id());
    assert!(text.contains(&was), "{text}");
    assert!(Path::new(&boot.root("run/mote/status")).exists());
}
