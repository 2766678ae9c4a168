//! The newest verification of a host counts, if the host answered with the announced certificate.
//! Lines on the port request each verification, as a host's CONNECT does.

use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::thread::spawn;
use std::time::Duration;

use mote_tests::agent::command;
use mote_tests::clients::bridge::carry;
use mote_tests::{Pair, Process, Terminal, wait};
use serde_json::Value;

use super::lxd;

const LIMIT: Duration = Duration::from_secs(10);

/// Returns a pair whose agent has a port, and the host's address.
fn with_port() -> (Pair, Terminal, String) {
    let mut pair = lxd();
    pair.agent.kill();
    let log = pair.log().len();
    let port = Terminal::open(80, 24);
    let mut agent = command(&pair.scratch.0, "lxd", &pair.host.share);
    pair.agent = Process::start(agent.args(["--port", &port.path()]));
    let address =
        || Some(pair.log()[log..].split(" CONNECTED ").nth(1)?.lines().next()?.to_owned());
    let (address, _) = wait("CONNECTED", LIMIT, address);
    (pair, port, address)
}

fn socket(pair: &Pair, address: &str) -> PathBuf {
    let port = address.rsplit(':').next().unwrap_or_default();
    pair.scratch.0.join(format!("vs_{port}"))
}

fn verified(pair: &Pair, port: &Terminal, host: &str) {
    let asked = || pair.log().matches(" GET /1.0 (").count();
    let before = asked();
    port.say(&format!("CONNECT {host}\n"));
    wait("the host's answer", LIMIT, || (asked() > before).then_some(()));
}

#[test]
fn is_not_connected_to_an_absent_host() {
    let (pair, port, host) = with_port();
    port.say("CONNECT 2:9\n");
    wait("the line", LIMIT, || {
        pair.log().contains("host address 2:9 (from CONNECT)").then_some(())
    });
    wait("its end", LIMIT, || pair.log().contains("cannot reach host 2:9").then_some(()));
    // In sequence, so any effect of the first would be visible by now.
    verified(&pair, &port, &host);
    // The host's own port may begin with 9.
    let log = pair.log();
    assert!(!log.lines().any(|line| line.ends_with("CONNECTED 2:9")), "{log}");
}

#[test]
fn a_call_that_fails_at_an_earlier_address_does_not_count() {
    let (pair, port, host) = with_port();
    let (listener, to) = (UnixListener::bind(socket(&pair, "2:9")).unwrap(), socket(&pair, &host));
    let (hold, held) = channel();
    spawn(move || {
        let agent = listener.accept().expect("the verification").0;
        carry(agent, UnixStream::connect(&to).expect("the host"));
        // The call, which stays without an answer.
        hold.send(listener.accept().expect("the call").0).expect("the test");
    });
    port.say("CONNECT 2:9\n");
    wait("CONNECTED", LIMIT, || pair.log().contains(" CONNECTED 2:9\n").then_some(()));
    let before = pair.log().len();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| pair.ask("GET", "/1.0/config/user.foo"));
        let held = held.recv_timeout(LIMIT).expect("a call");
        verified(&pair, &port, &host);
        wait("CONNECTED", LIMIT, || pair.log()[before..].contains(" CONNECTED ").then_some(()));
        std::fs::remove_file(socket(&pair, "2:9")).expect("the earlier address");
        drop(held);
        let (status, text) = call.join().expect("an answer");
        assert_eq!(status, 500, "{text}");
    });
    verified(&pair, &port, &host);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    let log = pair.log();
    let since = &log[before..];
    assert!(!since.contains("STARTED") && !since.contains("lost host"), "{log}");
}

#[test]
fn is_not_connected_to_a_host_with_another_certificate() {
    let (pair, port, host) = with_port();
    let before = pair.log().len();
    port.say(&format!("CONNECT {host} {}\n", "0".repeat(64)));
    wait("a refusal", LIMIT, || pair.log()[before..].contains("TLS with the host").then_some(()));
    // Then it returns to the known host.
    let log = pair.log();
    let refused = log[before..].split("TLS with the host").next().unwrap_or_default();
    assert!(!refused.contains(" CONNECTED"), "{log}");
    // A text that only debug builds contain would leave a colon at the end.
    assert!(!log.lines().any(|line| line.trim_end().ends_with(':')), "{log}");
}

#[test]
fn missing_descriptors_in_a_verification_do_not_lose_the_host() {
    let (pair, port, host) = with_port();
    // Each change of the state changes it.
    let since = || {
        let text = std::fs::read(pair.scratch.0.join("root/run/mote/status")).expect("a status");
        let status: Value = serde_json::from_slice(&text).expect("JSON");
        (status["state"].clone(), status["since_uptime_ms"].as_u64().expect("a time"))
    };
    let connected = since();
    let before = pair.log().len();
    pair.limit_descriptors(true);
    port.say(&format!("CONNECT {host}\n"));
    wait("the shortage", LIMIT, || {
        pair.log()[before..].contains("cannot call the host now").then_some(())
    });
    pair.limit_descriptors(false);
    verified(&pair, &port, &host);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    assert_eq!(since(), connected, "{}", &pair.log()[before..]);
}
