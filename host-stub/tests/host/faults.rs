//! What the host does wrong when told to, and what guests cannot make it do wrong.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::peers::guest::{Guest, drain};
use crate::peers::host::{Host, SOON, wait};

fn started() -> (Host, Guest) {
    let mut host = Host::with_instance("lxd", &["user.foo=bar"]);
    host.start();
    let guest = Guest::of(&host);
    (host, guest)
}

/// Sends a request and shows what comes first, or why nothing does.
fn first_bytes(guest: &Guest) -> std::io::Result<Vec<u8>> {
    let mut stream = guest.connect();
    stream.write_all(b"GET /1.0 HTTP/1.1\r\n\r\n")?;
    stream.flush()?;
    let mut bytes = vec![0; 4096];
    let count = stream.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

#[test]
fn each_fault_looks_as_it_is_called_and_none_ends_it() {
    let (host, guest) = started();
    let fault = |args: &[&str]| host.run(&[&["fault", "vm1"], args].concat());
    fault(&["reset"]);
    // The handshake worked, and then it was over.
    assert!(first_bytes(&guest).map_or(true, |bytes| bytes.is_empty()));
    fault(&["garbage"]);
    assert!(!first_bytes(&guest).unwrap().starts_with(b"HTTP"));
    fault(&["wrong-cert"]);
    let error = first_bytes(&guest).unwrap_err();
    assert!(error.to_string().contains("ApplicationVerificationFailure"), "{error}");
    fault(&["forbidden"]);
    assert_eq!(guest.get("/1.0"), (403, json!("Forbidden")));
    fault(&["slow", "400"]);
    let begun = Instant::now();
    assert_eq!(guest.get("/1.0").0, 200);
    assert!(begun.elapsed() >= Duration::from_millis(400));
    fault(&["none"]);
    assert_eq!(guest.get("/1.0/config/user.foo"), (200, json!("bar")));
    let error = host.try_run(&["fault", "vm1", "nonsense"]).unwrap_err();
    assert!(error.contains("nonsense") && error.contains("no-tickets"), "{error}");
}

#[test]
fn a_stalled_connection_says_nothing_and_ends_with_its_time() {
    let (host, guest) = started();
    host.run(&["fault", "vm1", "stall", "1"]);
    let begun = Instant::now();
    assert_eq!(drain(&mut guest.connect_raw()), b"");
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    // Without a time it lasts longer than a host gives a guest otherwise.
    host.run(&["fault", "vm1", "stall"]);
    let mut socket = guest.connect_raw();
    socket.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
    let error = socket.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_huge_answer_goes_on_until_the_guest_has_enough() {
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
fn a_guest_that_is_silent_or_drips_is_hung_up_on_after_three_seconds() {
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
fn whoever_comes_while_two_hundred_are_silent_is_served_before_they_are_given_up() {
    let (host, guest) = started();
    // These last.
    host.run(&["fault", "vm1", "stall", "9999"]);
    let held: Vec<_> = (0..200).map(|_| guest.connect_raw()).collect();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap().count();
    wait("all to be held", SOON, || (threads() > 200).then_some(()));
    host.run(&["fault", "vm1", "none"]);
    assert_eq!(guest.get("/1.0/config/user.foo"), (200, json!("bar")));
    drop(held);
}

#[test]
fn six_hundred_calls_of_fifty_callers_all_succeed() {
    let (host, guest) = started();
    std::thread::scope(|threads| {
        for _ in 0..50 {
            threads.spawn(|| {
                for _ in 0..12 {
                    assert_eq!(guest.get("/1.0/config/user.foo"), (200, json!("bar")));
                }
            });
        }
    });
    assert_eq!(host.state()["connections"], 600);
    let threads = || std::fs::read_dir(format!("/proc/{}/task", host.pid())).unwrap().count();
    wait("the threads' end", SOON, || (threads() < 20).then_some(()));
}

#[test]
fn two_hundred_commands_at_once_are_all_answered() {
    let (host, _guest) = started();
    let held: Vec<_> = (0..200)
        .map(|_| std::os::unix::net::UnixStream::connect(host.path("control.sock")).unwrap())
        .collect();
    assert_eq!(host.run(&["list", "--quiet"]), "vm1\n");
    drop(held);
}

#[test]
fn nonsense_is_survived() {
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
