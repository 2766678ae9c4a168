//! Every state under every input: where it leads.

use super::*;

const OTHER: Address = Address { cid: 3, port: 77 };

/// A machine in that state at 10 s, nothing left to be said.
fn machine(state: State) -> Status {
    let mut status = connected(0);
    status.trust_known(true);
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

/// What happens, and the state that it leads to from STARTED, CONNECT, CONNECTED, STOPPED.
type Row = (&'static str, fn(&mut Status), [State; 4]);

#[test]
fn every_input_leads_from_every_state_where_it_should() {
    use State::{Connect, Connected, Started, Stopped};
    let rows: [Row; 15] = [
        ("nothing", |_| {}, [Started, Connect, Connected, Stopped]),
        (
            "noise",
            |it| it.received(at(10_000), &[0, 255, 10]),
            [Started, Connect, Connected, Stopped],
        ),
        (
            "echo",
            |it| it.received(at(10_000), b"STARTED\nCONNECTED\nSTOPPED\n"),
            [Started, Connect, Connected, Stopped],
        ),
        (
            "half a line",
            |it| it.received(at(10_000), b"CONNECT 3:77"),
            [Started, Connect, Connected, Stopped],
        ),
        (
            "a line",
            |it| it.received(at(10_000), b"CONNECT 3:77\n"),
            [Connect, Connect, Connect, Stopped],
        ),
        (
            "the known line",
            |it| it.received(at(10_000), b"CONNECT 2:4000\n"),
            [Connect, Connect, Connected, Stopped],
        ),
        ("agent.conf", |it| it.know(at(10_000), OTHER), [Started, Connect, Connected, Stopped]),
        (
            "a PUT",
            |it| assert!(it.put_started(at(10_000), OTHER) > 0),
            [Connect, Connect, Connect, Stopped],
        ),
        (
            "a false number",
            |it| assert!(!it.verified(at(10_000), 99, true)),
            [Started, Connect, Connected, Stopped],
        ),
        (
            "a call worked",
            |it| _ = it.call_ok(at(10_000)),
            [Connected, Connect, Connected, Stopped],
        ),
        ("a call failed", |it| it.host_lost(at(10_000)), [Started, Connect, Started, Stopped]),
        ("port", |it| it.port_appeared(at(10_000)), [Started, Connect, Connected, Stopped]),
        ("write", |it| it.write_failed(at(10_000)), [Started, Connect, Connected, Stopped]),
        ("stop", |it| it.stop(at(10_000)), [Stopped; 4]),
        ("a PUT that proves true", put_and_verify, [Connected, Connected, Connected, Stopped]),
    ];
    for (name, input, expected) in rows {
        for (from, to) in [Started, Connect, Connected, Stopped].into_iter().zip(expected) {
            let mut status = machine(from);
            input(&mut status);
            actions(&mut status, 10_000);
            assert_eq!(status.state(), to, "{name} in {}", from.name());
        }
    }
}

fn put_and_verify(status: &mut Status) {
    let attempt = status.put_started(at(10_000), OTHER);
    let counted = status.verified(at(10_000), attempt, true);
    assert_eq!(counted, status.state() != State::Stopped);
}

#[test]
fn the_port_is_looked_at_as_often_as_the_state_needs() {
    let interval = |state| machine(state).read_interval();
    assert_eq!(interval(State::Connect), CONNECT);
    assert_eq!(interval(State::Started), STARTED);
    assert_eq!(interval(State::Connected), CONNECTED);
}
