//! `exec` against an agent that records every socket (P§4.1).

use std::io::Write;
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::peers::agent::ID;
use crate::peers::host::{Host, SOON, errors, wait};
use crate::peers::qmp::Qemu;
use crate::peers::shell::{End, Shell};

fn world(flavour: &str, end: End) -> (Host, Qemu, Shell) {
    let (host, qemu) = Host::with_vm(flavour, &["environment.A=of the instance"]);
    let server = if flavour == "incus" { "incus-agent" } else { "lxd-agent" };
    // The agent answers a PUT like a GET.
    let shell = Shell::of(&host, server, end);
    qemu.say("STARTED\n");
    host.wait_for("CONNECTED");
    (host, qemu, shell)
}

fn start(host: &Host, args: &[&str]) -> Child {
    start_with(host, "-T", args)
}

fn start_with(host: &Host, terminal: &str, args: &[&str]) -> Child {
    let mut command = host.command(&[&["exec", terminal], args].concat());
    let pipe = Stdio::piped;
    command.env_remove("TERM").stdin(pipe()).stdout(pipe()).stderr(pipe());
    mote_machine::bounded(&mut command).unwrap()
}

fn run(host: &Host, args: &[&str], input: &[u8]) -> Output {
    let mut child = start(host, args);
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn runs(shell: &Shell) {
    wait("the sockets", SOON, || (shell.order().last()?.starts_with("/1.0/op")).then_some(()));
}

#[test]
fn makes_calls_in_the_order_of_the_servers_client() {
    for flavour in ["lxd", "incus"] {
        let (host, _qemu, shell) = world(flavour, End::Event { code: 7 });
        let before = shell.order().len();
        let input = vec![b'x'; 100_000];
        let output = run(&host, &["vm1", "--user", "5", "--", "cat", "-u"], &input);
        assert_eq!(errors(&output), "", "{flavour}");
        assert_eq!((output.status.code(), output.stdout == input), (Some(7), true));
        let mut order = shell.order().split_off(before);
        let look = format!("/1.0/operations/{ID}");
        // The waiting thread sends the query while the sockets' threads start.
        assert_eq!(order.pop(), Some(look));
        if flavour == "lxd" {
            // Data sockets connect at the same time.
            order[4..].sort();
        }
        assert_eq!(order, ["/1.0", "/1.0/events", "/1.0/exec", "control", "0", "1", "2"]);
        assert_eq!(shell.control(), ["goodbye"]);
        let body = shell.body();
        assert_eq!((&body["command"], &body["user"]), (&json!(["cat", "-u"]), &json!(5)));
        assert_eq!(body["wait-for-websocket"], true);
        assert_eq!((&body["interactive"], &body["width"]), (&json!(false), &json!(0)));
        assert_eq!(body["environment"]["A"], "of the instance");
    }
}

#[test]
fn finds_an_end_without_an_event_by_a_query() {
    let (host, _qemu, _shell) = world("lxd", End::Asked { code: 3 });
    assert_eq!(run(&host, &["vm1", "cat"], b"").status.code(), Some(3));
}

#[test]
fn reports_failed_writes_but_not_a_closed_pipe() {
    let (host, _qemu, _shell) = world("lxd", End::Event { code: 0 });
    let said = |out: Stdio| {
        let mut command = host.command(&["exec", "-T", "vm1", "cat"]);
        command.stdin(Stdio::piped()).stdout(out).stderr(Stdio::piped());
        let mut child = mote_machine::bounded(&mut command).unwrap();
        // The agent may have hung up.
        let _gone = child.stdin.take().unwrap().write_all(b"in");
        let output = child.wait_with_output().unwrap();
        (errors(&output), output.status.code())
    };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let lost = "mote-host: stdout is lost: No space left on device\n".to_owned();
    assert_eq!(said(full.into()), (lost, Some(1)));
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(said(writer.into()), (String::new(), Some(0)));
}

#[test]
fn starts_a_login_shell_as_servers_do() {
    let (host, _qemu, shell) = world("lxd", End::Event { code: 0 });
    let mut command = host.command(&["shell", "-T", "-e", "A=b=c", "vm1"]);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert_eq!(errors(&output), "");
    assert_eq!(shell.body()["command"], json!(["su", "-l"]));
    assert_eq!(shell.body()["environment"]["A"], "b=c");
    assert_eq!((&shell.body()["user"], &shell.body()["cwd"]), (&json!(0), &json!("/root")));
}

#[test]
fn info_shows_the_agent_or_why_it_does_not_answer() {
    let (host, qemu, _shell) = world("incus", End::Event { code: 0 });
    let info = host.run(&["info", "vm1"]);
    for row in ["Status       Running", "Agent        CONNECTED for ", "Program      incus-agent"] {
        assert!(info.lines().any(|line| line.starts_with(row)), "{row} in {info}");
    }
    assert!(info.contains("Uptime       at least "), "{info}");
    qemu.say("STOPPED\n");
    host.wait_for("STOPPED");
    let info = host.run(&["info", "vm1"]);
    assert!(info.contains("Program      -\n"), "{info}");
    assert!(info.contains("In words     the agent has stopped"), "{info}");
}

#[test]
fn a_signal_ends_exec_while_its_output_is_unread() {
    for signal in [Signal::TERM, Signal::INT] {
        let (host, _qemu, shell) = world("lxd", End::Event { code: 0 });
        let mut child = start(&host, &["vm1", "cat"]);
        runs(&shell);
        // The input is more than a pipe holds.
        child.stdin.take().unwrap().write_all(&[b'x'; 1_000_000]).unwrap();
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = wait("its end", SOON, || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(128 + signal.as_raw()));
    }
}

#[test]
fn a_signal_ends_exec_while_the_guest_is_silent() {
    for (signal, terminal) in [(Signal::TERM, "-T"), (Signal::INT, "-T"), (Signal::TERM, "-t")] {
        let (host, _qemu, shell) = world("lxd", End::Silent);
        let mut child = start_with(&host, terminal, &["vm1", "cat"]);
        runs(&shell);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let ended = wait("its end", SOON, || child.try_wait().unwrap());
        assert_eq!(ended.code(), Some(128 + signal.as_raw()), "{terminal}");
    }
}

#[test]
fn a_silent_guest_is_lost_unless_its_vm_is_paused() {
    let [(host, _qemu, shell), (other, still, others)] =
        [world("incus", End::Silent), world("lxd", End::Silent)];
    let limit = Duration::from_secs(30);
    let paused = |is| {
        let of = || other.state()["why"]["cause"].as_str() == Some("paused");
        wait("the news", SOON, || (of() == is).then_some(()));
    };
    still.event("SUSPEND");
    paused(true);
    let mut waiting = start(&other, &["vm1", "cat"]);
    runs(&others);
    let begun = Instant::now();
    let mut lost = start(&host, &["vm1", "cat"]);
    runs(&shell);
    wait("its end", limit, || lost.try_wait().unwrap());
    let output = lost.wait_with_output().unwrap();
    let said = "mote-host: Disconnected: the guest has not answered for 15 s\n";
    assert_eq!((output.status.code(), &*errors(&output)), (Some(129), said));
    std::thread::sleep(begun.elapsed() / 4);
    assert!(waiting.try_wait().unwrap().is_none());
    still.event("WAKEUP");
    paused(false);
    let ended = wait("its end", limit, || waiting.try_wait().unwrap());
    assert_eq!(ended.code(), Some(129));
}
