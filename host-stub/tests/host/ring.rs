//! The ring buffer, the effects of the lines in it, and calls to the agent.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::peers::agent::{Agent, Mood};
use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, wait};
use crate::peers::qmp::Qemu;
use crate::peers::shell::{End, Shell};

fn world(flavour: &str, config: &[&str]) -> (Host, Qemu, Agent) {
    let (host, qemu) = Host::with_vm(flavour, config);
    let agent = Agent::of(&host, if flavour == "incus" { "incus-agent" } else { "lxd-agent" });
    (host, qemu, agent)
}

/// Returns a micro VM, whose agent listens before the host's first poll.
fn micro_vm() -> (Host, Qemu, Agent) {
    let mut host = Host::with_instance("lxd-micro", &[]);
    let agent = Agent::of(&host, "lxd-agent");
    let qemu = Qemu::of(&host);
    host.start();
    (host, qemu, agent)
}

/// Writes `text` and waits until the host has read the ring twice: it handles the first read before
/// the second.
fn said_and_read(qemu: &Qemu, text: &str) {
    for _ in 0..2 {
        let before = qemu.reads();
        qemu.say(text);
        wait("a read", SOON, || (qemu.reads() > before).then_some(()));
    }
}

fn put_ok(host: &Host) -> Option<bool> {
    host.state()["last_put"]["ok"].as_bool()
}

#[test]
fn started_causes_one_get_and_one_put_with_the_daemons_address() {
    // The key of the other server (Incus) has no effect.
    let (host, qemu, agent) = world("lxd", &["security.guestapi=false"]);
    qemu.say("STARTED\n");
    let put = agent.wait_for("PUT /1.0", 1);
    host.wait_for("CONNECTED");
    assert_eq!(agent.lines(), ["GET /1.0", "PUT /1.0"]);
    let told = json!({"cid": 2, "port": host.port(), "certificate": host.certificate(),
        "devlxd": true});
    assert_eq!(put.json(), told);
    assert_eq!(put.sni.as_deref(), Some("unspecified"));
    assert_eq!(put.message.header("host"), Some("custom.socket"));
    assert_eq!(put.message.header("connection"), Some("close"));
    // Heartbeats change nothing.
    for _ in 0..3 {
        said_and_read(&qemu, "STARTED\n");
    }
    let state = host.state();
    assert_eq!((&state["started"], &state["last_put"]["ok"]), (&json!(true), &json!(true)));
    assert_eq!((&state["state"], &state["status"]), (&json!("CONNECTED"), &json!("Running")));
    assert!(host.log().contains("vm1: agent STARTED\n"));
    assert!(host.log().contains("vm1: PUT /1.0 ok in "));
    // If a heartbeat caused a PUT, it would be sent before this call, by the same thread.
    host.run(&["set", "vm1", "user.a=b"]);
    agent.wait_for("POST /1.0/events", 1);
    let puts = agent.lines().iter().filter(|line| line.starts_with("PUT ")).count();
    assert_eq!(puts, 1);
}

#[test]
fn incus_puts_its_flag_without_a_get_and_records_it() {
    let (host, qemu, agent) = world("incus", &["security.guestapi=FALSE"]);
    qemu.say("STARTED\n");
    let put = agent.wait_for("PUT /1.0", 1);
    assert_eq!(agent.lines().len(), 1);
    assert_eq!((put.json().get("dev_incus"), put.json().get("devlxd")), (None, None));
    let noted = |state: &str| {
        wait(state, SOON, || {
            let got = host.try_run(&["get", "vm1", "volatile.last_state.agent"]).ok()?;
            (got.trim() == state).then_some(())
        });
    };
    noted("STARTED");
    let logged = || host.log().contains("instance-agent-started").then_some(());
    wait("its event", SOON, logged);
    // Two lines, because newer Incus reads the line before the last one (P§2.3).
    qemu.say("STOPPED\nSTOPPED\n");
    noted("STOPPED");
}

#[test]
fn a_failed_put_is_not_repeated_before_the_agent_was_stopped() {
    let (host, qemu, agent) = world("lxd", &[]);
    agent.mood(Mood::Refuses);
    qemu.say("STARTED\n");
    wait("the failure", SOON, || (put_ok(&host) == Some(false)).then_some(()));
    assert_eq!(host.state()["last_put"]["error"], "PUT: status 500: no way back");
    assert_eq!(host.state()["state"], "STARTED");
    agent.mood(Mood::Well);
    said_and_read(&qemu, "STARTED\n");
    assert_eq!(put_ok(&host), Some(false));
    qemu.say("STOPPED\n");
    host.wait_for("STOPPED");
    qemu.say("STARTED\n");
    wait("the second PUT", SOON, || (put_ok(&host) == Some(true)).then_some(()));
    let puts = agent.lines().iter().filter(|line| line.starts_with("PUT ")).count();
    assert_eq!(puts, 2, "{:?}", agent.lines());
}

#[test]
fn gives_up_a_slow_agent_after_three_seconds() {
    let (host, qemu, agent) = world("lxd", &[]);
    agent.mood(Mood::Drips);
    let begun = Instant::now();
    qemu.say("STARTED\n");
    wait("the failure", SOON, || (put_ok(&host) == Some(false)).then_some(()));
    assert!(begun.elapsed() > Duration::from_millis(2900), "{:?}", begun.elapsed());
}

#[test]
fn on_a_slow_machine_a_command_gives_an_agent_more_time() {
    let (host, qemu, agent) = world("lxd", &[]);
    qemu.say("STARTED\n");
    wait("the PUT", SOON, || (put_ok(&host) == Some(true)).then_some(()));
    agent.mood(Mood::Drips);
    let mut command = host.command(&["metrics", "vm1"]);
    let begun = Instant::now();
    let output = command.env(mote_machine::SLOWDOWN, "1.5").output().unwrap();
    let (took, said) = (begun.elapsed(), String::from_utf8_lossy(&output.stderr).into_owned());
    assert!(said.contains("the peer took too long"), "{said}");
    assert!(took > Duration::from_millis(4400), "{took:?}");
}

#[test]
fn sends_nothing_to_an_agent_of_the_other_server() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    let agent = Agent::of(&host, "incus-agent");
    qemu.say("STARTED\n");
    wait("the failure", SOON, || (put_ok(&host) == Some(false)).then_some(()));
    assert_eq!(agent.lines(), ["GET /1.0"]);
}

#[test]
fn finds_a_late_vm_and_reports_its_end() {
    let mut host = Host::with_instance("lxd", &[]);
    let agent = Agent::of(&host, "lxd-agent");
    host.start();
    std::thread::sleep(Duration::from_millis(300));
    for round in 1..=2 {
        let qemu = Qemu::of(&host);
        // The line is written before the host connects to the monitor.
        qemu.mutter("STARTED\n");
        agent.wait_for("PUT ", round);
        wait("RUNNING", SOON, || (host.state()["status"] == "Running").then_some(()));
        let guest = Guest::of(&host);
        assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#), (200, json!("")));
        assert_eq!(host.state()["status"], "Ready");
        if round == 1 {
            qemu.event("SHUTDOWN");
            wait("its end", SOON, || host.log().contains("the VM was shut down").then_some(()));
        }
        drop(qemu);
        host.wait_for("STOPPED");
        let state = host.state();
        assert_eq!((&state["status"], &state["ready"]), (&json!("Stopped"), &json!(false)));
        assert_eq!(state["started"], false);
    }
    assert!(host.log().contains("instance-stopped"));
}

#[test]
fn polls_the_ring_without_events() {
    let (_host, qemu, agent) = world("lxd", &[]);
    qemu.mutter("STARTED\n");
    wait("the poll", 2 * SOON, || (!agent.lines().is_empty()).then_some(()));
}

#[test]
fn a_micro_vm_is_polled_and_ends_by_poweroff_and_its_console() {
    let (host, qemu, agent) = micro_vm();
    let put = agent.wait_for("PUT /1.0", 1).json();
    assert_eq!((&put["cid"], &put["port"]), (&json!(2), &json!(8444)));
    host.wait_for("CONNECTED");
    assert_eq!(agent.lines(), ["GET /1.0", "GET /1.0", "PUT /1.0"]);
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
    std::fs::remove_file(host.path("vm1.p.listen_8443")).unwrap();
    let shell = Shell::of(&host, "lxd-agent", End::Event { code: 0 });
    let mut stopping = mote_machine::bounded(&mut host.command(&["stop", "vm1"])).unwrap();
    wait("poweroff", SOON, || (shell.body()["command"] == json!(["poweroff"])).then_some(()));
    let console = host.path("instances/vm1/console");
    std::fs::write(&console, "reboot: Power down\r\n").unwrap();
    wait("the order", SOON, || qemu.is_ordered("quit").then_some(()));
    assert_eq!((qemu.is_ordered("system_powerdown"), qemu.reads()), (false, 0));
    drop(qemu);
    assert!(stopping.wait().unwrap().success());
    assert_eq!(host.state()["why"]["cause"], "shut-down");
}

#[test]
fn stop_gives_up_on_a_micro_vm_that_never_ends_its_poweroff() {
    let (host, _qemu, agent) = micro_vm();
    agent.wait_for("PUT /1.0", 1);
    host.wait_for("CONNECTED");
    std::fs::remove_file(host.path("vm1.p.listen_8443")).unwrap();
    let _shell = Shell::of(&host, "lxd-agent", End::Silent);
    let mut stop = host.command(&["stop", "vm1", "--timeout", "1"]);
    let mut stopping = mote_machine::bounded(stop.stderr(std::process::Stdio::piped())).unwrap();
    // A guest that only stops answering counts as lost after 15 s.
    wait("its end", SOON, || stopping.try_wait().unwrap());
    let said = std::io::read_to_string(stopping.stderr.take().unwrap()).unwrap();
    assert!(said.contains("vm1 did not power off within 1 s"), "{said}");
}

#[test]
fn puts_devlxd_before_the_change_takes_effect() {
    let (host, qemu, agent) = world("lxd", &[]);
    // The VM runs without an agent, so the change fails, as on a real host.
    let error = host.try_run(&["set", "vm1", "security.devlxd=false"]).unwrap_err();
    assert!(error.contains("LXD VM agent is not currently running"), "{error}");
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    let guest = Guest::of(&host);
    host.run(&["set", "vm1", "security.devlxd=false"]);
    let put = agent.wait_for("PUT ", 2);
    assert_eq!(put.json().get("devlxd"), None);
    assert_eq!(guest.get("/1.0"), (403, json!("Forbidden")));
    host.run(&["unset", "vm1", "security.devlxd"]);
    assert_eq!(agent.wait_for("PUT ", 3).json()["devlxd"], true);
    assert_eq!(guest.get("/1.0").0, 200);
    agent.mood(Mood::Refuses);
    let error = host.try_run(&["set", "vm1", "security.devlxd=false"]).unwrap_err();
    assert!(error.contains("no way back"), "{error}");
    assert_eq!(guest.get("/1.0").0, 200, "nothing has changed");
}

#[test]
fn posts_guest_relevant_changes_to_the_agent() {
    let (host, qemu, agent) = world("lxd", &["user.a=old"]);
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    host.run(&["set", "vm1", "user.a=new", "limits.cpu=2"]);
    let event = agent.wait_for("POST /1.0/events", 1).json();
    let metadata = json!({"key": "user.a", "old_value": "old", "value": "new"});
    assert_eq!((&event["type"], &event["metadata"]), (&json!("config"), &metadata));
    host.run(&["device-add", "vm1", "d", "type=disk", "path=/mnt", "readonly=true"]);
    let event = agent.wait_for("POST /1.0/events", 2).json();
    let config = json!({"type": "disk", "path": "/mnt", "readonly": "true"});
    let mount = json!({"source": "lxd_d", "target": "", "fstype": "", "options": ["ro"]});
    let metadata = json!({"action": "added", "name": "d", "config": config, "mount": mount});
    assert_eq!((&event["type"], &event["metadata"]), (&json!("device"), &metadata));
    host.run(&["device-remove", "vm1", "d"]);
    let event = agent.wait_for("POST /1.0/events", 3).json();
    assert_eq!(event["metadata"]["action"], "removed");
    assert!(host.try_run(&["device-remove", "vm1", "d"]).is_err());
    let posts = agent.lines().iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!(posts, 3, "limits.cpu is none of the guest's business");
}

#[test]
fn withholds_puts_until_the_fault_ends() {
    let (host, qemu, agent) = world("lxd", &[]);
    host.run(&["fault", "vm1", "deny-put"]);
    qemu.say("STARTED\n");
    wait("STARTED", SOON, || (host.state()["started"] == true).then_some(()));
    said_and_read(&qemu, "STARTED\n");
    host.run(&["fault", "vm1", "none"]);
    qemu.say("STOPPED\n");
    host.wait_for("STOPPED");
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    let puts = agent.lines().iter().filter(|line| line.starts_with("PUT ")).count();
    assert_eq!(puts, 1, "{:?}", agent.lines());
}
