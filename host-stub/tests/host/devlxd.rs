//! The devlxd API as a guest sees it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, wait};
use crate::peers::qmp::Qemu;

#[test]
fn ready_is_set_withdrawn_and_lost_with_the_vm_or_the_daemon() {
    let (mut host, qemu) = Host::with_vm("lxd", &[]);
    let guest = Guest::of(&host);
    let ready = |guest: &Guest| guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#);
    let status = |host: &Host| host.state()["status"].clone();
    assert_eq!(ready(&guest), (200, json!("")));
    assert_eq!(ready(&guest).0, 200);
    assert_eq!(host.log().matches("vm1: instance-ready").count(), 2, "each time");
    assert_eq!(
        (status(&host), guest.get("/1.0").1["state"].clone()),
        (json!("Ready"), json!("Ready"))
    );
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"Started"}"#).0, 200);
    assert_eq!(host.run(&["get", "vm1", "volatile.last_state.ready"]), "false\n");
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"x"}"#), (400, json!("Invalid state \"x\"")));
    ready(&guest);
    drop(qemu);
    wait("Stopped", SOON, || (status(&host) == "Stopped").then_some(()));
    let qemu = Qemu::of(&host);
    wait("Running", SOON, || (status(&host) == "Running").then_some(()));
    ready(&guest);
    host.kill();
    host.start();
    assert_eq!(status(&host), "Running", "the VM did not mind");
    assert!(host.try_run(&["get", "vm1", "volatile.last_state.ready"]).is_err(), "deleted");
    assert_eq!(Guest::of(&host).get("/1.0").1["state"], "Started");
    drop(qemu);
}

#[test]
fn refuses_every_other_certificate() {
    let mut host = Host::with_instance("lxd", &[]);
    let other = host.init("other", "lxd", &[]);
    let old = host.init("old", "incus", &[]);
    host.start();
    let unauthorized = (401, json!("Unauthorized"));
    assert_eq!(Guest::with_share(&host, "vm1", None).get("/1.0"), unauthorized);
    // A neighbour's certificate is valid only on the neighbour's vsock.
    assert_eq!(Guest::with_share(&host, "vm1", Some(&other)).get("/1.0"), unauthorized);
    assert_eq!(Guest::with_share(&host, "other", Some(&other)).get("/1.0").0, 200);
    let text = Guest::with_share(&host, "old", Some(&other)).try_ask("GET", "/1.0", "").unwrap();
    assert_eq!(text.body, b"Unauthorized\n", "Incus says it in plain text");
    assert_eq!(Guest::with_share(&host, "old", Some(&old)).get("/1.0").0, 200);
}

#[test]
fn prints_the_events_of_one_instance() {
    let host = Host::started("lxd", &[]);
    let guest = Guest::of(&host);
    host.init("other", "lxd", &[]);
    let mut child =
        mote_machine::bounded(host.command(&["events", "vm1"]).stdout(Stdio::piped())).unwrap();
    // Until it listens.
    std::thread::sleep(std::time::Duration::from_millis(500));
    host.run(&["start", "other"]);
    guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["instance"], &event["type"]), (&json!("vm1"), &json!("lifecycle")));
    assert_eq!(event["metadata"]["action"], "instance-ready");
    child.kill().unwrap();
    child.wait().unwrap();
}
