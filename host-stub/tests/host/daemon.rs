//! The daemon as a process: killed, stopped, started twice, started next to another one; and the
//! config share that it keeps up to date.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, errors, wait};
use crate::peers::qmp::Qemu;
use crate::run::World;

#[test]
fn a_daemon_killed_while_it_writes_leaves_a_readable_state() {
    let mut host = Host::with_instance("lxd", &["user.n=0"]);
    for round in 0..5 {
        host.start();
        std::thread::scope(|scope| {
            let setting = scope.spawn(|| {
                let mut told = 0;
                // Long values make long writes.
                let filler = "x".repeat(100_000);
                for n in 1.. {
                    let (pair, filler) = (format!("user.n={n}"), format!("user.f={filler}"));
                    if host.try_run(&["set", "vm1", &pair, &filler]).is_err() {
                        return told;
                    }
                    told = n;
                }
                told
            });
            std::thread::sleep(Duration::from_millis(60 + 17 * round));
            host.signal(Signal::KILL);
            let told: u32 = setting.join().unwrap();
            let text = std::fs::read(host.path("instances/vm1/instance.json")).unwrap();
            let stored: Value = serde_json::from_slice(&text).unwrap();
            let n: u32 = stored["config"]["user.n"].as_str().unwrap().parse().unwrap();
            // Every confirmed change is on disk, and perhaps the one after it.
            assert!(told == 0 || n == told || n == told + 1, "told {told}, stored {n}");
        });
        host.kill();
    }
    host.start();
}

#[test]
fn rejects_a_directory_that_others_can_write_to() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let host = Host::new();
    let set = |mode| {
        std::fs::set_permissions(&host.directory, PermissionsExt::from_mode(mode)).unwrap();
    };
    let refused = |args: &[&str]| {
        let error = host.try_run(args).unwrap_err();
        assert!(error.contains("others can write to it"), "{args:?}: {error}");
    };
    let all: [&[&str]; 2] = [&["daemon"], &["init", "a", "--vsock-cid", "7"]];
    set(0o777);
    all.iter().for_each(|args| refused(args));
    set(0o700);
    if rustix::process::geteuid().is_root() {
        chown(&host.directory, Some(1000), None).unwrap();
        all.iter().for_each(|args| refused(args));
    }
    assert_eq!(std::fs::read_dir(&host.directory).unwrap().count(), 0);
}

#[test]
fn sigterm_exits_0_and_removes_the_sockets() {
    let mut host = Host::started("lxd", &[]);
    let devlxd = host.path(&format!("vm1.p_{}", host.port()));
    assert!(devlxd.exists());
    assert_eq!(host.terminate().code(), Some(0));
    assert!(!devlxd.exists() && !host.path("control.sock").exists());
    assert!(host.try_run(&["list"]).unwrap_err().contains("no daemon is running"));
}

#[test]
fn a_directory_has_one_daemon_and_dead_sockets_are_replaced() {
    let mut host = Host::started("lxd", &[]);
    let second = host.output(&["daemon"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(errors(&second).contains("another daemon runs in"));
    assert_eq!(host.run(&["list", "--quiet"]), "vm1\n", "the first one was not affected");
    host.kill();
    assert!(host.path("control.sock").exists());
    host.start();
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
}

#[test]
fn serves_a_new_instance_and_ignores_an_incomplete_one() {
    let mut host = Host::new();
    std::fs::create_dir_all(host.path("instances/half/config")).unwrap();
    host.start();
    assert_eq!(host.run(&["list", "-q"]), "");
    host.init("vm1", "lxd", &[]);
    assert_eq!(host.run(&["list", "-q"]), "vm1\n");
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
    assert_eq!(host.conf()["port"], host.port());
    let again = host.try_run(&["init", "vm1", "--vsock-cid", "3", "--qmp", "q"]);
    assert!(again.unwrap_err().contains("instance vm1 already exists"));
}

#[test]
fn agent_conf_changes_at_the_next_start_of_the_vm() {
    let mut host = Host::started("lxd", &[]);
    let first = host.port();
    assert_eq!(host.conf()["port"], first);
    let qemu = Qemu::of(&host);
    wait("RUNNING", SOON, || (qemu.reads() > 0).then_some(()));
    host.kill();
    host.start();
    wait("the monitor", SOON, || (qemu.reads() > 1).then_some(()));
    assert_ne!(host.port(), first);
    assert_eq!(host.conf()["port"], first, "the guest has it already");
    drop(qemu);
    wait("the next one", SOON, || (host.conf()["port"] == host.port()).then_some(()));
    // The daemon detects a VM that ended while no daemon was running.
    host.run(&["start", "vm1"]);
    host.kill();
    host.start();
    wait("Stopped", SOON, || (host.state()["status"] == "Stopped").then_some(()));
    // The share is written after the state has changed.
    wait("its share", SOON, || (host.conf()["port"] == host.port()).then_some(()));
}

#[test]
fn the_control_socket_speaks_plain_http() {
    let host = Host::started("lxd", &[]);
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(host.path("control.sock")).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = ask("GET /1.0/internal/vm1/agent-state HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\"state\":\"UNKNOWN\""), "{answer}");
    assert!(ask("GET /1.0/nope HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    assert!(ask("GET /1.0/instances/x HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(host.try_run(&["agent-state", "x"]).unwrap_err().contains("no instance is named x"));
}

#[test]
fn only_the_owner_can_read_the_directory_and_stop_the_daemon() {
    use std::os::unix::fs::PermissionsExt;
    let mut host = Host::new();
    host.init("vm1", "lxd", &[]);
    host.start();
    let mode =
        |name: &str| std::fs::metadata(host.path(name)).unwrap().permissions().mode() & 0o7777;
    for (name, expected) in [
        ("instances", 0o700),
        ("instances/vm1", 0o700),
        ("instances/vm1/instance.json", 0o600),
        ("lock", 0o600),
        ("port", 0o600),
        ("server.key", 0o600),
        ("control.sock", 0o600),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
}

#[test]
fn a_boot_does_not_use_a_daemon_that_is_ending() {
    let host = Host::new();
    let world = World::new("ending", "echo nothing to run >&2; exit 1");
    let qemu = world.path("qemu");
    // The daemon checks every 200 ms whether it is needed.
    for wait_for in [0, 20, 60, 100, 140, 180, 220, 260] {
        host.init("a", "lxd", &[]);
        let daemon = host.command(&["daemon", "--until-empty"]).stderr(Stdio::null()).spawn();
        let mut daemon = daemon.unwrap();
        wait("the daemon", SOON, || {
            host.try_run(&["get", "a", "x"]).err()?.contains("x").then_some(())
        });
        // The daemon ends only after it has seen an instance.
        std::thread::sleep(Duration::from_millis(500));
        host.run(&["delete", "--force", "a"]);
        std::thread::sleep(Duration::from_millis(wait_for));
        let boot = ["boot", "b", "--accel", "tcg", "--qemu", &qemu, "--kernel", &qemu];
        let output = host.command(&boot).env("MOTE_VSOCK", world.path("vsock")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // This message shows that the command got as far as starting QEMU.
        assert!(said.contains("nothing to run"), "{said}");
        let _ended = daemon.kill();
        daemon.wait().unwrap();
    }
}

#[test]
fn updates_mounts_of_running_lxd_and_stopped_incus_vms() {
    for (flavour, source, live) in [("lxd", "lxd_my--disk", 1), ("incus", "incus_my-disk", 0)] {
        let host = Host::started(flavour, &[]);
        host.run(&["start", "vm1"]);
        let add = ["device-add", "vm1", "my-disk", "type=disk", "path=/mnt", "readonly=true"];
        host.run(&add);
        let path = host.share("vm1").join("agent-mounts.json");
        let mounts = || serde_json::from_slice::<Value>(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(mounts().as_array().unwrap().len(), live, "{flavour}");
        host.run(&["stop", "vm1"]);
        host.run(&["start", "vm1"]);
        let mount = json!([{"source": source, "target": "/mnt", "fstype": "virtiofs",
            "options": ["ro"]}]);
        assert_eq!(mounts(), mount);
        host.run(&["stop", "vm1"]);
        host.run(&["device-remove", "vm1", "my-disk"]);
        assert_eq!(mounts(), json!([]));
    }
}
