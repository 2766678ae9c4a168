//! A changed policy holds for the host's next act once the agent is told (SIGHUP), also while a command is open.

use std::io::Read;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use mote_tests::conform::client::{Client, Way};
use mote_tests::conform::exec::{Exec, Running, script};
use mote_tests::conform::wire::Wire;
use mote_tests::host::NAME;
use mote_tests::{Process, kill, wait};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, is_root};

/// Longest time from a signal to what it brings about: no command is waited for.
const SOON: Duration = Duration::from_secs(8);

fn client(boot: &Boot) -> Client {
    Client::new(Way::Socket(boot.scratch.0.join("vs.listen_8443")), &boot.host)
}

/// Switches a connection of the host's to this protocol.
fn switched(client: &Client, protocol: &str, method: &str, target: &str, body: &str) -> Wire {
    let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
    let mut wire = client.connect().expect("a connection");
    assert_eq!(wire.ask(method, target, &fields, body.as_bytes()).expect("an answer").status, 101);
    wire.within(SOON);
    wire
}

/// A port of the guest's, and its connection with one of the host's.
fn forwarded(client: &Client) -> (Wire, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its address").port();
    let body = format!("{{\"port\":{port}}}");
    let mut wire = switched(client, "tcp", "POST", "/1.0/port-forward", &body);
    let mut accepted = listener.accept().expect("a connection").0;
    wire.send(b"x").expect("a byte");
    accepted.read_exact(&mut [0]).expect("the byte");
    (wire, accepted)
}

#[test]
fn what_was_allowed_ends_with_the_policy_but_for_commands_that_run() {
    let boot = Boot::new("incus");
    let agent = boot.start(&[]);
    boot.logged(" CONNECTED");
    boot.serves();
    let client = client(&boot);
    let mut files = switched(&client, "sftp", "GET", "/1.0/sftp", "");
    let (mut wire, _accepted) = forwarded(&client);
    let there = boot.scratch.0.join("there");
    let command = format!(": >{}; sleep 4; echo whole", there.display());
    let running = Running::start(&client, &script(&command)).expect("a command");
    wait("the command", LIMIT, || there.exists().then_some(()));
    // Nothing is changed by a signal alone.
    kill(Signal::HUP, agent.0.id());
    boot.logged("policy: everything is allowed");
    files.send(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).unwrap();
    assert_eq!(files.take(5).unwrap()[4], 2, "VERSION");

    // A command whose streams are not there yet was allowed by another policy.
    let waits = Exec::ask(&client, &script("true")).expect("an operation");
    boot.put("etc/mote-agent.yml", "features: {guestapi: true, exec: {users: [0]}}\n");
    kill(Signal::HUP, agent.0.id());
    boot.logged("; limited: exec");
    let _streams = ["control", "0", "1", "2"].map(|name| waits.socket(&client, name));
    let operation = waits.ended(&client, SOON).expect("its end");
    assert_eq!(operation["err"].as_str(), Some("The guest's policy has changed meanwhile"));

    boot.put("etc/mote-agent.yml", "features: {state: true}\n");
    kill(Signal::HUP, agent.0.id());
    boot.logged("policy: denied: guestapi exec files mounts port-forward metrics templates");
    let exec = || boot.host.try_run(&["exec", NAME, "--", "true"]);
    let why = exec().expect_err("a refusal");
    assert!(why.contains("policy does not allow exec"), "{why}");
    let (code, text) = boot.ask(&["ready"]);
    assert!(code == Some(3) && text.contains("lets no program ask the host"), "{text}");
    files.rest().expect("the session's end");
    wire.rest().expect("the connection's end");
    let shown = boot.command(&["status"]).stdout(Stdio::piped()).output().unwrap();
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("policy: denied: guestapi exec files"), "{shown}");
    assert!(!boot.log().contains("starting anew"), "a command runs");

    // One that is not understood denies everything, and it can be given back.
    boot.put("etc/mote-agent.yml", "features: {exce: true}\n");
    kill(Signal::HUP, agent.0.id());
    boot.logged("unknown feature \"exce\"");
    boot.put("etc/mote-agent.yml", "features: {exec: {users: [0]}}\n");
    kill(Signal::HUP, agent.0.id());
    wait("exec", LIMIT, || exec().ok());
    assert_eq!(running.finish(&client).expect("its output").out, "whole\n");
}

#[test]
fn an_agent_in_its_sandbox_allows_nothing_until_it_is_started_again() {
    if !is_root() {
        return println!("not tried: needs root");
    }
    let boot = Boot::new("incus");
    let mut agent: Process = boot.start(&["--deny", "exec,files,mounts"]);
    boot.logged(" CONNECTED");
    boot.logged("in a sandbox");
    let (mut wire, _accepted) = forwarded(&client(&boot));
    kill(Signal::HUP, agent.0.id());
    wire.rest().expect("the connection's end");
    let ended = wait("its end", SOON, || agent.0.try_wait().ok().flatten()).0;
    assert_eq!(ended.code(), Some(1), "{}", boot.log());
}
