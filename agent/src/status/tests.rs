//! The status machine on a virtual clock, also against a simulated host.

use super::*;
use std::vec::Vec;

const REFRESH_TEXT: &str = "STARTED\nSTARTED";
const HOST: Address = Address { cid: 2, port: 4000 };

fn at(millis: u64) -> Uptime {
    Uptime::from_millis(millis)
}

fn status() -> Status {
    Status::new(at(0), Intervals::default())
}

/// All actions due at `millis`, without the reports.
fn actions(status: &mut Status, millis: u64) -> Vec<Action> {
    let all: Vec<_> = core::iter::from_fn(|| status.poll(at(millis))).take(100).collect();
    assert!(all.len() < 100, "a burst");
    all.into_iter().filter(|action| !matches!(action, Action::Changed(_))).collect()
}

/// Runs the clock until `end`; gives what was written or asked, with its time.
fn run(status: &mut Status, from: u64, end: u64) -> Vec<(u64, Action)> {
    let (mut now, mut seen) = (from, Vec::new());
    while now <= end {
        seen.extend(actions(status, now).into_iter().map(|action| (now, action)));
        match status.deadline() {
            Some(next) => {
                assert!(next > at(now), "deadline {next:?} is not after {now}");
                now = next.as_millis();
            }
            None => break,
        }
    }
    seen
}

fn lines(seen: &[(u64, Action)]) -> Vec<(u64, &'static str, bool)> {
    seen.iter()
        .filter_map(|(now, action)| match action {
            Action::Write { line, visible, .. } => {
                Some((*now, core::str::from_utf8(line).unwrap().trim_end(), *visible))
            }
            _ => None,
        })
        .collect()
}

fn started() -> Action {
    Action::Write { line: b"STARTED\n", visible: true, kick: true }
}

/// Told by PUT and verified at `millis`.
fn connected(millis: u64) -> Status {
    let mut status = status();
    run(&mut status, 0, millis);
    let attempt = status.put_started(at(millis), HOST);
    status.verified(at(millis), attempt, true);
    status
}

#[test]
fn it_announces_itself_at_once_and_then_each_second() {
    let seen = run(&mut status(), 0, 3500);
    assert_eq!(lines(&seen), [0, 1000, 2000, 3000].map(|now| (now, "STARTED", true)),);
    assert_eq!(seen[0].1, started());
}

#[test]
fn a_late_poll_says_one_line_and_no_burst() {
    let mut status = status();
    assert_eq!(actions(&mut status, 0), [started()]);
    assert_eq!(actions(&mut status, 100_000), [started()]);
    assert_eq!(status.deadline(), Some(at(101_000)));
}

#[test]
fn a_put_that_is_verified_says_connected_and_goes_on_quietly() {
    let mut status = connected(10);
    assert_eq!(status.state(), State::Connected);
    let seen = run(&mut status, 10, 12_000);
    assert_eq!(
        lines(&seen),
        [
            (10, "CONNECTED", true),
            (1510, REFRESH_TEXT, false),
            (3010, REFRESH_TEXT, false),
            (4510, REFRESH_TEXT, false),
            (5010, "STARTED", true),
            (6510, REFRESH_TEXT, false),
            (8010, REFRESH_TEXT, false),
            (9510, REFRESH_TEXT, false),
            (10_010, "STARTED", true),
            (11_510, REFRESH_TEXT, false),
        ]
    );
}

#[test]
fn nothing_is_written_while_the_host_is_called() {
    let mut status = status();
    run(&mut status, 0, 900);
    status.put_started(at(900), HOST);
    assert_eq!(status.state(), State::Connect);
    assert_eq!(lines(&run(&mut status, 900, 2500)), []);
    // It took too long: announced again.
    assert_eq!(lines(&run(&mut status, 3900, 3900)), [(3900, "STARTED", true)]);
    assert_eq!(status.state(), State::Started);
}

#[test]
fn a_call_that_fails_is_started_at_once() {
    let mut status = connected(10);
    run(&mut status, 10, 700);
    status.host_lost(at(700));
    assert_eq!(status.state(), State::Started);
    assert_eq!(actions(&mut status, 700), [started()]);
    status.call_ok(at(800));
    assert_eq!(status.state(), State::Connected);
}

#[test]
fn a_lost_address_is_tried_again_ever_more_slowly() {
    let mut status = connected(0);
    status.host_lost(at(0));
    let mut tries = Vec::new();
    let mut now = 0;
    while now < 100_000 {
        for action in actions(&mut status, now) {
            if let Action::Verify { address, attempt, .. } = action {
                assert_eq!(address, HOST);
                tries.push(now);
                status.verified(at(now), attempt, false);
            }
        }
        now = status.deadline().unwrap().as_millis();
    }
    assert_eq!(tries, [1000, 3000, 7000, 15_000, 31_000, 61_000, 91_000]);
}

#[test]
fn a_host_that_never_calls_again_is_told_stopped_then_started() {
    let mut status = connected(0);
    status.host_lost(at(0));
    let mut seen = Vec::new();
    let mut now = 0;
    while now < 50_000 {
        for action in actions(&mut status, now) {
            if let Action::Verify { attempt, .. } = action {
                status.verified(at(now), attempt, false);
            }
            seen.push((now, action));
        }
        now = status.deadline().unwrap().as_millis();
    }
    let stopped: Vec<_> = lines(&seen)
        .into_iter()
        .filter(|line| line.1.starts_with("STOPPED"))
        .map(|line| line.0)
        .collect();
    assert_eq!(stopped, [15_000, 45_000]);
    let next = lines(&seen).into_iter().find(|line| line.0 > 15_000).unwrap();
    assert_eq!(next, (16_500, "STARTED", true));
}

#[test]
fn a_failed_put_turns_the_host_around_soon() {
    let mut status = status();
    run(&mut status, 0, 100);
    let attempt = status.put_started(at(100), HOST);
    status.verified(at(200), attempt, false);
    let seen = run(&mut status, 200, 1190);
    assert_eq!(lines(&seen)[0], (200, "STARTED", true));
    let mut seen = Vec::new();
    for now in [1200, 1700, 3200] {
        seen.extend(actions(&mut status, now).into_iter().map(|action| (now, action)));
    }
    assert_eq!(lines(&seen)[1..], [(1700, "STOPPED\nSTOPPED", true), (3200, "STARTED", true)]);
}

#[test]
fn agent_conf_connects_in_the_background_while_started_is_still_said() {
    let mut status = status();
    status.know(at(0), HOST);
    let first = actions(&mut status, 0);
    let Action::Verify { address: HOST, fingerprint: None, attempt } = first[0] else {
        panic!("{first:?}");
    };
    assert_eq!((first[1], status.state()), (started(), State::Started));
    status.verified(at(50), attempt, true);
    assert_eq!(status.state(), State::Connected);
    // No CONNECTED: it would hide STARTED from a host that reads the last line only.
    let seen = lines(&run(&mut status, 50, 3100));
    let visible: Vec<_> = seen.iter().filter(|line| line.2).map(|line| (line.0, line.1)).collect();
    assert_eq!(visible, [(1050, "STARTED"), (2050, "STARTED"), (3050, "STARTED")]);
}

#[test]
fn a_connect_line_is_followed_however_it_is_cut() {
    let text = b"noise\0\nSTARTED\nCONNECT 2:4000\nSTAR";
    for size in 1..text.len() {
        let mut status = status();
        status.trust_known(true);
        run(&mut status, 0, 100);
        for cut in text.chunks(size) {
            status.received(at(100), cut);
        }
        let expected = Action::Verify { address: HOST, fingerprint: None, attempt: 1 };
        assert_eq!(actions(&mut status, 100), [expected], "{size}");
        assert_eq!(status.state(), State::Connect);
        status.verified(at(120), 1, true);
        assert_eq!(lines(&run(&mut status, 120, 120)), [(120, "CONNECTED", true)]);
    }
}

#[test]
fn a_certificate_is_never_taken_on_trust() {
    let mut status = status();
    run(&mut status, 0, 0);
    status.received(at(1), b"CONNECT 2:4000\n");
    assert_eq!(actions(&mut status, 1), [Action::Refused(RefusedLine::NoCertificate)]);
    // Refusals are logged now and then, not each time.
    status.received(at(2), b"CONNECT 2:4000\nCONNECT x\n");
    assert_eq!(actions(&mut status, 2), []);
    status.received(at(10_001), b"CONNECT x\n");
    assert!(actions(&mut status, 10_001).contains(&Action::Refused(RefusedLine::Malformed)));
    let pinned = std::format!("CONNECT 2:4000 {}\n", "ab".repeat(32));
    status.received(at(10_002), pinned.as_bytes());
    let expected = Action::Verify { address: HOST, fingerprint: Some([0xab; 32]), attempt: 1 };
    assert_eq!(actions(&mut status, 10_002), [expected]);
}

#[test]
fn a_told_host_is_tried_for_a_while_then_announced_to_again() {
    let mut status = status();
    status.trust_known(true);
    run(&mut status, 0, 0);
    status.received(at(0), b"CONNECT 2:4000\n");
    let (mut now, mut tries) = (0, 0);
    while status.state() != State::Started || tries == 0 {
        for action in actions(&mut status, now) {
            if let Action::Verify { attempt, .. } = action {
                tries += 1;
                status.verified(at(now), attempt, false);
            }
        }
        now = status.deadline().unwrap().as_millis();
    }
    assert_eq!(tries, 20);
}

#[test]
fn a_restarted_host_may_send_connect_while_we_are_connected() {
    let mut status = connected(0);
    status.trust_known(true);
    run(&mut status, 0, 500);
    status.received(at(600), b"CONNECT 2:5000\n");
    let new = Address { cid: 2, port: 5000 };
    let expected = Action::Verify { address: new, fingerprint: None, attempt: 2 };
    assert_eq!(actions(&mut status, 600), [expected]);
    status.verified(at(610), 2, true);
    assert_eq!((status.state(), status.address()), (State::Connected, Some(new)));
    assert_eq!(lines(&run(&mut status, 610, 610)), [(610, "CONNECTED", true)]);
}

#[test]
fn old_results_do_not_count() {
    let mut status = status();
    let first = status.put_started(at(0), HOST);
    let second = status.put_started(at(1), HOST);
    status.verified(at(2), first, false);
    assert_eq!(status.state(), State::Connect);
    status.verified(at(3), second, true);
    status.verified(at(4), second, false);
    assert_eq!(status.state(), State::Connected);
}

#[test]
fn a_hostile_writer_costs_a_bounded_number_of_calls() {
    let mut status = status();
    status.trust_known(true);
    let mut calls = 0;
    for now in 0..1000 {
        for port in 1..20 {
            status.received(at(now), std::format!("CONNECT 2:{port}\n").as_bytes());
        }
        status.received(at(now), &[b'x'; 300]);
        status.received(at(now), b"\n");
        calls += actions(&mut status, now)
            .iter()
            .filter(|action| matches!(action, Action::Verify { .. }))
            .count();
    }
    assert!((1..=11).contains(&calls), "{calls}");
}

#[test]
fn a_write_that_fails_is_repeated_later() {
    let mut status = connected(0);
    let connected = actions(&mut status, 0);
    assert_eq!(connected.len(), 1);
    status.write_failed(at(0));
    assert_eq!(actions(&mut status, 500), []);
    assert_eq!(actions(&mut status, 1000), connected);
}

#[test]
fn stopped_is_the_last_word() {
    let mut status = connected(0);
    status.stop(at(5));
    let stopped = Action::Write { line: b"STOPPED\nSTOPPED\n", visible: true, kick: true };
    assert_eq!(actions(&mut status, 5), [stopped]);
    status.received(at(6), b"CONNECT 2:1\n");
    status.call_ok(at(6));
    status.host_lost(at(6));
    assert_eq!((actions(&mut status, 100_000), status.deadline()), (Vec::new(), None));
}

/// A host as P§2.3 has it: a ring of 16 bytes, read when the port is closed (an event), each 10 s,
/// and at its start; the last complete line counts, or on newer Incus the one before it.
struct Host {
    ring: Vec<u8>,
    up: bool,
    started: bool,
    next_read: u64,
    incus: bool,
}

impl Host {
    fn write(&mut self, now: u64, line: &[u8], visible: bool, status: &mut Status) {
        self.ring.extend_from_slice(line);
        let size = if self.incus { 16_384 } else { 16 };
        let over = self.ring.len().saturating_sub(size);
        self.ring.drain(..over);
        if visible {
            self.read(now, status);
        }
    }

    fn read(&mut self, now: u64, status: &mut Status) {
        if !self.up {
            return;
        }
        self.next_read = now + 10_000;
        let text = std::string::String::from_utf8(core::mem::take(&mut self.ring)).unwrap();
        let entries: Vec<_> = text.split('\n').collect();
        let back = if self.incus && entries.len() > 2 { 3 } else { 2 };
        let Some(line) = entries.len().checked_sub(back).map(|index| entries[index]) else {
            return;
        };
        match line {
            "STARTED" if !self.started => {
                self.started = true;
                let attempt = status.put_started(at(now), HOST);
                status.verified(at(now), attempt, true);
            }
            "STOPPED" => self.started = false,
            _ => {}
        }
    }
}

/// Runs both from `now` until connected; gives the time.
fn until_connected(host: &mut Host, status: &mut Status, mut now: u64) -> u64 {
    loop {
        for action in actions(status, now) {
            match action {
                Action::Write { line, visible, .. } => host.write(now, line, visible, status),
                Action::Verify { attempt, .. } => status.verified(at(now), attempt, host.up),
                Action::Refused(_) | Action::Changed(_) => {}
            }
        }
        if host.next_read <= now {
            host.read(now, status);
        }
        if host.started && status.state() == State::Connected {
            return now;
        }
        now = status.deadline().unwrap().as_millis().min(host.next_read.max(now + 1));
        assert!(now < 1_000_000, "never connected");
    }
}

#[test]
fn a_restarted_host_has_us_back_within_two_seconds() {
    for incus in [false, true] {
        for down in [2000, 5000, 60_000] {
            for phase in (0..5000).step_by(250) {
                let mut host =
                    Host { ring: Vec::new(), up: true, started: false, next_read: 0, incus };
                let mut status = status();
                let mut now = until_connected(&mut host, &mut status, 0) + phase;
                // Down: it reads nothing, and forgets us.
                (host.up, host.started) = (false, false);
                for (when, action) in run(&mut status, now, now + down) {
                    if let Action::Write { line, visible, .. } = action {
                        host.write(when, line, visible, &mut status);
                    }
                }
                now += down;
                host.up = true;
                host.read(now, &mut status);
                let back = until_connected(&mut host, &mut status, now);
                assert!(
                    back <= now + 2000,
                    "incus {incus} down {down} phase {phase}: {back}-{now}"
                );
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Wait(u64),
    Bytes(Vec<u8>),
    Put,
    Verified(u32, bool),
    CallOk,
    Lost,
    Failed,
    Appeared,
    Know,
}

fn op() -> impl proptest::strategy::Strategy<Value = Op> {
    use proptest::prelude::*;
    prop_oneof![
        4 => (0u64..4000).prop_map(Op::Wait),
        2 => prop_oneof![
            Just(b"CONNECT 2:9\n".to_vec()),
            Just(b"STARTED\nCONNECTED\n".to_vec()),
            proptest::collection::vec(any::<u8>(), 0..40),
        ].prop_map(Op::Bytes),
        2 => Just(Op::Put),
        3 => (0u32..12, any::<bool>()).prop_map(|(attempt, ok)| Op::Verified(attempt, ok)),
        1 => Just(Op::CallOk),
        1 => Just(Op::Lost),
        1 => Just(Op::Failed),
        1 => Just(Op::Appeared),
        1 => Just(Op::Know),
    ]
}

proptest::proptest! {
    #[test]
    fn whatever_happens_it_is_bounded_and_goes_on(ops in proptest::collection::vec(op(), 1..60)) {
        let mut status = status();
        status.trust_known(true);
        let mut now = 0;
        for op in ops {
            let (mut writes, mut end) = (0, now);
            match op {
                Op::Wait(millis) => end = now + millis,
                Op::Bytes(bytes) => status.received(at(now), &bytes),
                Op::Put => drop(status.put_started(at(now), HOST)),
                Op::Verified(attempt, ok) => status.verified(at(now), attempt, ok),
                Op::CallOk => status.call_ok(at(now)),
                Op::Lost => status.host_lost(at(now)),
                Op::Failed => status.write_failed(at(now)),
                Op::Appeared => status.port_appeared(at(now)),
                Op::Know => status.know(at(now), HOST),
            }
            for (_, action) in run(&mut status, now, end) {
                writes += u64::from(matches!(action, Action::Write { .. }));
            }
            proptest::prop_assert!(writes <= 3 + (end - now) / 300, "{writes} in {}", end - now);
            now = end;
        }
        status.stop(at(now));
        let last = lines(&run(&mut status, now, now)).pop().map(|line| line.1);
        proptest::prop_assert_eq!(last, Some("STOPPED\nSTOPPED"));
    }
}
