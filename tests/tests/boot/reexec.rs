//! An agent that hands over without a message to the host: to itself at SIGHUP, or to a second
//! agent if an initramfs started the first.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mote_tests::{
    NAME, Outage, Private, Process, Terminal, agent, by_root, copy_program, in_private, kill,
    program, wait,
};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, connected, mount, terminate};

/// Prints the limits that a command of the host has.
const LIMITS: &[&str] =
    &["exec", NAME, "--", "sh", "-c", "ulimit -Sn; cat /proc/self/oom_score_adj; umask"];

/// Returns the line of `status` about the program.
fn shown_program(boot: &Boot) -> String {
    let (_, text) = boot.says(&["status"]);
    let line = text.lines().find(|line| line.starts_with("program: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// Returns the agent as a file of the test's, which can be replaced.
fn installed(boot: &Boot, args: &[&str]) -> Command {
    let place = boot.scratch.0.join("mote-agent");
    copy_program(&agent(), &place);
    let like = boot.command(args);
    let mut command = Command::new(&place);
    let log =
        fs::File::options().append(true).open(boot.scratch.0.join("agent.log")).expect("its log");
    command.args(like.get_args()).stdin(Stdio::null()).stderr(log);
    command
}

#[test]
fn sighup_runs_the_newer_program_without_a_message_to_the_host() {
    let boot = Boot::new("lxd");
    let mut port = Terminal::open(80, 24);
    let args = ["--port", &port.path(), "--interval-connected", "500"];
    let mut agent = Process::start(&mut installed(&boot, &args));
    connected(&boot, 1);
    assert!(boot.log().starts_with("mote: info: mote-agent "), "{}", boot.log());
    // After 15 s without a call of the host the agent sends STOPPED.
    let host = boot.client();
    host.announce();
    host.forget();
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    let limits = boot.host.run(LIMITS);
    // The agent keeps its operation for a while.
    let files = || descriptors(agent.0.id());
    std::thread::sleep(Duration::from_secs(6));
    let before = files();

    // dpkg replaces files this way.
    let newer = boot.scratch.0.join("newer");
    let text = format!(
        "#!/bin/sh\n: >{0}/ran\nexec {1} \"$@\"\n",
        boot.scratch.0.display(),
        mote_tests::agent().display()
    );
    program(&newer, text);
    fs::rename(&newer, boot.scratch.0.join("mote-agent")).unwrap();
    wait("its status", LIMIT, || {
        shown_program(&boot).contains("replaced; SIGHUP starts the newer one").then_some(())
    });
    let outage = Outage::watch(boot.client());
    let begun = Instant::now();
    kill(Signal::HUP, agent.0.id());
    connected(&boot, 2);
    let took = begun.elapsed();
    let outage = outage.longest();
    println!("CONNECTED again after {took:?}, no answer for {:?} at most", outage.unanswered);
    assert!(outage.failed.is_empty(), "{:?}", outage.failed);
    assert!(boot.scratch.0.join("ran").exists(), "the newer program");
    boot.serves();
    assert!(boot.text("run/mote/status").contains("\"ready\":\"Ready\""));
    assert_eq!(shown_program(&boot), "program: -");
    assert_eq!(boot.host.run(LIMITS), limits);
    wait("its descriptors to be closed", LIMIT, || (files() == before).then_some(()));
    assert!(!port.shown().contains("STOPPED"), "{}", port.shown());

    // Once more, with a program that was removed.
    fs::remove_file(boot.scratch.0.join("mote-agent")).unwrap();
    kill(Signal::HUP, agent.0.id());
    connected(&boot, 3);
    assert!(!port.shown().contains("STOPPED"), "{}", port.shown());
    assert_eq!(terminate(&mut agent), Some(0));
    port.until("STOPPED");
}

#[test]
fn a_reexec_waits_for_the_hosts_commands_and_serves_others_meanwhile() {
    let boot = Boot::new("lxd");
    let mut agent = boot.start(&[]);
    connected(&boot, 1);
    let said = boot.scratch.0.join("said");
    let status = boot.command(&["status"]);
    let status = status.get_args().map(|word| word.to_str().unwrap()).collect::<Vec<_>>().join(" ");
    let script = format!(
        "kill -HUP {}; sleep 2; {} {status} >{}; echo whole",
        agent.0.id(),
        mote_tests::agent().display(),
        said.display()
    );
    assert_eq!(boot.host.sh(&script).as_deref(), Ok("whole\n"));
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("program: restarts when no host command is running\n"), "{said}");
    assert!(!boot.log().contains("restarting in place"), "the host may still ask for the result");
    assert_eq!(boot.host.exec(&["echo", "another"]).as_deref(), Ok("another\n"));
    connected(&boot, 2);
    assert_eq!(boot.host.exec(&["echo", "again"]).as_deref(), Ok("again\n"));
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn sighup_restarts_a_waiting_agent() {
    let boot = Boot::new("lxd");
    let away = boot.scratch.0.join("away");
    fs::rename(&boot.host.share, &away).unwrap();
    let mut agent = boot.start(&[]);
    let waits = || boot.log().matches("waiting for the config files").count();
    wait("it to wait", LIMIT, || (waits() == 1).then_some(()));
    kill(Signal::HUP, agent.0.id());
    wait("it to wait again", LIMIT, || (waits() == 2).then_some(()));
    fs::rename(&away, &boot.host.share).unwrap();
    boot.serves();
    // The signal only affects an agent of an initramfs.
    kill(Signal::USR1, agent.0.id());
    std::thread::sleep(Duration::from_millis(300));
    boot.serves();
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn the_agent_of_an_initramfs_hands_over_to_a_second_one() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let mut port = Terminal::open(80, 24);
    let path = port.path();
    let mut first = boot.start(&["--initramfs", "--port", &path]);
    connected(&boot, 1);
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    let line = fs::read_to_string(format!("/proc/{}/cmdline", first.0.id())).unwrap();
    assert!(line.starts_with('@'), "systemd would kill {line:?}");
    // The root of the test has no /proc.
    let process = boot.root(&format!("proc/{}", first.0.id()));
    symlink(format!("/proc/{}", first.0.id()), process).unwrap();
    // A command continues under the first agent.
    let said = boot.scratch.0.join("said");
    let script = format!("echo part >{0}; sleep 3; echo whole >{0}", said.display());
    let running = boot.host.launch(&["exec", NAME, "--", "sh", "-c", &script]);
    wait("the command", LIMIT, || said.exists().then_some(()));

    let outage = Outage::watch(boot.client());
    let second = boot.start(&["--port", &path]);
    connected(&boot, 2);
    let outage = outage.longest();
    println!("no answer for {:?} at most", outage.unanswered);
    assert!(outage.failed.is_empty(), "{:?}", outage.failed);
    boot.serves();
    assert!(first.0.try_wait().unwrap().is_none(), "it has a command");
    assert_eq!(boot.host.exec(&["echo", "second"]).as_deref(), Ok("second\n"));
    assert!(boot.text("run/mote/status").contains("\"ready\":\"Ready\""));
    assert_eq!(first.ends(LIMIT), Some(0));
    assert_eq!(fs::read_to_string(&said).unwrap(), "whole\n");
    drop(running);
    assert!(!port.shown().contains("STOPPED"), "{}", port.shown());

    // The second agent behaves like any other.
    let mut third = boot.start(&["--port", &path]);
    assert_eq!(third.ends(LIMIT), Some(1));
    boot.logged(&format!("another mote-agent is running: process {}", second.0.id()));
    boot.serves();
}

#[test]
fn an_agent_of_an_initramfs_hands_over_though_run_was_mounted_over() {
    const TEST: &str = "reexec::an_agent_of_an_initramfs_hands_over_though_run_was_mounted_over";
    // The flood of locks of another test would hide the first agent's.
    let true = in_private(Private::Processes, TEST) else { return };
    let boot = Boot::new("lxd");
    let mut first = boot.start(&["--initramfs"]);
    connected(&boot, 1);
    for name in [&first.0.id().to_string(), "locks"] {
        symlink(Path::new("/proc").join(name), boot.root("proc").join(name)).unwrap();
    }
    mount(&["-t", "tmpfs", "tmpfs"], &boot.root("run"));
    let mut second = boot.start(&[]);
    connected(&boot, 2);
    assert_eq!(first.ends(LIMIT), Some(0));
    assert!(boot.log().contains("taking over from the initramfs' agent"), "{}", boot.log());
    assert_eq!(boot.host.exec(&["echo", "second"]).as_deref(), Ok("second\n"));
    assert_eq!(terminate(&mut second), Some(0));
    assert!(Command::new("umount").arg(boot.root("run")).status().unwrap().success());
}
