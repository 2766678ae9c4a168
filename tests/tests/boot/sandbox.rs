//! An agent whose policy denies privileged actions drops its privileges, and no agent keeps
//! secrets longer than needed.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use crate::world::{Boot, LIMIT, connected, terminate};
use mote_tests::agent::command_by;
use mote_tests::prelude::*;

/// Without these features, the host can request nothing that needs privileges.
const DENIED: [&str; 2] = ["--deny", "exec,files,mounts,power"];

fn fields(process: u32, name: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let statuses = threads.map(|thread| fs::read_to_string(thread.unwrap().path().join("status")));
    let field = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or("none").trim().to_owned()
    };
    statuses.map(|status| field(status.unwrap())).collect()
}

#[test]
fn a_sandboxed_agent_has_no_privileges_and_serves_both_sides() {
    let true = by_root() else { return };
    for flavour in ["lxd", "incus"] {
        let (boot, mut agent) = Boot::running(flavour, &DENIED);
        boot.serves();
        assert!(boot.log().contains("in a sandbox"), "{}", boot.log());
        let process = agent.0.id();
        for (name, value) in [
            ("CapEff", "0000000000000000"),
            ("CapPrm", "0000000000000000"),
            ("CapBnd", "0000000000000000"),
            ("Uid", "65530\t65530\t65530\t65530"),
            ("Gid", "65530\t65530\t65530\t65530"),
            ("Groups", ""),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ] {
            let all = fields(process, name);
            assert!(!all.is_empty() && all.iter().all(|field| field == value), "{name}: {all:?}");
        }
        exits(boot.ask(&["ready"]), Some(0), &[]);
        contains(boot.host.run(&["state", NAME]), &["processes"]);
        contains(boot.host.run(&["metrics", NAME]), &["cpu"]);
        contains(boot.host.exec(&["true"]).unwrap_err(), &["policy"]);
        // Files that the next agent trusts belong to root; devlxd's socket is for root only.
        for (path, mode) in [("run/mote/lock", 0o600), ("run/mote/status", 0o660)] {
            let about = boot.root(path).metadata().unwrap();
            assert_eq!((about.uid(), about.mode() & 0o7777), (0, mode), "{path}");
        }
        assert!(!boot.root("run/mote/known-host").exists());
        let socket = boot.root(&format!("dev/{flavour}/sock"));
        let about = socket.metadata().unwrap();
        assert_eq!((about.uid(), about.mode() & 0o7777), (0, 0o600));
        // devlxd can be disabled and enabled, and the agent ends normally.
        let client = boot.client();
        let told = client.host_info().unwrap();
        let put = |told: &Value| client.ask("PUT", "/1.0", &told.to_string()).unwrap().status;
        let mut off = told.clone();
        let on = off.as_object_mut().unwrap();
        assert!(on.remove("devlxd").or(on.remove("dev_incus")).is_some());
        for _ in 0..2 {
            assert_eq!(put(&off), 200);
            until("devlxd off", LIMIT, || !socket.exists());
            assert_eq!(put(&told), 200);
            boot.serves();
        }
        assert_eq!(boot.ask(&["ready"]).0, Some(0), "{}", boot.log());
        assert_eq!(terminate(&mut agent), Some(0), "{}", boot.log());
        assert!(boot.text("run/mote/ready").contains("Ready"), "{:?}", boot.text("run/mote/ready"));
    }
}

/// The unit's drop-in for guests that limit what their host may do.
const HARDENED: &str = include_str!("../../../image/services/mote-agent-hardened.conf");

fn setting(name: &str) -> impl Iterator<Item = &'static str> {
    let lines = HARDENED.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix('='));
    lines.flat_map(str::split_whitespace)
}

#[test]
fn the_hardened_units_capabilities_suffice_for_the_sandbox() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let kept =
        setting("CapabilityBoundingSet").map(|name| name.replace("CAP_", "+").to_lowercase());
    let kept = kept.fold("--bounding-set=-all".to_owned(), |all, name| format!("{all},{name}"));
    let umask = format!("umask {}; exec \"$@\"", setting("UMask").next().unwrap());
    let by = ["sh", "-c", &umask, "sh", "setpriv", "--no-new-privs", "--inh-caps=-all", &kept];
    let mut command = command_by(&by, &boot.scratch.0, "lxd", &boot.host.share);
    let mut agent = Process::start(command.args(setting("ExecStart").skip(1)));
    boot.serves();
    boot.logged("CONNECTED");
    assert!(boot.log().contains("in a sandbox\n"), "{}", boot.log());
    for name in ["CapEff", "CapPrm"] {
        assert_eq!(fields(agent.0.id(), name), ["0000000000000000"], "{name}");
    }
    assert!(boot.host.run(&["state", NAME]).contains("processes"));
    assert!(boot.host.run(&["metrics", NAME]).contains("cpu"));
    assert_eq!(boot.ask(&["ready"]).0, Some(0), "{}", boot.log());
    assert_eq!(terminate(&mut agent), Some(0), "{}", boot.log());
}

#[test]
fn an_agent_that_needs_root_keeps_its_privileges() {
    let (boot, agent) = Boot::running("lxd", &["--deny", "exec,files"]);
    assert!(fields(agent.0.id(), "Seccomp").iter().all(|field| field != "2"));
    assert!(!boot.log().contains("sandbox"), "{}", boot.log());
}

fn copies(process: u32, bytes: &[u8]) -> usize {
    let maps = fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let writable = maps.lines().filter(|line| line.contains(" rw"));
    let found = writable.map(|line| {
        let (range, _) = line.split_once(' ').unwrap();
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut all = vec![0; usize::try_from(to - from).unwrap()];
        // The kernel's own mappings cannot be read.
        let read = memory.read_exact_at(&mut all, from);
        read.map_or(0, |()| all.windows(bytes.len()).filter(|part| *part == bytes).count())
    });
    found.sum()
}

#[test]
fn wipes_a_commands_environment_from_memory() {
    let (boot, agent) = Boot::running("lxd", &[]);
    let process = agent.0.id();
    let key = fs::read_to_string(boot.host.share.join("agent.key")).unwrap();
    let key = key.lines().nth(1).unwrap();
    assert_eq!(copies(process, key.as_bytes()), 0, "the key's file");
    // The source has it reversed, so that the program's own text does not contain the secret.
    let secret: String = "drowssap_eht_si_siht".chars().rev().collect();
    let environment = format!("PASSWORD={secret}");
    let shown = boot.host.run(&["exec", NAME, "--env", &environment, "--", "printenv", "PASSWORD"]);
    assert_eq!(shown.trim_end(), secret);
    // The operation is kept for 5 s. Without other requests, no memory is reused.
    until("no copy of it", LIMIT, || copies(process, secret.as_bytes()) == 0);
}

/// Checks that a forbidden action ends the agent, as its service expects, and the next one serves.
fn leaves_it_to_the_next(boot: &Boot, mut agent: Process, options: &[&str], why: &str) {
    assert_eq!(agent.ends(LIMIT), Some(1), "{}", boot.log());
    assert!(boot.log().contains(why), "{}", boot.log());
    let _next = boot.start(options);
    connected(boot, 2);
}

#[test]
fn a_replugged_port_ends_the_sandboxed_agent() {
    let true = by_root() else { return };
    let boot = Boot::new("lxd");
    let port = boot.scratch.0.join("port");
    fifo(&port);
    let options = [DENIED[0], DENIED[1], "--port", port.to_str().unwrap()];
    let agent = boot.up(&options);
    fs::remove_file(&port).unwrap();
    fifo(&port);
    leaves_it_to_the_next(&boot, agent, &options, "the sandbox forbids opening the new port");
}

#[test]
fn sighup_ends_a_sandboxed_agent_for_its_service_to_restart() {
    let true = by_root() else { return };
    let (boot, agent) = Boot::running("lxd", &DENIED);
    kill(Signal::HUP, agent.0.id());
    leaves_it_to_the_next(
        &boot,
        agent,
        &DENIED,
        "a sandboxed agent cannot re-exec; exiting with code 1",
    );
}
