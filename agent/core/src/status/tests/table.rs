//! The transition table: every state under every input.

use super::*;

const OTHER: Host = Host { address: HostAddress { cid: 3, port: 77 }, ..HOST };

/// A machine in that state at 10 s, with no action due.
fn machine(state: State) -> Status {
    let mut status = connected(0);
    run(&mut status, 0, 9000);
    match state {
        State::Started => status.host_lost(at(9000)),
        State::Connect => assert!(status.put_started(at(9000), HOST) > 0),
        State::Connected => {}
        State::Stopped => status.stop(at(9000)),
    }
    run(&mut status, 9000, 9000);
    assert_eq!(status.state(), state);
    status
}

/// An input, and the state that it leads to from STARTED, CONNECT, CONNECTED, STOPPED.
type Row<'r> = (&'static str, &'r dyn Fn(&mut Status), [State; 4]);

#[test]
fn every_input_leads_to_the_expected_state() {
    use State::{Connect, Connected, Started, Stopped};
    const SAME: [State; 4] = [Started, Connect, Connected, Stopped];
    let now = at(10_000);
    let put_and_verify = |it: &mut Status| {
        let attempt = it.put_started(now, OTHER);
        assert_eq!(it.verified(now, attempt, true), it.state() != Stopped);
    };
    let told = |it: &mut Status, bytes: &[u8]| it.received(at(10_000), bytes);
    let rows: [Row<'_>; 16] = [
        ("nothing", &|_| {}, SAME),
        ("noise", &|it| told(it, &[0, 255, 10]), SAME),
        ("echo", &|it| told(it, b"STARTED\nCONNECTED\nSTOPPED\n"), SAME),
        ("half a line", &|it| told(it, b"CONNECT 3:77"), SAME),
        ("a line", &|it| told(it, b"CONNECT 3:77\n"), [Connect, Connect, Connect, Stopped]),
        ("the known", &|it| told(it, b"CONNECT 2:4000\n"), [Connect, Connect, Connected, Stopped]),
        ("agent.conf", &|it| it.know(now, OTHER), SAME),
        ("a PUT", &|it| _ = it.put_started(now, OTHER), [Connect, Connect, Connect, Stopped]),
        ("a false number", &|it| assert!(!it.verified(now, 99, true)), SAME),
        ("a call worked", &|it| _ = it.call_answered(now, 200), SAME),
        ("a call was refused", &|it| _ = it.call_answered(now, 401), SAME),
        ("a call failed", &|it| it.host_lost(now), [Started, Connect, Started, Stopped]),
        ("port", &|it| it.port_appeared(now), SAME),
        ("write", &|it| it.write_failed(now), SAME),
        ("stop", &|it| it.stop(now), [Stopped; 4]),
        ("a PUT that proves true", &put_and_verify, [Connected, Connected, Connected, Stopped]),
    ];
    for (name, input, expected) in rows {
        for (from, to) in SAME.into_iter().zip(expected) {
            let mut status = machine(from);
            input(&mut status);
            actions(&mut status, 10_000);
            assert_eq!(status.state(), to, "{name} in {}", from.name());
        }
    }
}

#[test]
fn polls_the_port_as_often_as_the_state_needs() {
    let pause = |state| {
        let mut status = machine(state);
        actions(&mut status, 10_000);
        status.wake(at(10_000)) - at(10_000)
    };
    assert_eq!(pause(State::Connect), CONNECT);
    assert!(pause(State::Started) <= STARTED);
    assert!(pause(State::Connected) <= CONNECTED);
}

/// An idle machine wakes only for its writes, and reads the port then.
#[test]
fn polling_the_port_adds_no_wake_up() {
    const TEN_MINUTES: u64 = 600_000;
    let wakes = |state, looking: bool| {
        let mut status = machine(state);
        let (mut now, mut count) = (10_000, 0);
        while now < 10_000 + TEN_MINUTES {
            actions(&mut status, now);
            let due = status.deadline().unwrap();
            now = if looking { status.wake(at(now)) } else { due }.as_millis();
            count += 1;
        }
        count
    };
    assert_eq!(wakes(State::Connected, true), wakes(State::Connected, false));
    // One more wake-up between STOPPED and STARTED, which are further apart than other lines.
    let turns = TEN_MINUTES / u64::try_from(RESTART_INTERVAL.as_millis()).unwrap();
    assert!(wakes(State::Started, true) <= wakes(State::Started, false) + turns);
}
