//! An agent that starts before its port or its files exist.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::time::{Duration, Instant};

use mote_tests::{NAME, Process, proc, put, wait};

use crate::world::{Boot, LIMIT, fifo, in_private_mounts, mount, terminate, whole};

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
        // Half a certificate is invalid.
        put(boot.host.share.join(name), &text[..text.len() / 2]);
        std::thread::sleep(Duration::from_millis(150));
        put(boot.host.share.join(name), text);
    }
}

#[test]
fn waits_for_the_hosts_files_and_reports_it_everywhere() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let agent = started_early(&boot, &[]);
    let share = boot.host.share.display().to_string();
    let what = format!("waiting for the config files in {share}");
    boot.logged(&format!(
        "{what}: {share} has none of agent.crt, agent.key, server.crt: copy them there"
    ));
    wait("the view", LIMIT, || boot.text("run/mote/status").contains("waiting").then_some(()));
    let (code, text) = boot.says(&["status"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.starts_with("running: yes\n") && text.contains(&format!("state: {what}\n")),
        "{text}"
    );
    let (code, text) = boot.ask(&["get", "user.x"]);
    assert!(code == Some(3) && text.contains(&format!("it is still {what}")), "{text}");
    let (code, text) = boot.ask(&[]);
    assert!(code == Some(1) && text.contains("another mote-agent is running"), "{text}");
    // Waiting is cheap, also at first.
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
    let boot = Boot::new("lxd");
    whole(&boot);
    boot.put("sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n");
    let _agent = started_early(&boot, &[]);
    boot.logged("copy them there; no status port either: no port has a server's name: name one ");
    boot.logged("; there is only org.qemu.guest_agent.0 (vport0p1)");
}

/// udev renames a port after the agent found it, and the one next to it.
#[test]
fn reports_a_port_once_however_it_is_named() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let _agent = started_early(&boot, &[]);
    boot.logged("info: port ");
    boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.lxd\n");
    fs::create_dir(boot.root("dev/virtio-ports")).unwrap();
    symlink("../vport0p1", boot.root("dev/virtio-ports/com.canonical.lxd")).unwrap();
    arrive(&boot);
    boot.logged("CONNECTED");
    assert_eq!(boot.log().matches("info: port ").count(), 1, "{}", boot.log());
}

#[test]
fn ends_on_sigterm_while_it_waits() {
    let boot = Boot::new("lxd");
    let mut agent = started_early(&boot, &[]);
    boot.logged("waiting for the config files");
    assert_eq!(terminate(&mut agent), Some(0));
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
                // Waits with a timeout return this in a process that was stopped and continues.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
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
    wait("its state", LIMIT, || (hear() == "STATUS=running").then_some(()));
    wait("ready", LIMIT, || (hear() == "READY=1").then_some(()));
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn a_late_port_is_logged_used_and_clears_the_last_error() {
    let boot = Boot::new("lxd");
    whole(&boot);
    fs::remove_file(boot.root("dev/vport0p1")).unwrap();
    let _agent = boot.start(&[]);
    boot.logged(
        "dev/vport0p1: the kernel has the port, but no node for it: mount devtmpfs on /dev",
    );
    boot.logged("info: STARTED, which no host can read without a status port\n");
    let said = boot.log();
    let line = said.lines().find(|line| line.contains("waiting for the status port")).unwrap();
    assert!(line.starts_with("mote: info: waiting for the status port: "), "{line}");
    boot.serves();
    let status = || String::from_utf8(boot.command(&["status"]).output().unwrap().stdout).unwrap();
    wait("the last error", LIMIT, || {
        status().contains("error: waiting for the status").then_some(())
    });
    fifo(&boot.root("dev/vport0p1"));
    let path = boot.root("dev/vport0p1").display().to_string();
    boot.logged(&format!("port {path} (lxd)"));
    wait("no last error", LIMIT, || status().contains("last_error: -\n").then_some(()));
    assert!(status().contains(&format!("port: {path}\n")), "{}", status());
    assert_eq!(boot.log().matches("waiting for the status port").count(), 1, "{}", boot.log());
}

#[test]
fn a_full_run_is_harmless_and_reported_once() {
    let true = in_private_mounts("early::a_full_run_is_harmless_and_reported_once") else { return };
    let boot = Boot::new("lxd");
    whole(&boot);
    mount(&["-t", "tmpfs", "-o", "size=64k", "tmpfs"], &boot.root("run"));
    let fill = || {
        let _full = Command::new("sh")
            .arg("-c")
            .arg(format!("cat /dev/zero >'{}' 2>/dev/null", boot.root("run/full").display()))
            .status();
    };
    let status = || boot.says(&["status"]);
    // /run becomes full while the agent runs.
    let mut agent = boot.start(&[]);
    boot.serves();
    boot.logged("CONNECTED");
    fill();
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    wait("Ready", LIMIT, || status().1.contains("ready: Ready\n").then_some(()));
    assert_eq!(boot.host.state()["status"], "Ready");
    boot.logged("run/mote/ready: No space left on device (os error 28); free some space on /run");
    assert_eq!(boot.ask(&["started"]).0, Some(0));
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    assert_eq!(boot.log().matches("No space left").count(), 1, "{}", boot.log());
    fs::remove_file(boot.root("run/full")).unwrap();
    boot.host.ok(&["set", NAME, "security.devlxd=false"]);
    boot.logged("can be written again");
    assert_eq!(boot.text("run/mote/ready"), "Ready");
    // Another /run hides it, as when an initramfs has started the agent.
    mount(&["-t", "tmpfs", "tmpfs"], &boot.root("run"));
    wait("Ready there", LIMIT, || (boot.text("run/mote/ready") == "Ready").then_some(()));
    assert_eq!(terminate(&mut agent), Some(0));
    unmount_run(&boot);
    // Full before the start: the agent can write nothing, but all commands agree that it runs.
    fs::remove_dir_all(boot.root("run/mote")).unwrap();
    fill();
    let _agent = boot.start(&[]);
    boot.logged("run/mote/status: No space left on device (os error 28); free some space on /run");
    let (code, text) = status();
    assert!(code == Some(0) && text.starts_with("running: yes\n"), "{text}");
    assert!(text.contains("is missing: the agent is starting, or /run is full\n"), "{text}");
    let (_, text) = boot.says(&["--check"]);
    assert!(text.contains("ok       agent: running\n") && text.contains("no space left"), "{text}");
    drop(_agent);
    unmount_run(&boot);
}

/// Unmounts /run after the agent's end. Its child processes may need a moment on a busy machine.
fn unmount_run(boot: &Boot) {
    let unmounted =
        || Command::new("umount").arg(boot.root("run")).status().expect("umount").success();
    wait("nobody uses /run", LIMIT, || unmounted().then_some(()));
}
