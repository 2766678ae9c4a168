//! Faults of guests, of the host and of unauthenticated peers.

use std::io::{BufRead, BufReader, Read, Write};
use std::time::Duration;

use mote_tests::agent::split;
use mote_tests::{NAME, wait};

use super::lxd;

#[test]
fn any_fault_of_the_host_is_a_500_in_time() {
    let mut pair = lxd();
    for (kind, number) in
        [("reset", "0"), ("garbage", "0"), ("wrong-cert", "0"), ("huge", "0"), ("stall", "9999")]
    {
        pair.host.ok(&["fault", NAME, kind, number]);
        let (status, text) = pair.ask("GET", "/1.0/config/user.foo");
        assert_eq!(status, 500, "{kind}: {text}");
        assert!(text.starts_with("Failed connecting to devLXD over vsock: "), "{kind}: {text}");
        pair.host.ok(&["fault", NAME, "none"]);
        assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar", "after {kind}");
    }
    pair.host.ok(&["fault", NAME, "forbidden"]);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (403, "Forbidden\n".into()));
    pair.host.kill();
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").0, 500);
    pair.assert_alive();
}

#[test]
fn frees_the_quota_of_a_client_that_stops_waiting() {
    let pair = lxd();
    let files =
        || std::fs::read_dir(format!("/proc/{}/fd", pair.agent.0.id())).expect("an agent").count();
    pair.host.ok(&["fault", NAME, "slow", "60000"]);
    let before = files();
    let mut waiting: Vec<_> = (0..10).map(|_| pair.connect()).collect();
    for stream in &mut waiting {
        stream.write_all(b"GET /1.0/operations/x/wait HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    }
    // A client that has shut down its side still waits for the answer.
    waiting[0].shutdown(std::net::Shutdown::Write).unwrap();
    let limit = Duration::from_secs(10);
    wait("ten calls", limit, || (files() == before + 20).then_some(()));
    waiting.truncate(1);
    wait("nine of them to be over", limit, || (files() == before + 2).then_some(()));
    waiting[0].set_nonblocking(true).unwrap();
    let still = waiting[0].read(&mut [0]).unwrap_err();
    assert_eq!(still.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn reports_missing_descriptors_and_keeps_its_host() {
    let pair = lxd();
    let mut client = BufReader::new(pair.connect());
    let mut ask = || {
        let request = b"GET /1.0/config/user.foo HTTP/1.1\r\nHost: x\r\n\r\n";
        client.get_mut().write_all(request).unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(client.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        client.read_exact(&mut body).unwrap();
        (split(&head).0, String::from_utf8(body).unwrap())
    };
    assert_eq!(ask(), (200, "bar".into()));
    let entered = || pair.log().matches(": STARTED").count();
    let before = entered();
    pair.limit_descriptors(true);
    for _ in 0..3 {
        let (status, text) = ask();
        assert_eq!(status, 500, "{text}");
        assert!(text.contains("this agent cannot call the host now"), "{text}");
    }
    pair.limit_descriptors(false);
    assert_eq!(ask(), (200, "bar".into()));
    let log = pair.log();
    assert!(!log.contains("lost host"), "{log}");
    assert_eq!(entered(), before, "{log}");
    // The agent logs this at most once in ten seconds.
    assert!(log.matches("cannot call the host now").count() <= 2, "{log}");
}
