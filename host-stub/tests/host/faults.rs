//! The devlxd API as a guest sees it; faults that the host makes on request, and faults that guests
//! cannot cause.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::peers::guest::{Guest, drain};
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
    assert_eq!((status(&host), &guest.get("/1.0").1["state"]), (json!("Ready"), &json!("Ready")));
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
    assert_eq!(status(&host), "Running", "the VM was not affected");
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

fn started() -> (Host, Guest) {
    let host = Host::started("lxd", &["user.foo=bar"]);
    let guest = Guest::of(&host);
    (host, guest)
}

#[test]
fn a_stalled_connection_ends_at_its_limit() {
    let (host, guest) = started();
    host.run(&["fault", "vm1", "stall", "1"]);
    let begun = Instant::now();
    assert_eq!(drain(&mut guest.connect_raw()), b"");
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    // Without a duration, the fault lasts longer than the usual time limit for a guest.
    host.run(&["fault", "vm1", "stall"]);
    let mut socket = guest.connect_raw();
    socket.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    let error = socket.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_huge_answer_continues_until_the_guest_closes() {
    let (host, guest) = started();
    host.run(&["fault", "vm1", "huge"]);
    let mut stream = guest.connect();
    stream.write_all(b"GET /1.0 HTTP/1.1\r\n\r\n").unwrap();
    let mut left = 20 * 1024 * 1024;
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let count = stream.read(&mut buffer).unwrap();
        assert_ne!(count, 0);
        left -= left.min(count);
    }
    drop(stream);
    host.run(&["fault", "vm1", "none"]);
    assert_eq!(guest.get("/1.0").0, 200);
}

#[test]
fn closes_a_silent_or_slow_guest_after_three_seconds() {
    let (_host, guest) = started();
    let begun = Instant::now();
    let mut silent = guest.connect_raw();
    let mut dripping = guest.connect();
    let drips = std::thread::spawn(move || {
        let mut count = 0;
        while dripping.write_all(b"x").and_then(|()| dripping.flush()).is_ok() {
            std::thread::sleep(Duration::from_millis(100));
            count += 1;
            assert!(count < 1000, "100 s");
        }
    });
    assert_eq!(drain(&mut silent), b"");
    assert!(begun.elapsed() > Duration::from_millis(2900), "{:?}", begun.elapsed());
    drips.join().unwrap();
}

#[test]
fn serves_a_caller_while_two_hundred_are_silent() {
    let (host, guest) = started();
    // The fault continues to affect these connections.
    host.run(&["fault", "vm1", "stall", "9999"]);
    let held: Vec<_> = (0..200).map(|_| guest.connect_raw()).collect();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap().count();
    wait("all to be held", SOON, || (threads() > 200).then_some(()));
    host.run(&["fault", "vm1", "none"]);
    assert_eq!(guest.get("/1.0/config/user.foo"), (200, json!("bar")));
    drop(held);
}

/// Number of a hostile guest's callers, and the memory that the daemon may need for them, kB: far
/// less than for all of their requests, which have 256 KiB each.
const CALLERS: usize = 200;
const MEMORY: u64 = 30_000;

#[test]
fn incomplete_requests_share_a_limit_of_memory() {
    let (host, _) = started();
    let guest = Guest::with_share(&host, "vm1", None);
    let peak = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    };
    let before = peak();
    std::thread::scope(|threads| {
        for _ in 0..CALLERS {
            threads.spawn(|| {
                let mut stream = guest.connect();
                let head = "PATCH /1.0 HTTP/1.1\r\nContent-Length: 262144\r\n\r\n";
                let request = [head.as_bytes(), &[b' '; 262_143]].concat();
                let _hung_up = stream.write_all(&request);
                drain(&mut stream);
            });
        }
    });
    let grown = peak() - before;
    println!("{CALLERS} incomplete requests: {grown} kB");
    assert!(grown < MEMORY, "{grown} kB");
}

#[test]
fn survives_invalid_requests() {
    let (host, guest) = started();
    for bytes in [&b""[..], b"\0", b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff]] {
        let mut socket = guest.connect_raw();
        let _hung_up = socket.write_all(bytes);
        let _hung_up = socket.shutdown(std::net::Shutdown::Write);
        drain(&mut socket);
    }
    for head in ["", "\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"] {
        let mut stream = guest.connect();
        let _hung_up = stream.write_all(head.as_bytes());
        stream.conn.send_close_notify();
        let _hung_up = stream.flush();
        drain(&mut stream);
    }
    assert_eq!(guest.ask("PATCH", "/1.0", "{").0, 400);
    assert_eq!(guest.get("/1.0").0, 200);
    assert!(host.state()["connections"].as_u64().unwrap() >= 10);
}
