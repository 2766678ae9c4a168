//! Commands that run when the agent is stopped. The servers' Go client expects an event for the end
//! of an operation, and treats an earlier end of the event stream as a failure (P§4.1).

use std::time::{Duration, Instant};

use mote_tests::conform::exec::{Running, script, terminal};
use mote_tests::conform::ws::Ws;
use mote_tests::proc::children;
use mote_tests::{Pair, kill, wait};
use rustix::process::Signal;
use serde_json::Value;

use super::start;

const LIMIT: Duration = Duration::from_secs(10);

/// Stops the agent. Returns its exit code and the time.
fn ends(pair: &mut Pair) -> (Option<i32>, Duration) {
    let begun = Instant::now();
    (pair.agent.ends(LIMIT), begun.elapsed())
}

/// Reads events until the operation ends, as the Go client does.
fn over(events: &mut Ws, running: &Running) -> Value {
    loop {
        let event = events.json().unwrap();
        let operation = &event["metadata"];
        let is_it = operation["id"] == running.exec.made["id"];
        if is_it && operation["status_code"].as_u64().unwrap() >= 200 {
            return operation.clone();
        }
    }
}

#[test]
fn the_host_sees_a_hang_up_of_the_terminal_last() {
    for request in [script("echo begun; exec sleep 300"), terminal("echo begun; exec sleep 300")] {
        let mut pair = start();
        let agent = pair.client();
        let mut events = Ws::open(&agent, "/1.0/events").unwrap();
        let mut running = Running::start(&agent, &request).unwrap();
        let mut seen = running.out.as_mut().unwrap_or(&mut running.stdin).until("begun").unwrap();
        kill(Signal::TERM, pair.agent.0.id());
        // A host that asks only now gets an answer from the same agent.
        let operation = over(&mut events, &running);
        assert_eq!(operation["metadata"]["return"], 129, "{operation}");
        assert_eq!((&operation["status"], &operation["err"]), (&"Success".into(), &"".into()));
        assert_eq!(running.exec.code(&agent, LIMIT), Ok(129));
        // The barrier proves that all output has arrived.
        let out = running.out.as_mut().unwrap_or(&mut running.stdin);
        seen += str::from_utf8(&out.output().unwrap()).unwrap();
        assert_eq!(seen.trim_end(), "begun");
        // The agent waits for the host, not for the command.
        assert_eq!(pair.agent.0.try_wait().unwrap(), None);
        events.drop_line();
        assert_eq!(ends(&mut pair).0, Some(0), "{}", pair.log());
    }
}

#[test]
fn a_stalled_host_delays_the_end_by_seconds_only() {
    for flood in [false, true] {
        let mut pair = start();
        let agent = pair.client();
        let _events = Ws::open(&agent, "/1.0/events").unwrap();
        let request = script(if flood { "exec yes" } else { "exec sleep 300" });
        let _running = Running::start(&agent, &request).unwrap();
        let started = || (!children(pair.agent.0.id()).is_empty()).then_some(());
        wait("the command", LIMIT, started);
        std::thread::sleep(Duration::from_secs(1));
        kill(Signal::TERM, pair.agent.0.id());
        let (code, took) = ends(&mut pair);
        assert_eq!(code, Some(0));
        assert!(took > Duration::from_secs(2), "{took:?}");
    }
}

/// An agent with a command waits 3 s for this host. The fastest of several exits proves that this
/// agent does not wait.
#[test]
fn an_agent_without_commands_ends_immediately() {
    let took = std::iter::repeat_with(|| {
        let mut pair = start();
        let _events = Ws::open(&pair.client(), "/1.0/events").unwrap();
        kill(Signal::TERM, pair.agent.0.id());
        let (code, took) = ends(&mut pair);
        assert_eq!(code, Some(0));
        took
    });
    assert!(took.take(10).any(|took| took < Duration::from_secs(2)));
}
