//! Long commands, lists of operations, and hundreds of incomplete requests.

use std::time::Duration;

use mote_tests::conform::exec::{plain, with};
use mote_tests::conform::wire::Wire;
use serde_json::json;

use super::{LIMIT, MEGABYTE, Victim, at_once};

/// A former limit of simultaneous long commands.
const MANY: usize = 196;

fn post(victim: &Victim, body: &str) -> u16 {
    let answer = victim
        .host
        .connect()
        .and_then(|mut wire| wire.within(LIMIT).ask("POST", "/1.0/exec", "", body.as_bytes()));
    // The agent may close a refused connection before the client has read the reason. 408: on a
    // busy machine the client sends too slowly.
    answer.map_or(0, |answer| answer.status)
}

#[test]
fn two_hundred_commands_of_0_9_mb_and_a_list_of_them() {
    let mut victim = Victim::start();
    let words = vec!["x".repeat(100_000); 9];
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let variables: serde_json::Map<_, _> =
        (0..9).map(|number| (format!("V{number}"), "x".repeat(100_000).into())).collect();
    let bodies = [
        plain(&words).to_string(),
        with(plain(&["true"]), json!({ "environment": variables })).to_string(),
    ];
    let mut done = Vec::new();
    for body in &bodies {
        done.extend(at_once(8, MANY / 2, |_| post(&victim, body)));
        let listed = victim.host.ask("GET", "/1.0/operations?recursion=1", "").unwrap();
        assert!([200, 503].contains(&listed.status), "{}", listed.short());
    }
    assert!(done.contains(&202), "{done:?}");
    assert!(done.iter().all(|status| [0, 202, 408, 503].contains(status)), "{done:?}");
    let taken = done.iter().filter(|status| **status == 202).count();
    victim.survived(&format!("196 commands of 0.9 MB, of which {taken} were taken, and a list"));
}

fn half(victim: &Victim, target: &str, length: usize) -> Wire {
    let mut wire = victim.host.connect().unwrap();
    let head = format!("POST {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    wire.send(head.as_bytes()).unwrap();
    let _cut = wire.within(Duration::from_millis(200)).send(&vec![b' '; length / 2]);
    wire
}

#[test]
fn incomplete_requests_of_the_host() {
    let mut victim = Victim::start();
    // Each is a TLS connection with a received record.
    let events = at_once(8, 8, |_| half(&victim, "/1.0/events", MEGABYTE));
    let commands = at_once(8, 8, |_| half(&victim, "/1.0/exec", 2 * MEGABYTE));
    let short = at_once(8, 8, |_| half(&victim, "/1.0/events", 60_000));
    // Then the agent has refused those that wait.
    std::thread::sleep(Duration::from_secs(12));
    victim.survived("24 half-sent requests of 2 MB, 1 MB and 60 kB");
    drop((events, commands, short));
}
