//! An agent that starts before its port or its files exist.

use std::os::unix::net::UnixDatagram;

use crate::world::{Boot, LIMIT, connected, in_private_mounts, mount, terminate};
use mote_tests::conform::prelude::*;

/// Starts an agent whose files are elsewhere until [`arrive`].
fn started_early(boot: &Boot, args: &[&str]) -> Process {
    fs::rename(&boot.host.share, boot.scratch.0.join("later")).expect("the guest");
    boot.start(args)
}

/// Copies the host's files one after the other, as a script does.
fn arrive(boot: &Boot) {
    fs::create_dir(&boot.host.share).expect("the guest");
    for name in ["agent.crt", "agent.conf", "server.crt", "agent.key"] {
        let text = fs::read_to_string(boot.scratch.0.join("later").join(name)).expect("the guest");
        // First copy half of the certificate, which is invalid.
        put(boot.host.share.join(name), &text[..text.len() / 2]);
        thread::sleep(Duration::from_millis(150));
        put(boot.host.share.join(name), text);
    }
}

#[test]
fn waits_for_the_hosts_files_and_reports_it_everywhere() {
    let boot = Boot::whole("lxd");
    let agent = started_early(&boot, &[]);
    let share = boot.host.share.display().to_string();
    let what = format!("waiting for the config files in {share}");
    boot.logged(&format!(
        "{what}: {share} has none of agent.crt, agent.key, server.crt: copy them there"
    ));
    until("the view", LIMIT, || boot.text("run/mote/status").contains("waiting"));
    let (code, text) = boot.says(&["status"]);
    assert!(text.starts_with("running: yes\n"), "{text}");
    exits((code, text), Some(0), &[&format!("state: {what}\n")]);
    exits(boot.ask(&["get", "user.x"]), Some(3), &[&format!("it is still {what}")]);
    exits(boot.ask(&[]), Some(1), &["another mote-agent is running"]);
    // Waiting is cheap, even in the beginning.
    let busy = proc::busy(agent.0.id(), Duration::from_secs(4));
    assert!(busy < 0.03, "{busy} of the time that it could have run");
    arrive(&boot);
    boot.serves();
    boot.logged("CONNECTED");
    // The agent did not use the incomplete certificates.
    assert!(boot.log().contains("agent.key: "), "{}", boot.log());
    let text = String::from_utf8(boot.command(&["status"]).output().unwrap().stdout).unwrap();
    assert!(text.contains(&format!("files: {share}\n")) && text.contains("\nfor: "), "{text}");
}

#[test]
fn reports_everything_missing_while_it_waits() {
    let boot = Boot::whole("lxd");
    boot.put("sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n");
    let mut agent = started_early(&boot, &[]);
    boot.logged("copy them there; no status port either: no port has a server's name: name one ");
    boot.logged("; there is only org.qemu.guest_agent.0 (vport0p1)");
    assert_eq!(terminate(&mut agent), Some(0));
}

/// After the agent has found a port, another port appears, and udev adds a name for the first one.
#[test]
fn reports_a_port_once_however_it_is_named() {
    let boot = Boot::whole("lxd");
    let _agent = started_early(&boot, &[]);
    boot.logged("info: port ");
    boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.lxd\n");
    fs::create_dir(boot.root("dev/virtio-ports")).unwrap();
    symlink("../vport0p1", boot.root("dev/virtio-ports/com.canonical.lxd")).unwrap();
    arrive(&boot);
    boot.logged("CONNECTED");
    assert_eq!(boot.log().matches("info: port ").count(), 1, "{}", boot.log());
}

/// systemd kills a unit that is not ready within 90 s, and delays the units after it.
#[test]
fn notifies_the_service_manager_while_it_waits() {
    let boot = Boot::new("lxd");
    let socket = UnixDatagram::bind(boot.scratch.0.join("notify")).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let hear = || {
        let mut text = [0; 128];
        let count = loop {
            match socket.recv(&mut text) {
                // A wait with a timeout returns EINTR if the process was stopped and continues.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                heard => break heard.expect("a datagram"),
            }
        };
        String::from_utf8_lossy(&text[..count]).into_owned()
    };
    fs::rename(&boot.host.share, boot.scratch.0.join("later")).unwrap();
    let mut command = boot.command(&[]);
    command.env("NOTIFY_SOCKET", boot.scratch.0.join("notify")).env("WATCHDOG_USEC", "2000000");
    let begun = Instant::now();
    let mut agent = Process::start(&mut command);
    let first = hear();
    assert!(first.starts_with("READY=1\nSTATUS=waiting for the config files in "), "{first}");
    assert!(begun.elapsed() > Duration::from_secs(9), "{:?}", begun.elapsed());
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    arrive(&boot);
    until("its state", LIMIT, || hear() == "STATUS=running");
    until("ready", LIMIT, || hear() == "READY=1");
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn a_late_port_is_logged_used_and_clears_the_last_error() {
    let boot = Boot::whole("lxd");
    fs::remove_file(boot.root("dev/vport0p1")).unwrap();
    let _agent = boot.start(&[]);
    boot.logged("dev/vport0p1: the port has no device node: mount devtmpfs on /dev");
    boot.logged("info: STARTED, which no host can read without a status port\n");
    let said = boot.log();
    let line = said.lines().find(|line| line.contains("waiting for the status port")).unwrap();
    assert!(line.starts_with("mote: info: waiting for the status port: "), "{line}");
    boot.serves();
    let status = || String::from_utf8(boot.command(&["status"]).output().unwrap().stdout).unwrap();
    until("the last error", LIMIT, || status().contains("error: waiting for the status"));
    fifo(&boot.root("dev/vport0p1"));
    let path = boot.root("dev/vport0p1").display().to_string();
    boot.logged(&format!("port {path} (lxd)"));
    until("no last error", LIMIT, || status().contains("last_error: -\n"));
    assert!(status().contains(&format!("port: {path}\n")), "{}", status());
    assert_eq!(boot.log().matches("waiting for the status port").count(), 1, "{}", boot.log());
}

#[test]
fn a_full_run_is_harmless_and_reported_once() {
    let true = in_private_mounts("early::a_full_run_is_harmless_and_reported_once") else { return };
    let boot = Boot::whole("lxd");
    mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"], &boot.root("run"));
    let fill = || {
        let _full = Command::new("sh")
            .arg("-c")
            .arg(format!("cat /dev/zero >'{}' 2>/dev/null", boot.root("run/full").display()))
            .status();
    };
    let status = || boot.says(&["status"]);
    // /run becomes full while the agent runs.
    let mut agent = boot.up(&[]);
    boot.serves();
    fill();
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    until("Ready", LIMIT, || status().1.contains("ready: Ready\n"));
    assert_eq!(boot.host.state()["status"], "Ready");
    boot.logged("run/mote/ready: No space left on device (os error 28); free some space on /run");
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    assert_eq!(boot.log().matches("No space left").count(), 1, "{}", boot.log());
    fs::remove_file(boot.root("run/full")).unwrap();
    boot.host.ok(&["set", NAME, "security.devlxd=false"]);
    boot.logged("can be written again");
    assert_eq!(boot.text("run/mote/ready"), "Ready");
    // Another /run hides the agent's, as if an initramfs had started the agent.
    mount(&["-t", "tmpfs", "tmpfs"], &boot.root("run"));
    until("Ready there", LIMIT, || boot.text("run/mote/ready") == "Ready");
    assert_eq!(terminate(&mut agent), Some(0));
    unmount_run(&boot);
    // /run is full at the start: the agent can write nothing, but all commands see it run.
    fs::remove_dir_all(boot.root("run/mote")).unwrap();
    fill();
    let _agent = boot.start(&[]);
    boot.logged("run/mote/status: No space left on device (os error 28); free some space on /run");
    let full = "is missing: the agent is starting, or /run is full\n";
    let (code, text) = status();
    assert!(text.starts_with("running: yes\n"), "{text}");
    exits((code, text), Some(0), &[full]);
    contains(boot.says(&["--check"]).1, &["ok       agent: running\n", "no space left"]);
    drop(_agent);
    unmount_run(&boot);
}

/// Unmounts /run after the agent's end. Its child processes may need a moment on a busy machine.
fn unmount_run(boot: &Boot) {
    let unmounted =
        || Command::new("umount").arg(boot.root("run")).status().expect("umount").success();
    until("nobody uses /run", LIMIT, unmounted);
}

// Hand-overs without a message to the host: an agent re-executes its program at SIGHUP, or an agent
// of an initramfs hands over to a second one.

/// A command of the host that prints its own limits.
const LIMITS: &[&str] =
    &["exec", NAME, "--", "sh", "-c", "ulimit -Sn; cat /proc/self/oom_score_adj; umask"];

fn shown_program(boot: &Boot) -> String {
    let (_, text) = boot.says(&["status"]);
    let line = text.lines().find(|line| line.starts_with("program: "));
    line.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn descriptors(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").count()
}

/// Returns the command line of a copy of the agent, which the test can replace.
fn installed(boot: &Boot, args: &[&str]) -> Command {
    let place = boot.scratch.0.join("mote-agent");
    copy_program(&agent(), &place);
    let like = boot.command(args);
    let mut command = Command::new(&place);
    let log = File::options().append(true).open(boot.scratch.0.join("agent.log")).expect("its log");
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
    // Calls the agent, which sends STOPPED after 15 s without a call of the host.
    let host = boot.client();
    host.announce();
    host.forget();
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    let limits = boot.host.run(LIMITS);
    // The agent keeps the command's operation for a while.
    let files = || descriptors(agent.0.id());
    thread::sleep(Duration::from_secs(6));
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
    until("its status", LIMIT, || {
        shown_program(&boot).contains("replaced; SIGHUP starts the newer one")
    });
    let outage = Outage::watch(boot.client());
    kill(Signal::HUP, agent.0.id());
    connected(&boot, 2);
    assert_eq!(outage.failures(), [""; 0]);
    assert!(boot.scratch.0.join("ran").exists(), "the newer program");
    boot.serves();
    assert!(boot.text("run/mote/status").contains("\"ready\":\"Ready\""));
    assert_eq!(shown_program(&boot), "program: -");
    assert_eq!(boot.host.run(LIMITS), limits);
    until("its descriptors to be closed", LIMIT, || files() == before);
    assert!(!port.shown().contains("STOPPED"), "{}", port.shown());

    // Repeats that with a program that was removed.
    fs::remove_file(boot.scratch.0.join("mote-agent")).unwrap();
    kill(Signal::HUP, agent.0.id());
    connected(&boot, 3);
    assert!(!port.shown().contains("STOPPED"), "{}", port.shown());
    assert_eq!(terminate(&mut agent), Some(0));
    port.until("STOPPED");
}

#[test]
fn a_reexec_waits_for_the_hosts_commands_and_serves_others_meanwhile() {
    let (boot, mut agent) = Boot::running("lxd", &[]);
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
    until("it to wait", LIMIT, || waits() == 1);
    kill(Signal::HUP, agent.0.id());
    until("it to wait again", LIMIT, || waits() == 2);
    fs::rename(&away, &boot.host.share).unwrap();
    boot.serves();
    // The signal to hand over only affects an agent of an initramfs.
    kill(Signal::USR1, agent.0.id());
    thread::sleep(Duration::from_millis(300));
    boot.serves();
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn the_agent_of_an_initramfs_hands_over_to_a_second_one() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let mut port = Terminal::open(80, 24);
    let path = port.path();
    let mut first = boot.up(&["--initramfs", "--port", &path]);
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
    until("the command", LIMIT, || said.exists());

    let client = boot.client();
    let asked = Exec::ask(&client, &plain(&["true"])).unwrap();
    let outage = Outage::watch(boot.client());
    let second = boot.start(&["--port", &path]);
    boot.logged("taking over from the initramfs' agent");
    // The host is about to connect to its command.
    thread::sleep(Duration::from_millis(500));
    assert_eq!(asked.connect(&client).unwrap().exec.code(&client, LIMIT), Ok(0));
    connected(&boot, 2);
    assert_eq!(outage.failures(), [""; 0]);
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
    const TEST: &str = "early::an_agent_of_an_initramfs_hands_over_though_run_was_mounted_over";
    // The flood of locks of another test would hide the first agent's.
    let true = in_private(Private::Processes, TEST) else { return };
    let (boot, mut first) = Boot::running("lxd", &["--initramfs"]);
    for name in [&first.0.id().to_string(), "locks"] {
        symlink(Path::new("/proc").join(name), boot.root("proc").join(name)).unwrap();
    }
    mount(&["-t", "tmpfs", "tmpfs"], &boot.root("run"));
    let mut second = boot.up(&[]);
    assert_eq!(first.ends(LIMIT), Some(0));
    assert!(boot.log().contains("taking over from the initramfs' agent"), "{}", boot.log());
    assert_eq!(boot.host.exec(&["echo", "second"]).as_deref(), Ok("second\n"));
    assert_eq!(terminate(&mut second), Some(0));
    assert!(Command::new("umount").arg(boot.root("run")).status().unwrap().success());
}
