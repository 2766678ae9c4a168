//! Start, kill and end of the agent, and its requirements.

use std::sync::mpsc::channel;

use mote_tests::agent::{command, launch};
use mote_tests::clients::bridge::carry;
use mote_tests::prelude::*;

use super::{call, lxd};

/// The agent's own verification makes it CONNECTED earlier, so the host sends no other PUT.
#[test]
fn opens_devlxd_although_the_put_could_not_be_verified() {
    let pair = lxd();
    let conf = fs::read_to_string(pair.host.share.join("agent.conf")).unwrap();
    let off = conf.replace(",\"devlxd\":true", "").replace("\"devlxd\":true,", "");
    let socket = pair.socket();
    pair.host.ok(&["query", NAME, "PUT", "/1.0", &off]);
    until("the socket to go", Duration::from_secs(2), || !socket.exists());
    pair.host.ok(&["fault", NAME, "reset"]);
    let said = pair.host.try_run(&["query", NAME, "PUT", "/1.0", &conf]);
    contains(said.unwrap_or_else(|why| why), &["Failed verifying"]);
    pair.host.ok(&["fault", NAME, "none"]);
    until("the socket", Duration::from_secs(2), || socket.exists());
    until("an answer", Duration::from_secs(2), || {
        pair.ask("GET", "/1.0/config/user.foo").1 == "bar"
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
    let mut agent = command(&pair.scratch.0, "lxd", &pair.host.share);
    pair.agent = Process::start(agent.envs(environment));
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
    assert!(!pair.socket().exists(), "a name without a listener");
}

#[test]
fn remembers_ready_after_a_kill_and_restart() {
    let mut pair = lxd();
    assert_eq!(pair.ask_with("PATCH", "/1.0", "", "{\"state\":\"Ready\"}").0, 200);
    pair.agent.kill();
    pair.host.restart();
    // The agent has not called this host yet, so the instance counts as stopped.
    assert_eq!(pair.host.state()["status"], "Stopped");
    pair.agent = launch(&pair.scratch.0, "lxd", &pair.host.share);
    until("Ready", Duration::from_secs(5), || pair.host.state()["status"] == "Ready");
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
    let mut kept = BufReader::new(pair.connect());
    assert!(call(&mut kept, "/").0.contains(" 200 "));
    // An older PUT enables it, and its verification ends after the newer one.
    pair.host.ok(&["fault", NAME, "slow", "1500"]);
    let (older, enabling, before) = (pair.client(), told.to_string(), pair.log().len());
    let older = thread::spawn(move || older.ask("PUT", "/1.0", &enabling).unwrap().status);
    until("its call", Duration::from_secs(10), || pair.log()[before..].contains("GET /1.0 ("));
    pair.host.ok(&["fault", NAME, "none"]);
    told["devlxd"] = false.into();
    assert_eq!(client.ask("PUT", "/1.0", &told.to_string()).unwrap().status, 200);
    assert_eq!(older.join().unwrap(), 200);
    contains(call(&mut kept, "/").0, &[" 403 "]);
}

const LIMIT: Duration = Duration::from_secs(10);
/// A delay of the host, longer than a call takes and shorter than the limit for a verification.
const SLOW: [&str; 2] = ["slow", "1500"];

fn say(pair: &Pair, state: &str) {
    assert_eq!(pair.ask_with("PATCH", "/1.0", "", &format!("{{\"state\":\"{state}\"}}")).0, 200);
}

fn status(pair: &Pair) -> String {
    pair.host.state()["status"].as_str().unwrap_or_default().to_owned()
}

/// Restarts the host, which forgets its guest's state, and then calls the agent. The thread ends
/// when the agent has answered.
fn restart_host(pair: &mut Pair, fault: &[&str]) -> JoinHandle<()> {
    pair.host.restart();
    pair.host.ok(&[&["fault", NAME], fault].concat());
    let client = pair.client();
    let told = client.host_info().expect("what the host tells").to_string();
    // The answer comes after the agent has called back.
    thread::spawn(move || drop(client.ask("PUT", "/1.0", &told)))
}

fn states_logged(pair: &Pair) -> usize {
    let log = pair.host.log();
    log.rsplit("listening").next().unwrap_or_default().matches("PATCH /1.0 200").count()
}

/// Asserts how many states the restarted host received, from the agent and the application.
#[track_caller]
fn assert_states(pair: &Pair, call: JoinHandle<()>, expected: usize) {
    call.join().expect("no panic");
    say(pair, "Started");
    // The host logs a request after it has answered.
    let count = || Some(states_logged(pair)).filter(|all| *all >= expected);
    assert_eq!(wait("the host's log", LIMIT, count).0, expected, "{}", pair.host.log());
}

#[test]
fn a_repeated_ready_never_overtakes_a_newer_started() {
    let mut pair = lxd();
    say(&pair, "Ready");
    let _call = restart_host(&mut pair, &SLOW);
    // The repetition is in progress and slow; the next state must wait for it.
    until("Ready repeated", LIMIT, || pair.host.state()["last_request"] == "PATCH /1.0");
    pair.host.ok(&["fault", NAME, "none"]);
    say(&pair, "Started");
    until("both at the host", LIMIT, || states_logged(&pair) == 2);
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

// The newest verification of a host counts, if the host answered with the announced certificate.
// Lines on the port request each verification, as a host's CONNECT does.

/// Returns a pair whose agent has a port, and the host's address.
fn with_port() -> (Pair, Terminal, String) {
    let mut pair = lxd();
    pair.agent.kill();
    let log = pair.log().len();
    let port = Terminal::open(80, 24);
    let mut agent = command(&pair.scratch.0, "lxd", &pair.host.share);
    pair.agent = Process::start(agent.args(["--port", &port.path()]));
    let address =
        || Some(pair.log()[log..].split(" CONNECTED ").nth(1)?.lines().next()?.to_owned());
    let (address, _) = wait("CONNECTED", LIMIT, address);
    (pair, port, address)
}

fn socket(pair: &Pair, address: &str) -> PathBuf {
    let port = address.rsplit(':').next().unwrap_or_default();
    pair.scratch.0.join(format!("vs_{port}"))
}

fn verified(pair: &Pair, port: &Terminal, host: &str) {
    let asked = || pair.log().matches(" GET /1.0 (").count();
    let before = asked();
    port.say(&format!("CONNECT {host}\n"));
    until("the host's answer", LIMIT, || asked() > before);
}

#[test]
fn is_not_connected_to_an_absent_host() {
    let (pair, port, host) = with_port();
    port.say("CONNECT 2:9\n");
    until("the line", LIMIT, || pair.log().contains("host address 2:9 (from CONNECT)"));
    until("its end", LIMIT, || pair.log().contains("cannot reach host 2:9"));
    // Lines are handled in sequence, so any effect of the first one would be visible by now.
    verified(&pair, &port, &host);
    // The host's own port may begin with 9.
    let log = pair.log();
    assert!(!log.lines().any(|line| line.ends_with("CONNECTED 2:9")), "{log}");
}

#[test]
fn a_call_that_fails_at_an_earlier_address_does_not_count() {
    let (pair, port, host) = with_port();
    let (listener, to) = (UnixListener::bind(socket(&pair, "2:9")).unwrap(), socket(&pair, &host));
    let (hold, held) = channel();
    thread::spawn(move || {
        let agent = listener.accept().expect("the verification").0;
        carry(agent, UnixStream::connect(&to).expect("the host"));
        // Holds the agent's call open without an answer.
        hold.send(listener.accept().expect("the call").0).expect("the test");
    });
    port.say("CONNECT 2:9\n");
    until("CONNECTED", LIMIT, || pair.log().contains(" CONNECTED 2:9\n"));
    let before = pair.log().len();
    thread::scope(|scope| {
        let call = scope.spawn(|| pair.ask("GET", "/1.0/config/user.foo"));
        let held = held.recv_timeout(LIMIT).expect("a call");
        verified(&pair, &port, &host);
        until("CONNECTED", LIMIT, || pair.log()[before..].contains(" CONNECTED "));
        fs::remove_file(socket(&pair, "2:9")).expect("the earlier address");
        drop(held);
        exits(call.join().expect("an answer"), 500, &[]);
    });
    verified(&pair, &port, &host);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    let log = pair.log();
    let since = &log[before..];
    assert!(!since.contains("STARTED") && !since.contains("lost host"), "{log}");
}

#[test]
fn calls_of_guests_to_a_lost_host_are_logged_once() {
    let (pair, _port, host) = with_port();
    fs::remove_file(socket(&pair, &host)).expect("the host's address");
    let before = pair.log().len();
    for _ in 0..30 {
        exits(pair.ask("GET", "/1.0/config/user.foo"), 500, &[]);
    }
    let log = pair.log();
    // Besides the calls, the agent's own verifications fail.
    let failures = log[before..].matches("cannot reach host").count();
    assert!((1..15).contains(&failures), "{failures}: {log}");
}

#[test]
fn is_not_connected_to_a_host_with_another_certificate() {
    let (pair, port, host) = with_port();
    let before = pair.log().len();
    port.say(&format!("CONNECT {host} {}\n", "0".repeat(64)));
    until("a refusal", LIMIT, || pair.log()[before..].contains("TLS with the host"));
    // After the refusal, the agent returns to the known host.
    let log = pair.log();
    let refused = log[before..].split("TLS with the host").next().unwrap_or_default();
    assert!(!refused.contains(" CONNECTED"), "{log}");
    // A text that only debug builds contain would leave a colon at the end.
    assert!(!log.lines().any(|line| line.trim_end().ends_with(':')), "{log}");
}

#[test]
fn missing_descriptors_in_a_verification_do_not_lose_the_host() {
    let (pair, port, host) = with_port();
    // `since` changes with each change of the state.
    let since = || {
        let text = fs::read(pair.scratch.0.join("root/run/mote/status")).expect("a status");
        let status: Value = serde_json::from_slice(&text).expect("JSON");
        (status["state"].clone(), status["since_uptime_ms"].as_u64().expect("a time"))
    };
    let connected = since();
    let before = pair.log().len();
    pair.limit_descriptors(true);
    port.say(&format!("CONNECT {host}\n"));
    until("the shortage", LIMIT, || pair.log()[before..].contains("cannot call the host now"));
    pair.limit_descriptors(false);
    verified(&pair, &port, &host);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    assert_eq!(since(), connected, "{}", &pair.log()[before..]);
}
