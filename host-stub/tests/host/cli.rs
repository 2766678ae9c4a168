//! The command line as people use it: help, completions, states, waiting, deleting.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::peers::agent::Agent;
use crate::peers::guest::Guest;
use crate::peers::host::{Host, SOON, errors, wait};
use crate::peers::qmp::Qemu;

fn mote_host(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mote-host"));
    command.args(args).env_remove("MOTE_HOST_DIR");
    command
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn completions_are_valid() {
    for shell in ["bash", "zsh", "fish", "elvish"] {
        let text = printed(&mut mote_host(&["completions", shell]));
        assert!(text.contains("port-forward"), "{shell}: {text}");
        if shell == "bash" {
            assert!(Command::new(shell).args(["-n", "-c", &text]).status().unwrap().success());
        }
    }
}

#[test]
fn takes_the_directory_from_the_environment_or_the_users_home() {
    let host = Host::started("lxd", &[]);
    let mut list = mote_host(&["list", "-q"]);
    assert_eq!(printed(list.env("MOTE_HOST_DIR", &host.directory)), "vm1\n");
    let mut list = mote_host(&["list"]);
    list.env("HOME", &host.directory).env_remove("XDG_STATE_HOME");
    let error = errors(&list.output().unwrap());
    let usual = host.path(".local/state/mote-host").display().to_string();
    let advice = format!("{usual}; mote-host --dir {usual} daemon starts one");
    assert_eq!(error, format!("mote-host: no daemon is running in {advice}\n"));
    let error = errors(&list.env("XDG_STATE_HOME", "/no where").output().unwrap());
    assert!(error.contains("no daemon is running in /no where/mote-host; "), "{error}");
    let error = errors(&mote_host(&["--dir", "/no where", "list"]).output().unwrap());
    assert!(error.contains("in /no where; mote-host --dir '/no where' daemon starts"), "{error}");
    let mut nowhere = mote_host(&["list"]);
    let error = errors(&nowhere.env_remove("HOME").env_remove("XDG_STATE_HOME").output().unwrap());
    assert!(error.contains("use --dir DIR, or set MOTE_HOST_DIR"), "{error}");
}

#[test]
fn an_agent_without_vsock_reports_itself_by_the_port() {
    let (host, qemu) = Host::with_vm("incus", &[]);
    // The ring keeps only the last 16 bytes of the state.
    qemu.say("STARTED\n{\"pid\":1,\"processes\":7,\"swap_usage\":0}\n");
    let words =
        "In words     the agent reports itself only through the status port: no vsock in the guest";
    let info = || printed(&mut host.command(&["info", "vm1"]));
    wait("the reason", SOON, || info().contains(words).then_some(()));
    assert!(info().contains("Last line    the end of its state: "), "{}", info());
}

#[test]
fn wait_ends_with_the_state_or_reports_the_obstacle() {
    let mut host = Host::with_instance("lxd", &[]);
    let agent = Agent::of(&host, "lxd-agent");
    host.start();
    let late = host.output(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "0.2"]);
    assert_eq!(late.status.code(), Some(124));
    let error = errors(&late);
    assert!(error.contains("vm1 is not CONNECTED after 0.2 s: the VM is not running"), "{error}");
    let never_ran = host.output(&["wait", "vm1", "--for", "STOPPED", "--timeout", "0"]);
    assert_eq!(never_ran.status.code(), Some(124), "its agent has not stopped");
    let qemu = Qemu::of(&host);
    qemu.is_read();
    agent.mood(crate::peers::agent::Mood::Refuses);
    qemu.say("STARTED\n");
    host.run(&["wait", "vm1", "--for", "started", "--timeout", "10"]);
    wait("the PUT", SOON, || (!host.state()["last_put"].is_null()).then_some(()));
    let late = host.output(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "0"]);
    assert!(errors(&late).contains("call to it failed: PUT: status 500: no way back"), "{late:?}");
    let waiting = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| host.output(&["wait", "vm1", "--for", "CONNECTED"]));
        std::thread::sleep(Duration::from_millis(200));
        qemu.say("CONNECTED\n");
        waiting.join().unwrap()
    });
    assert!(waiting.status.success(), "{}", errors(&waiting));
    host.run(&["wait", "vm1", "--for", "STARTED", "--timeout", "0"]);
    let late = host.output(&["wait", "vm1", "--for", "Ready", "--timeout", "0"]);
    assert!(errors(&late).contains("no program in the guest has reported Ready"), "{late:?}");
    let guest = Guest::of(&host);
    assert_eq!(guest.ask("PATCH", "/1.0", r#"{"state":"Ready"}"#).0, 200);
    host.run(&["wait", "vm1", "--for", "Ready", "--timeout", "10"]);
    drop(qemu);
    host.run(&["wait", "vm1", "--for", "STOPPED", "--timeout", "10"]);
    let unknown = host.output(&["wait", "vm2", "--for", "STOPPED"]);
    assert_eq!(unknown.status.code(), Some(1), "{}", errors(&unknown));
}

#[test]
fn waits_for_a_daemon_that_is_starting() {
    let mut host = Host::with_instance("lxd", &[]);
    let mut waiting = host.command(&["wait", "vm1", "--for", "CONNECTED", "--timeout", "0"]);
    let waiting = mote_machine::bounded(waiting.stderr(Stdio::piped())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    host.start();
    let late = waiting.wait_with_output().unwrap();
    assert_eq!(late.status.code(), Some(124), "{}", errors(&late));
    host.kill();
    let never = host.output(&["wait", "vm1", "--for", "CONNECTED"]);
    assert!(errors(&never).contains("no daemon is running"), "{}", errors(&never));
}

#[test]
fn every_report_shows_the_active_fault() {
    let host = Host::started("lxd", &[]);
    host.run(&["fault", "vm1", "slow", "40"]);
    let list = host.run(&["list"]);
    let rows: Vec<Vec<&str>> = list.lines().map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["NAME", "STATUS", "AGENT", "SERVER", "FAULT"]);
    assert_eq!(rows[1], ["vm1", "Stopped", "UNKNOWN", "lxd", "slow", "40"]);
    assert!(host.run(&["info", "vm1"]).contains("Fault        slow 40\n"));
    assert_eq!(host.run(&["fault", "vm1"]), "active fault: slow 40\n");
    let error = host.try_run(&["fault", "vm1", "slow"]).unwrap_err();
    assert!(error.contains("milliseconds"), "{error}");
}

#[test]
fn guest_output_cannot_control_a_terminal() {
    let (host, qemu) = Host::with_vm("lxd", &[]);
    qemu.say("\x1b[2J\u{202e}\n");
    wait("the line", SOON, || (host.state()["last_line"] != "").then_some(()));
    let _refused = Guest::of(&host).try_ask("GET", "/\x7f\u{9b}31m", "");
    for args in [&["agent-state", "vm1"], &["info", "vm1"]] {
        let shown = host.run(args);
        let steers = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
        assert!(!shown.contains(steers), "{args:?}: {shown:?}");
        assert!(shown.contains("x1b[2J") || shown.contains("u001b[2J"), "{shown}");
    }
    assert!(!host.log().contains(|letter: char| letter != '\n' && letter.is_control()));
}

#[test]
fn a_deleted_instances_name_can_be_reused() {
    let mut host = Host::started("lxd", &["user.n=1"]);
    let door = host.path(&format!("vm1.p_{}", host.port()));
    host.run(&["start", "vm1"]);
    let error = host.try_run(&["delete", "vm1"]).unwrap_err();
    assert!(error.contains("vm1 is running") && error.contains("--force"), "{error}");
    host.run(&["stop", "vm1"]);
    host.run(&["delete", "vm1"]);
    assert_eq!(host.run(&["list", "-q"]), "");
    assert!(!host.path("instances/vm1").exists() && !door.exists());
    assert!(host.try_run(&["info", "vm1"]).unwrap_err().contains("no instance is named vm1"));
    // The next instance with this name has nothing of the deleted one.
    host.init("vm1", "lxd", &["user.n=2"]);
    assert_eq!(Guest::of(&host).get("/1.0/config/user.n").1, "2");
    let qemu = Qemu::of(&host);
    qemu.is_read();
    qemu.say("CONNECTED\n");
    host.wait_for("CONNECTED");
    host.run(&["delete", "--force", "vm1"]);
    wait("its VM's end", SOON, || qemu.is_ordered("quit").then_some(()));
    let begun = Instant::now();
    qemu.say("CONNECTED\n");
    while begun.elapsed() < Duration::from_millis(300) {
        assert_eq!(host.run(&["list", "-q"]), "");
    }
    // `delete` also works without a daemon.
    host.init("vm2", "lxd", &[]);
    host.kill();
    host.run(&["delete", "vm2"]);
    assert!(!host.path("instances/vm2").exists());
    assert!(host.try_run(&["delete", "vm2"]).unwrap_err().contains("no instance is named vm2"));
}

#[test]
fn init_needs_only_a_name_and_prints_how_to_boot() {
    let host = Host::new();
    let made = host.output(&["init", "vm1"]);
    let share = String::from_utf8(made.stdout.clone()).unwrap();
    assert_eq!(share.trim(), host.share("vm1").canonicalize().unwrap().to_str().unwrap());
    // The key has the form that Go agents read (P§1.2).
    let key = std::fs::read_to_string(host.share("vm1").join("agent.key")).unwrap();
    assert!(key.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{key}");
    let recipe = errors(&made);
    let again = host.run(&["qemu", "vm1"]);
    assert_eq!(again, recipe, "the same again");
    let mut bash = Command::new("bash");
    assert!(bash.args(["-n", "-c", &recipe]).status().unwrap().success(), "{recipe}");
    for option in host.run(&["qemu", "vm1", "--args"]).lines() {
        assert!(recipe.contains(option), "{option} in {recipe}");
    }
    assert!(host.run(&["qemu", "vm1", "--memory", "96", "--args"]).contains("size=96M,share=on"));
    assert!(host.try_run(&["qemu", "vm2"]).unwrap_err().contains("no instance is named vm2"));
}
