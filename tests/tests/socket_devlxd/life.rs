//! Start, kill and end of the agent, and its requirements.

use std::io::{Read, Write};
use std::time::Duration;

use mote_tests::agent::{launch, launch_with};
use mote_tests::{NAME, kill, wait};
use rustix::process::Signal;

use super::{answered, lxd};

/// The agent's own verification makes it CONNECTED earlier, so the host sends no other PUT.
#[test]
fn opens_devlxd_although_the_put_could_not_be_verified() {
    let pair = lxd();
    let conf = std::fs::read_to_string(pair.host.share.join("agent.conf")).unwrap();
    let off = conf.replace(",\"devlxd\":true", "").replace("\"devlxd\":true,", "");
    let socket = pair.socket();
    pair.host.ok(&["query", NAME, "PUT", "/1.0", &off]);
    wait("the socket to go", Duration::from_secs(2), || (!socket.exists()).then_some(()));
    pair.host.ok(&["fault", NAME, "reset"]);
    let said = pair.host.try_run(&["query", NAME, "PUT", "/1.0", &conf]);
    let said = said.unwrap_or_else(|why| why);
    assert!(said.contains("Failed verifying"), "{said}");
    pair.host.ok(&["fault", NAME, "none"]);
    wait("the socket", Duration::from_secs(2), || socket.exists().then_some(()));
    wait("an answer", Duration::from_secs(2), || {
        (pair.ask("GET", "/1.0/config/user.foo").1 == "bar").then_some(())
    });
}

#[test]
fn notifies_the_service_manager_of_ready_watchdog_and_stopping() {
    let mut pair = lxd();
    pair.agent.kill();
    let path = pair.scratch.0.join("notify");
    let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let socket = path.display().to_string();
    let environment = [("NOTIFY_SOCKET", socket.as_str()), ("WATCHDOG_USEC", "400000")];
    pair.agent = launch_with(&pair.scratch.0, "lxd", &pair.host.share, &environment);
    let hear = || {
        let mut buffer = [0; 100];
        let count = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).into_owned()
    };
    assert_eq!([hear(), hear(), hear()], ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    // The agent listens before READY, so that a waiting program may call it.
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo").1, "bar");
    kill(Signal::TERM, pair.agent.0.id());
    let mut last = hear();
    while last == "WATCHDOG=1" {
        last = hear();
    }
    assert_eq!(last, "STOPPING=1");
    assert_eq!(pair.agent.ends(Duration::from_secs(5)), Some(0), "{}", pair.log());
    assert!(pair.log().ends_with("STOPPED\n"), "{}", pair.log());
    assert!(!pair.socket().exists(), "a name that nobody listens at");
}

#[test]
fn remembers_ready_after_a_kill_and_restart() {
    let mut pair = lxd();
    assert_eq!(pair.ask_with("PATCH", "/1.0", "", "{\"state\":\"Ready\"}").0, 200);
    pair.agent.kill();
    pair.host.kill();
    pair.host.start();
    // The agent has not called this host yet, so the instance counts as stopped.
    assert_eq!(pair.host.state()["status"], "Stopped");
    pair.agent = launch(&pair.scratch.0, "lxd", &pair.host.share);
    wait("Ready", Duration::from_secs(5), || {
        (pair.host.state()["status"] == "Ready").then_some(())
    });
}

#[test]
fn closed_listeners_free_their_quota() {
    const LISTENERS: usize = 64;
    let pair = lxd();
    let listen = || pair.get("/1.0/events");
    for _ in 0..3 {
        let all = || {
            let all: Vec<_> = (0..LISTENERS).map(|_| listen()).collect();
            all.iter().all(|(head, _)| head.contains(" 200 ")).then_some(all)
        };
        let (listeners, _) = wait("places for all", Duration::from_secs(10), all);
        let (head, _) = listen();
        assert!(head.contains(" 503 "), "{head}");
        drop(listeners);
    }
}

#[test]
fn rejects_kept_connections_once_devlxd_is_disabled() {
    let pair = lxd();
    let client = pair.client();
    let mut told = client.host_info().unwrap();
    let mut stream = pair.connect();
    let mut ask = || {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let (head, mut rest) = answered(stream.try_clone().unwrap());
        let length = head.split("Content-Length: ").nth(1).unwrap().lines().next().unwrap();
        rest.read_exact(&mut vec![0; length.parse().unwrap()]).unwrap();
        head
    };
    assert!(ask().contains(" 200 "));
    // An older PUT enables it, and its verification ends after the newer one.
    pair.host.ok(&["fault", NAME, "slow", "1500"]);
    let (older, enabling, before) = (pair.client(), told.to_string(), pair.log().len());
    let older = std::thread::spawn(move || older.ask("PUT", "/1.0", &enabling).unwrap().status);
    let verifies = || pair.log()[before..].contains("GET /1.0 (").then_some(());
    wait("its call", Duration::from_secs(10), verifies);
    pair.host.ok(&["fault", NAME, "none"]);
    told["devlxd"] = false.into();
    assert_eq!(client.ask("PUT", "/1.0", &told.to_string()).unwrap().status, 200);
    assert_eq!(older.join().unwrap(), 200);
    let head = ask();
    assert!(head.contains(" 403 "), "{head}");
}
