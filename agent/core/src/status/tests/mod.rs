//! The status machine on a virtual clock: announcements, addresses from PUT and `agent.conf`, loss
//! of the host, the end.

mod calls;
mod connect_lines;
mod link;
mod table;

use super::*;
use crate::time::at;

const REFRESH_TEXT: &str = "STARTED\nSTARTED";
const HOST: Host = at_port(4000);

const fn at_port(port: u32) -> Host {
    Host { address: HostAddress { cid: 2, port }, fingerprint: [0xab; 32] }
}

fn line(host: Host) -> String {
    format!("CONNECT {} {}\n", host.address, "ab".repeat(32))
}

fn status() -> Status {
    Status::new(at(0), Intervals::default())
}

/// Returns all actions due at `millis`.
fn polled(status: &mut Status, millis: u64) -> Vec<Action> {
    let all: Vec<_> = core::iter::from_fn(|| status.poll(at(millis))).take(100).collect();
    assert!(all.len() < 100, "a burst");
    all
}

/// Returns the same without those for the log.
fn actions(status: &mut Status, millis: u64) -> Vec<Action> {
    let all = polled(status, millis);
    if let Some(next) = status.deadline() {
        assert!(next > at(millis), "deadline {next:?} is not after {millis}");
    }
    let for_the_log =
        |action: &Action| matches!(action, Action::Changed(_) | Action::HostAddress(_));
    all.into_iter().filter(|action| !for_the_log(action)).collect()
}

/// Runs the clock until `end`, and returns all writes and calls with their times. `answer` answers
/// calls; if it returns `None`, they hang.
fn run_with(status: &mut Status, from: u64, end: u64, answer: Option<bool>) -> Vec<(u64, Action)> {
    let (mut now, mut seen) = (from, Vec::new());
    while now <= end {
        for action in actions(status, now) {
            seen.push((now, action));
            if let (Action::Verify { attempt, .. }, Some(ok)) = (action, answer) {
                assert!(status.verified(at(now), attempt, ok));
            }
        }
        // The answer may have made other actions due.
        seen.extend(actions(status, now).into_iter().map(|action| (now, action)));
        match status.deadline() {
            Some(next) => now = next.as_millis(),
            None => break,
        }
    }
    seen
}

fn run(status: &mut Status, from: u64, end: u64) -> Vec<(u64, Action)> {
    run_with(status, from, end, None)
}

fn lines(seen: &[(u64, Action)]) -> Vec<(u64, &'static str, bool)> {
    let line = |(now, action): &(u64, Action)| {
        let Action::Write { line, visible, .. } = action else { return None };
        Some((*now, core::str::from_utf8(line).unwrap().trim_end(), *visible))
    };
    seen.iter().filter_map(line).collect()
}

/// Returns the times at which that line was written.
fn times(seen: &[(u64, Action)], text: &str) -> Vec<u64> {
    lines(seen).into_iter().filter(|line| line.1 == text).map(|line| line.0).collect()
}

fn tries(seen: &[(u64, Action)]) -> Vec<u64> {
    let verify = |action: &Action| matches!(action, Action::Verify { .. });
    seen.iter().filter(|(_, action)| verify(action)).map(|(now, _)| *now).collect()
}

fn started() -> Action {
    Action::Write { line: b"STARTED\n", visible: true, kick: true }
}

/// Takes a PUT whose verification ends at once.
fn put(status: &mut Status, millis: u64, host: Host, ok: bool) {
    let attempt = status.put_started(at(millis), host);
    assert!(status.verified(at(millis), attempt, ok));
}

/// A PUT, verified at `millis`; CONNECTED is still to be written.
fn connected(millis: u64) -> Status {
    let mut status = status();
    run(&mut status, 0, millis);
    put(&mut status, millis, HOST, true);
    status
}

/// A host that is lost immediately after its PUT.
fn lost() -> Status {
    let mut status = connected(0);
    status.host_lost(at(0));
    status
}

/// Returns the number of the verification among these actions.
fn attempt(actions: &[Action]) -> u32 {
    let number = |action: &Action| match action {
        Action::Verify { attempt, .. } => Some(*attempt),
        _ => None,
    };
    actions.iter().find_map(number).expect("a verification")
}

/// Makes an ordinary call succeed, and the verification after it.
fn regain(status: &mut Status, millis: u64) {
    assert!(status.call_answered(at(millis), 200));
    let due = actions(status, millis);
    assert!(status.verified(at(millis), attempt(&due), true));
}

#[test]
fn announces_immediately_and_every_second() {
    let seen = run(&mut status(), 0, 3500);
    assert_eq!(lines(&seen), [0, 1000, 2000, 3000].map(|now| (now, "STARTED", true)));
    assert_eq!(seen[0].1, started());
}

#[test]
fn a_late_poll_writes_one_line() {
    let mut started_long_ago = status();
    run(&mut started_long_ago, 0, 0);
    assert_eq!(actions(&mut started_long_ago, 14_900), [started()]);
    assert_eq!(started_long_ago.deadline(), Some(at(15_000)));
    let mut connected_long_ago = connected(0);
    run(&mut connected_long_ago, 0, 0);
    let seen = actions(&mut connected_long_ago, 1_000_000_000);
    assert_eq!(seen, [Action::Write { line: b"STARTED\n", visible: true, kick: false }]);
    assert_eq!(connected_long_ago.deadline(), Some(at(1_000_001_500)));
}

#[test]
fn a_zero_interval_does_not_loop() {
    let zero = Duration::ZERO;
    let intervals = Intervals { connect: zero, started: zero, connected: zero };
    let seen = run(&mut Status::new(at(0), intervals), 0, 1000);
    assert_eq!(seen.len(), 101);
}

fn changes(status: &mut Status, millis: u64) -> Vec<State> {
    let state = |action| if let Action::Changed(state) = action { Some(state) } else { None };
    polled(status, millis).into_iter().filter_map(state).collect()
}

#[test]
fn logs_each_state_once() {
    let mut status = connected(0);
    assert_eq!(changes(&mut status, 0), [State::Connected]);
    for (millis, host, ok, expected) in [
        // The host repeats its address and is verified again: nothing changes.
        (10, HOST, true, &[][..]),
        (20, at_port(4001), true, &[State::Connected]),
        (30, HOST, false, &[State::Started]),
    ] {
        put(&mut status, millis, host, ok);
        assert_eq!(changes(&mut status, millis), expected, "{millis}");
    }
    status.put_started(at(35), HOST);
    assert_eq!(changes(&mut status, 35), []);
    status.stop(at(40));
    assert_eq!(changes(&mut status, 40), [State::Stopped]);
}

#[test]
fn a_verified_put_reports_connected_once() {
    let mut status = connected(10);
    assert_eq!(status.state(), State::Connected);
    let seen = run(&mut status, 10, 62_000);
    assert_eq!(times(&seen, "CONNECTED"), [10]);
    assert_eq!(times(&seen, "STARTED"), [30_010, 60_010]);
    // Between them only lines without an event, soon after each of the host's own readings.
    let silent = [1_510, 6_510, 11_510, 16_510, 21_510, 26_510, 31_510];
    assert_eq!(times(&seen, REFRESH_TEXT)[..7], silent);
    assert!(lines(&seen).iter().all(|line| line.2 != (line.1 == REFRESH_TEXT)));
}

#[test]
fn writes_nothing_during_a_call() {
    let mut status = status();
    run(&mut status, 0, 900);
    status.put_started(at(900), HOST);
    assert_eq!(status.state(), State::Connect);
    status.port_appeared(at(950));
    assert_eq!(lines(&run(&mut status, 950, 2500)), []);
    // The verification took too long, so the machine announces again.
    assert_eq!(lines(&run(&mut status, 3900, 3900)), [(3900, "STARTED", true)]);
    assert_eq!(status.state(), State::Started);
}

#[test]
fn retries_a_lost_address_with_growing_delays() {
    let mut status = lost();
    let seen = run_with(&mut status, 0, 100_000, Some(false));
    assert_eq!(tries(&seen), [1000, 3000, 7000, 15_000, 31_000, 61_000, 91_000]);
    // An error of the host does not bring the next one forward.
    assert!(!status.call_answered(at(100_000), 500));
    let seen = run_with(&mut status, 100_001, 130_000, Some(true));
    assert_eq!((tries(&seen), status.state()), ([121_000].into(), State::Connected));
    // After another loss it starts over.
    status.host_lost(at(130_000));
    let seen = run_with(&mut status, 130_000, 134_000, Some(false));
    assert_eq!(tries(&seen), [131_000, 133_000]);
    // Each attempt times out after three seconds.
    assert_eq!(tries(&run(&mut lost(), 0, 20_000)), [1000, 6000, 13_000]);
}

#[test]
fn reports_stopped_then_started_to_a_silent_or_unaware_host() {
    for mut status in [lost(), status()] {
        let seen = run_with(&mut status, 0, 50_000, Some(false));
        assert_eq!(times(&seen, "STOPPED\nSTOPPED"), [15_000, 45_000]);
        let next = lines(&seen).into_iter().find(|line| line.0 > 15_000).unwrap();
        assert_eq!(next, (16_500, "STARTED", true));
    }
}

#[test]
fn failed_puts_cause_stopped_and_started_soon_and_then_twice_a_minute() {
    let mut status = status();
    run(&mut status, 0, 100);
    put(&mut status, 600, HOST, false);
    let seen = run(&mut status, 600, 4000);
    assert_eq!(times(&seen, "STARTED"), [600, 1600, 3600]);
    assert_eq!(times(&seen, "STOPPED\nSTOPPED"), [2100]);
    let (mut status, mut seen, mut edge) = (self::status(), Vec::new(), true);
    for now in (0..120_000).step_by(100) {
        let written = actions(&mut status, now);
        if written.contains(&started()) && core::mem::take(&mut edge) {
            put(&mut status, now, HOST, false);
        }
        seen.extend(written.into_iter().map(|action| (now, action)));
        edge |= times(&seen, "STOPPED\nSTOPPED").last() == Some(&now);
    }
    assert_eq!(times(&seen, "STOPPED\nSTOPPED"), [1500, 31_500, 61_500, 91_500]);
}

#[test]
fn still_reports_started_if_regained_after_stopped() {
    for by_put in [false, true] {
        let mut status = lost();
        let seen = run_with(&mut status, 0, 15_000, Some(false));
        assert_eq!(times(&seen, "STOPPED\nSTOPPED"), [15_000]);
        if by_put {
            put(&mut status, 15_100, HOST, true);
        } else {
            // The last own verification was at 15 s.
            regain(&mut status, 16_000);
        }
        let seen = run(&mut status, 16_000, 19_000);
        let visible = lines(&seen).into_iter().rfind(|line| line.2).unwrap();
        assert_eq!((visible.0, visible.1), (if by_put { 16_600 } else { 17_500 }, "STARTED"));
    }
}

#[test]
fn drops_an_unwritten_line_that_is_outdated() {
    let unwritten = || {
        let mut status = connected(0);
        let words = actions(&mut status, 0);
        status.write_failed(at(0));
        (status, words)
    };
    // Unless the state changes, the write is repeated later.
    let (mut status, words) = unwritten();
    assert_eq!((words.len(), actions(&mut status, 500)), (1, vec![]));
    assert_eq!(actions(&mut status, 1000), words);
    // CONNECTED, then the host is lost, or sends another PUT.
    let (mut status, _) = unwritten();
    status.host_lost(at(10));
    assert!(times(&run(&mut status, 10, 10_000), "CONNECTED").is_empty());
    let (mut status, _) = unwritten();
    status.put_started(at(10), HOST);
    assert!(times(&run(&mut status, 10, 2900), "CONNECTED").is_empty());
    // The STOPPED of `Timer::Turn` fails; connected before it is tried again, at 16 s.
    let mut status = lost();
    run_with(&mut status, 0, 15_000, Some(false));
    status.write_failed(at(15_000));
    put(&mut status, 15_010, HOST, true);
    assert!(times(&run(&mut status, 15_010, 60_000), "STOPPED\nSTOPPED").is_empty());
}

#[test]
fn writes_to_a_new_port_immediately_without_flooding_a_flapping_one() {
    let mut status = status();
    run(&mut status, 0, 0);
    status.write_failed(at(100));
    status.port_appeared(at(500));
    assert_eq!(actions(&mut status, 500), [started()]);
    let mut writes = 0;
    for now in 501..1501 {
        status.port_appeared(at(now));
        writes += actions(&mut status, now).len();
    }
    assert!((4..=5).contains(&writes), "{writes}");
}

#[test]
fn repeats_an_unwritten_stopped() {
    let mut status = lost();
    run_with(&mut status, 0, 15_000, Some(false));
    status.write_failed(at(15_000));
    let seen = run_with(&mut status, 15_001, 18_000, Some(false));
    assert_eq!(lines(&seen), [(16_000, "STOPPED\nSTOPPED", true), (17_500, "STARTED", true)]);
    // The machine also repeats the STOPPED at the end.
    let mut status = connected(0);
    status.stop(at(5));
    let stopped = Action::Write { line: b"STOPPED\nSTOPPED\n", visible: true, kick: true };
    assert_eq!(actions(&mut status, 5), [stopped]);
    assert_eq!((actions(&mut status, 100_000), status.deadline()), (Vec::new(), None));
    status.write_failed(at(100_000));
    assert_eq!(actions(&mut status, 100_099), []);
    assert_eq!(actions(&mut status, 100_100), [stopped]);
}

/// A machine that has verified the host of `agent.conf` at 50 ms.
fn configured() -> Status {
    let mut status = status();
    status.know(at(0), HOST);
    let first = actions(&mut status, 0);
    assert!(matches!(first[0], Action::Verify { host: HOST, .. }), "{first:?}");
    assert_eq!((first[1], status.state()), (started(), State::Started));
    assert!(status.verified(at(50), attempt(&first), true));
    assert_eq!(status.state(), State::Connected);
    status
}

#[test]
fn agent_conf_connects_while_started_is_repeated() {
    // No CONNECTED, which would hide STARTED from a host that reads only the last line.
    let mut status = configured();
    let seen = lines(&run(&mut status, 50, 45_000));
    let visible: Vec<_> = seen.iter().filter(|line| line.2).map(|line| (line.0, line.1)).collect();
    let eager = (1..=10).map(|second| (second * 1000 + 50, "STARTED"));
    assert_eq!(visible[..10], eager.collect::<Vec<_>>());
    // Only once: the host does not repeat a call that failed because the agent was too slow.
    assert_eq!(visible[10..], [(15_000, "STOPPED\nSTOPPED"), (16_500, "STARTED")]);
    let seen = run(&mut status, 45_000, 600_000);
    assert!(times(&seen, "STOPPED\nSTOPPED").is_empty(), "{seen:?}");
    // It does not happen if the host calls before.
    let mut status = configured();
    run(&mut status, 50, 14_000);
    put(&mut status, 14_000, HOST, true);
    let seen = run(&mut status, 14_010, 600_000);
    assert!(times(&seen, "STOPPED\nSTOPPED").is_empty(), "{seen:?}");
}

#[test]
fn agent_conf_does_not_replace_the_hosts_put() {
    let mut status = connected(0);
    let other = at_port(9);
    status.know(at(1), other);
    assert_eq!((status.host(), status.state()), (Some(HOST), State::Connected));
    status.host_lost(at(2));
    status.know(at(3), other);
    assert_eq!(status.host(), Some(HOST));
}
