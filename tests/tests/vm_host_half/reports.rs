//! State, metrics, operations, and connections into the guest.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use mote_tests::column::Column;
use mote_tests::host::NAME;
use mote_tests::{Process, wait};

use crate::world::{SOON, World, within};

pub(crate) fn state_and_metrics_are_what_the_host_decodes(world: &World) {
    let state = world.ok(&["state", NAME]);
    assert!(state.contains("network    lo: loopback, up"), "{state}");
    assert!(state.contains("inet 127.0.0.1/8 local"), "{state}");
    let state: serde_json::Value =
        serde_json::from_str(&world.ok(&["state", NAME, "--json"])).expect("JSON");
    assert!(state["processes"].as_i64().is_some_and(|count| count > 0), "{state}");
    // LXD 5.0.2 has no `total` yet.
    assert!(state["memory"]["usage"].as_u64().is_some_and(|usage| usage > 10 << 20), "{state}");
    let metrics = world.ok(&["metrics", NAME]);
    let prefix = if world.judge.column.is_incus() { "incus" } else { "lxd" };
    let value = |name: &str| -> f64 {
        let name = format!("{prefix}_{name}{{");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap_or(&metrics);
        line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(-1.0)
    };
    for (name, least) in [
        ("cpu_seconds_total", 0.0),
        ("memory_MemTotal_bytes", 2e8),
        ("filesystem_size_bytes", 1e6),
        ("network_receive_bytes_total", 0.0),
        ("disk_read_bytes_total", 1.0),
        ("procs_total", 1.0),
    ] {
        assert!(value(name) >= least, "{:?} {name}: {metrics}", world.judge);
    }
    assert!(metrics.ends_with("# EOF\n"));
}

/// In this VM no mount can hang: the agent itself makes them.
pub(crate) fn metrics_start_no_process(world: &mut World) {
    if !world.judge.column.is_mote() {
        return;
    }
    let mut forks = || -> u64 {
        let text = world.guest.ok("sed -n 's/^processes //p' /proc/stat");
        text.trim().parse().expect("a number")
    };
    // A look at them starts some itself; others in the guest may, too.
    let no_more = (0..5).any(|_| {
        let (first, second) = (forks(), forks());
        world.host.ok(&["metrics", NAME]);
        forks() - second == second - first
    });
    assert!(no_more, "{:?}", world.judge);
}

pub(crate) fn operations_are_listed_while_they_run(world: &World) {
    let mut command = world.host.command(&["exec", "-T", "-n", NAME, "--", "sh", "-c"]);
    command.arg("echo on; sleep 5").stdout(Stdio::piped());
    let mut child = command.spawn().expect("mote-host");
    child.stdout.take().expect("a pipe").read_exact(&mut [0; 3]).expect("a word");
    let list = world.ok(&["operations", NAME]);
    // Ended ones of the tests before may be listed too.
    let running = list.lines().find_map(|line| line.strip_suffix(" Running Executing command"));
    let Some(id) = running else { panic!("{:?}: {list}", world.judge) };
    assert!(world.ok(&["operations", NAME, "--json"]).contains(&format!("\"{id}\"")));
    assert!(world.ok(&["operations", NAME, "show", id]).contains("\"websocket\""));
    let late = world.fails(&["operations", NAME, "wait", id, "--timeout", "1"]);
    // Debian 12's LXD 5.0.2 has no `wait` yet, Debian 13's has.
    let has_none = world.judge.column == Column::LxdAgent && late.contains("page not found");
    assert!(has_none || late.contains("deadline exceeded"), "{:?}: {late}", world.judge);
    assert_eq!(within(&mut child, "sleep"), Some(0));
    // Kept for a while after the end (P§4.1).
    assert!(world.ok(&["operations", NAME, "show", id]).contains("\"return\": 0"));
}

/// Debian's incus-agent is older than port-forward, and LXD has none.
pub(crate) fn connections_are_carried_into_the_guest(world: &mut World) {
    if world.judge.column != Column::MoteIncus {
        return;
    }
    world.guest.ok("(nc -l -p 8080 -e sh -c 'read x; echo got $x' >/dev/null 2>&1 &); sleep 0.5");
    let mut command = world.host.command(&["port-forward", NAME, "127.0.0.1:0", "8080"]);
    let mut forward = Process::start(command.stdout(Stdio::piped()));
    let mut address = String::new();
    let output = forward.0.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut address).expect("an address");
    let mut stream = TcpStream::connect(address.trim()).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream.write_all(b"hello\n").expect("a line sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "got hello\n");
}

/// By mote's client, which works with the Go agents too: their event stream has a head of its own kind (P§4.3).
pub(crate) fn guests_hear_what_the_host_sets(world: &World) {
    let listen =
        "mkdir -p /run/heard; timeout 60 mote-agent events >/run/heard/out 2>/run/heard/err &";
    world.sh(listen);
    let mut turn = 0;
    // The Go agents lose what comes before they listen.
    wait("the event in the guest", SOON, || {
        turn += 1;
        world.ok(&["set", NAME, &format!("user.heard=n{turn}")]);
        let (_, heard, _) = world.sh("sleep 1; cat /run/heard/out /run/heard/err");
        (heard.contains("\"user.heard\"") && heard.contains("\"config\"")).then_some(())
    });
}
