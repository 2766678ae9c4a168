//! Ready, repeated to a restarted host.

use std::os::unix::net::UnixStream;
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use mote_tests::agent::command;
use mote_tests::{NAME, Pair, Process, wait};

use super::lxd;

const LIMIT: Duration = Duration::from_secs(10);
/// A host's delay: longer than a call, shorter than the limit of a verification.
const SLOW: [&str; 2] = ["slow", "1500"];

fn say(pair: &Pair, state: &str) {
    let body = format!("{{\"state\":\"{state}\"}}");
    assert_eq!(pair.ask_with("PATCH", "/1.0", "", &body).0, 200);
}

fn status(pair: &Pair) -> String {
    pair.host.state()["status"].as_str().unwrap_or_default().to_owned()
}

/// Restarts the host, which forgets its guest's state, and has it call the agent. The thread ends
/// with the agent's answer.
fn restart_host(pair: &mut Pair, fault: &[&str]) -> JoinHandle<()> {
    pair.host.kill();
    pair.host.start();
    pair.host.ok(&[&["fault", NAME], fault].concat());
    let client = pair.client();
    let told = client.host_info().expect("what the host tells").to_string();
    // The answer comes after the agent has called back.
    spawn(move || drop(client.ask("PUT", "/1.0", &told)))
}

/// Counts the states in the log since the host's last start; an earlier host's may lack its last
/// line.
fn states_logged(pair: &Pair) -> usize {
    let log = pair.host.log();
    log.rsplit("listening").next().unwrap_or_default().matches("PATCH /1.0 200").count()
}

/// Asserts how many states the restarted host received: the agent's repetition, if any, and the
/// application's.
#[track_caller]
fn assert_states(pair: &Pair, call: JoinHandle<()>, expected: usize) {
    call.join().expect("no panic");
    say(pair, "Started");
    // A line follows its answer.
    let count = || Some(states_logged(pair)).filter(|all| *all >= expected);
    assert_eq!(wait("the host's log", LIMIT, count).0, expected, "{}", pair.host.log());
}

#[test]
fn a_repeated_ready_never_overtakes_a_newer_started() {
    let mut pair = lxd();
    say(&pair, "Ready");
    let _call = restart_host(&mut pair, &SLOW);
    // The repetition is in progress and slow; the next state must wait for it.
    let replayed = || (pair.host.state()["last_request"] == "PATCH /1.0").then_some(());
    wait("Ready said again", LIMIT, replayed);
    pair.host.ok(&["fault", NAME, "none"]);
    say(&pair, "Started");
    let both = || (states_logged(&pair) == 2).then_some(());
    wait("both at the host", LIMIT, both);
    assert_eq!(status(&pair), "Running", "{}", pair.host.log());
    // The agent does not repeat it later.
    let call = restart_host(&mut pair, &["none", "0"]);
    assert_states(&pair, call, 1);
}

#[test]
fn repeats_ready_unless_disabled() {
    for (option, states) in [(None, 2), (Some("--no-replay-ready"), 1)] {
        let mut pair = lxd();
        pair.agent.kill();
        let mut agent = command(&pair.scratch.0, "lxd", &pair.host.share);
        pair.agent = Process::start(agent.args(option));
        wait("devlxd", LIMIT, || UnixStream::connect(pair.socket()).ok());
        say(&pair, "Ready");
        assert_eq!(status(&pair), "Ready");
        let call = restart_host(&mut pair, &["none", "0"]);
        assert_states(&pair, call, states);
    }
}
