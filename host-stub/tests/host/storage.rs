//! Storage, instances and operations for callers with the token.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::peers::guest::Guest;
use crate::peers::host::Host;

const TOKEN: &str = "Authorization: Bearer secret\r\n";
const VOLUMES: &str = "/1.0/storage-pools/default/volumes";

fn trusted(extra: &[&str]) -> (Host, Guest) {
    let mut config = vec!["security.devlxd.management.volumes=true", "mote.bearer=secret"];
    config.extend(extra);
    let mut host = Host::with_instance("lxd", &config);
    host.start();
    let guest = Guest::of(&host);
    (host, guest)
}

fn ask(guest: &Guest, method: &str, path: &str, body: &str) -> (u16, Value) {
    guest.ask_with(method, path, TOKEN, body)
}

#[test]
fn volumes_and_snapshots_survive_a_killed_daemon() {
    let (mut host, guest) = trusted(&[]);
    let new = r#"{"name":"v","type":"custom","config":{"size":"1","a":"b"}}"#;
    let begun = ask(&guest, "POST", VOLUMES, new).1;
    assert_eq!(begun["status_code"], 200);
    assert_eq!(ask(&guest, "POST", VOLUMES, new).0, 409);
    assert_eq!(ask(&guest, "POST", VOLUMES, r#"{"name":"w"}"#).0, 400);
    assert_eq!(ask(&guest, "POST", VOLUMES, r#"{"name":"a/b","type":"custom"}"#).0, 400);
    let volume = format!("{VOLUMES}/custom/v");
    assert_eq!(ask(&guest, "PATCH", &volume, r#"{"config":{"size":"2"}}"#).0, 200);
    let config = json!({"size": "2", "a": "b"});
    assert_eq!(ask(&guest, "GET", &volume, "").1["config"], config);
    let snapshots = format!("{volume}/snapshots");
    assert_eq!(ask(&guest, "POST", &snapshots, r#"{"name":"s"}"#).0, 200);
    host.kill();
    host.start();
    let guest = Guest::of(&host);
    assert_eq!(ask(&guest, "GET", &snapshots, "").1, json!([{"name": "s"}]));
    assert_eq!(ask(&guest, "GET", VOLUMES, "").1[0]["config"], config, "snapshots are not volumes");
    assert_eq!(ask(&guest, "GET", &format!("{VOLUMES}/image"), "").1, json!([]));
    assert_eq!(ask(&guest, "GET", &format!("{snapshots}/t"), "").0, 404);
    assert_eq!(ask(&guest, "DELETE", &volume, "").0, 200);
    assert_eq!(ask(&guest, "GET", &snapshots, ""), (404, json!("Storage volume not found")));
    assert_eq!(ask(&guest, "GET", &format!("{snapshots}/s"), "").0, 404, "gone with its volume");
}

#[test]
fn waits_for_operations_and_cancels_them() {
    let (_host, guest) = trusted(&["mote.operation.ms=700"]);
    let begin = |name: &str| {
        let body = format!(r#"{{"name":"{name}","type":"custom"}}"#);
        let operation = ask(&guest, "POST", VOLUMES, &body).1;
        assert_eq!(operation["status"], "Running");
        operation["id"].as_str().unwrap().to_owned()
    };
    let id = begin("a");
    let begun = Instant::now();
    let late = ask(&guest, "GET", &format!("/1.0/operations/{id}/wait?timeout=0"), "");
    assert_eq!(late, (500, json!("context deadline exceeded")));
    let done = ask(&guest, "GET", &format!("/1.0/operations/{id}/wait?timeout=-1"), "").1;
    assert_eq!(done["status"], "Success");
    assert!(begun.elapsed() > Duration::from_millis(400), "{:?}", begun.elapsed());
    let over = ask(&guest, "DELETE", &format!("/1.0/operations/{id}"), "");
    assert_eq!(over, (400, json!("Only running operations can be cancelled")));
    let id = begin("b");
    assert_eq!(
        ask(&guest, "DELETE", &format!("/1.0/operations/{id}"), "").1["status"],
        "Cancelled"
    );
    let wait = ask(&guest, "GET", &format!("/1.0/operations/{id}/wait"), "").1;
    assert_eq!(wait["status_code"], 401);
    assert_eq!(ask(&guest, "GET", "/1.0/operations/nope/wait", "").0, 404);
    let bad = ask(&guest, "GET", &format!("/1.0/operations/{id}/wait?timeout=x"), "");
    assert_eq!(bad, (400, json!("Invalid timeout value")));
}
