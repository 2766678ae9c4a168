//! The agent's knowledge of its host, and its messages about it.

use std::fs;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use mote_tests::{Host, NAME, Scratch, Terminal, wait};
use serde_json::Value;

use crate::world::{Boot, LIMIT, whole};

fn status(boot: &Boot) -> Value {
    serde_json::from_str(&boot.text("run/mote/status")).unwrap_or_default()
}

#[test]
fn is_not_connected_to_a_host_that_refuses_it() {
    const WHY: &str = "the host refused this agent's certificate (401): are these another \
                       instance's files?";
    for flavour in ["lxd", "incus"] {
        let boot = Boot::new(flavour);
        whole(&boot);
        let elsewhere = Scratch::new();
        let other = Host::on_sockets(&elsewhere.0, &elsewhere.0.join("vs"), flavour, &[]);
        for file in ["agent.crt", "agent.key"] {
            fs::copy(other.share.join(file), boot.host.share.join(file)).unwrap();
        }
        let _agent = boot.start(&[]);
        boot.serves();
        boot.logged(WHY);
        // Forwarded calls get the host's 401, which proves nothing.
        for _ in 0..5 {
            let (code, text) = boot.ask(&["get", "user.a"]);
            assert!(code == Some(1) && text.contains("Unauthorized"), "{code:?} {text}");
            sleep(Duration::from_millis(300));
        }
        assert!(!boot.log().contains("CONNECTED"), "{}", boot.log());
        let status = status(&boot);
        assert_eq!((&status["state"], &status["last_error"]), (&"STARTED".into(), &WHY.into()));
        let (code, text) = boot.says(&["--check"]);
        for line in
            [format!("missing  agent: {WHY}\n"), "ok       certificates: they match\n".to_owned()]
        {
            assert!(text.contains(&line), "no {line:?} in:\n{text}");
        }
        assert!(code == Some(1) && text.starts_with("missing  agent: "), "{text}");
        assert_eq!(boot.ask(&["status"]), (Some(4), format!("mote-agent: {WHY}\n")));
    }
}

#[test]
fn clears_the_hosts_error_after_it_recovers() {
    let boot = Boot::new("lxd");
    boot.host.ok(&["fault", NAME, "garbage"]);
    let _agent = boot.start(&[]);
    boot.logged("the host's answer: ");
    assert!(status(&boot)["last_error"].is_string(), "{}", status(&boot));
    assert!(!boot.log().contains("lost host"), "it never had one: {}", boot.log());
    boot.host.ok(&["fault", NAME, "none"]);
    boot.logged(" CONNECTED");
    // The port is missing here, which says nothing about the host.
    let over = || !status(&boot)["last_error"].to_string().contains("answer");
    wait("the error to be forgotten", LIMIT, || over().then_some(()));
}

#[test]
fn a_killed_agent_remembers_its_host() {
    let mut boot = Boot::new("lxd");
    let mut agent = boot.start(&[]);
    boot.logged(" CONNECTED");
    // A new daemon with another address announces itself to the agent, but not to its successor;
    // agent.conf is unchanged.
    boot.host.kill();
    boot.host.start();
    let client = boot.client();
    let told = client.host_info().unwrap();
    client.announce();
    agent.kill();
    fs::remove_file(boot.host.share.join("agent.conf")).unwrap();
    let before = boot.log().len();
    let _agent = boot.start(&[]);
    let connected = format!(" CONNECTED 2:{}", told["port"]);
    let again = || boot.log()[before..].contains(&connected).then_some(());
    wait("CONNECTED again", LIMIT, again);
    assert!(boot.log()[before..].contains("(from /run/mote/known-host)\n"), "{}", boot.log());
    boot.serves();
    let quiet = boot.command(&["get", "user.none"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(quiet.code(), Some(1), "the host says that there is none");
}

/// As after the restore of a snapshot: the port has data, but the kernel reports none. The agent
/// reads it at the interval of its state (`status/tests` in the core).
#[test]
fn reads_a_port_whose_wake_ups_are_lost() {
    let boot = Boot::new("lxd");
    let port = Terminal::open(80, 24);
    port.never_signal();
    let _agent = boot.start(&["--port", &port.path()]);
    boot.logged(" CONNECTED");
    // Refused, and the log says so.
    port.say("CONNECT nowhere\n");
    boot.logged("serial line refused");
}

#[test]
fn host_text_cannot_control_a_terminal() {
    const EVIL: &str = "a\x1b[2Jb\u{9b}c\nd";
    let boot = Boot::new("lxd");
    boot.host.ok(&["set", NAME, &format!("user.evil={EVIL}")]);
    let _agent = boot.start(&[]);
    boot.serves();
    let get = || boot.command(&["get", "user.evil"]);
    // Programs get the raw text, people an escaped one.
    assert_eq!(get().output().unwrap().stdout, format!("{EVIL}\n").into_bytes());
    let mut screen = Terminal::open(80, 24);
    assert!(get().stdout(screen.side()).status().unwrap().success());
    screen.until("a\\u{1b}[2Jb\\u{9b}c");
}
