//! Limits of the guest's policy on the host's commands, files and port-forward. A changed policy
//! applies from the next request after SIGHUP, even while a command runs.

use std::fs;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mote_tests::conform::exec::{Exec, Running, script};
use mote_tests::conform::wire::Wire;
use mote_tests::{Client, NAME, Process, agent, by_root, is_root, kill, wait};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, in_private_mounts, mount};

fn under(flavour: &'static str, features: &str) -> (Boot, Process) {
    let boot = Boot::new(flavour);
    boot.put("etc/mote-agent.yml", &format!("features:\n  guestapi: true\n  {features}\n"));
    let agent = boot.start(&[]);
    wait("CONNECTED", LIMIT, || boot.log().contains(" CONNECTED").then_some(()));
    (boot, agent)
}

#[test]
fn commands_run_as_listed_users_and_by_listed_paths() {
    let (boot, _agent) =
        under("lxd", "exec: {users: [65534], groups: [0], commands: [/usr/bin/env]}");
    let exec = |words: &[&str]| {
        boot.host.try_run(&[&["exec", NAME, "-T", "--cwd", "/"][..], words].concat())
    };
    let refusal = |words: &[&str]| exec(words).expect_err("a refusal");
    let why = refusal(&["--", "/usr/bin/env"]);
    assert!(why.contains("The guest's policy does not allow exec as user 0"), "{why}");
    boot.logged("policy: the host was refused: The guest's policy does not allow exec as user 0");
    let why = refusal(&["--user", "65534", "--", "/bin/sh"]);
    assert!(why.contains("policy does not allow exec of \"/bin/sh\""), "{why}");
    if is_root() {
        // Variables that could change the program are not passed on.
        let words = ["--user", "65534", "-e", "LD_PRELOAD=/x", "-e", "PATH=/x", "-e", "TERM=dumb"];
        let said = exec(&[&words[..], &["--", "/usr/bin/env"]].concat()).unwrap();
        assert!(said.contains("TERM=dumb") && said.contains("PATH=/usr/local/sbin"), "{said}");
        assert!(!said.contains("LD_PRELOAD") && !said.contains("/x"), "{said}");
    }
    let (_, status) = boot.ask(&["ready"]);
    assert!(!status.contains("policy"), "{status}");
    let (_, shown) = boot.says(&["status"]);
    assert!(shown.contains("clock; limited: exec\n"), "{shown}");
}

#[test]
fn the_agents_program_as_a_listed_command_gives_no_root_access() {
    let program = agent().canonicalize().unwrap().display().to_string();
    let (boot, _agent) = under("lxd", &format!("exec: {{commands: [{program}]}}"));
    if !is_root() {
        return mote_tests::skipped("root");
    }
    let other = boot.scratch.0.join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    let touched = boot.scratch.0.join("touched");
    let command = format!("command /usr/bin/touch {}", touched.display());
    let exec = |words: &[&str]| {
        let host =
            ["exec", NAME, "-T", "--cwd", "/", "-e", "MOTE_STARTED_BY=agent", "--", &program];
        boot.host.try_run(&[&host[..], words].concat())
    };
    for words in [
        &["sftp-server"][..],
        &["sftp-server", "-d", "/"],
        &["mount-worker", "1000", "1"],
        &["after-resume", "restored"],
        &["nics", "2"],
        &["ready-when", &command],
        &[],
        &["--no-wait", "--root", other],
        &["--no-wait", "--remember", other],
        &["freeze", "--root", other],
        &["sync-time"],
        &["grow"],
        &["report", "state"],
    ] {
        let why = exec(words).expect_err("a refusal");
        let is_said = ["only the agent starts this", "a host command may not start this"];
        assert!(is_said.iter().any(|said| why.contains(said)), "{words:?}: {why}");
    }
    assert!(!touched.exists() && fs::read_dir(other).unwrap().next().is_none());
    assert!(exec(&["version"]).unwrap().starts_with("mote-agent "));
}

/// An agent may be killed before its worker asks to be killed with it.
#[test]
fn a_mount_worker_of_another_process_mounts_nothing() {
    let said = |parent: u32| {
        let mut worker = Command::new(agent());
        worker.args(["mount-worker", "1000", &parent.to_string()]);
        worker.env("MOTE_STARTED_BY", "agent").stdin(Stdio::null());
        let out = worker.output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(said(1), "the agent has ended\n");
    assert!(said(std::process::id()).contains("JSON"), "the document is empty");
}

#[test]
fn sysvinits_keeper_restarts_the_agent() {
    let test = "limits::sysvinits_keeper_restarts_the_agent";
    if !is_root() || !in_private_mounts(test) {
        return;
    }
    for place in ["/usr/sbin", "/var/log"] {
        mount(&["-t", "tmpfs", "none"], Path::new(place));
    }
    mote_tests::program("/usr/sbin/mote-agent", "#!/bin/sh\necho \"by ${MOTE_STARTED_BY-root}\"\n");
    let keeper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/services/respawn");
    // As by apt-get, if the policy lists it and the package's scripts restart the service.
    let mut keeper = Command::new(keeper);
    assert!(keeper.env("MOTE_STARTED_BY", "host").status().unwrap().success());
    assert_eq!(fs::read_to_string("/var/log/mote-agent.log").unwrap(), "by root\n");
}

#[test]
fn allows_only_the_listed_ports_of_the_guest() {
    let open = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = open.local_addr().unwrap().port();
    let (boot, _agent) = under("incus", &format!("port-forward: {{ports: [{port}]}}"));
    for (body, status) in [
        (format!("{{\"port\":{port}}}"), 101),
        ("{\"port\":10}".into(), 403),
        (format!("{{\"port\":{port},\"address\":\"192.0.2.1\"}}"), 403),
    ] {
        let fields = "Connection: Upgrade\r\nUpgrade: tcp\r\n";
        let mut wire = boot.client().connect().unwrap();
        let answer = wire.ask("POST", "/1.0/port-forward", fields, body.as_bytes()).unwrap();
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
    }
}

#[test]
fn refuses_writes_to_read_only_files_with_a_reason() {
    let (boot, _agent) = under("lxd", "files: {read-only: true}");
    let (file, copy) = (boot.scratch.0.join("file"), boot.scratch.0.join("copy"));
    fs::write(&file, "text").unwrap();
    let there = format!("{NAME}{}", file.display());
    boot.host.ok(&["file", "pull", &there, copy.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&copy).unwrap(), "text");
    fs::write(&copy, "other").unwrap();
    let why = boot.host.try_run(&["file", "push", copy.to_str().unwrap(), &there]).unwrap_err();
    assert!(why.contains("the guest's policy does not allow it: files can only be read"), "{why}");
    boot.logged("policy: refused a file request of the host: files can only be read");
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn writes_files_as_a_listed_user_without_set_user_id() {
    let true = by_root() else { return };
    let place = mote_tests::Scratch::new();
    let shown = place.0.join("shown");
    fs::create_dir(&shown).unwrap();
    for (path, mode) in [(&place.0, 0o755), (&shown, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let secret = shown.join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let exec = "exec: {users: [65534], groups: [65534]}";
    for files in ["true".to_owned(), format!("{{below: [{}]}}", shown.display())] {
        let (boot, _agent) = under("lxd", &format!("{exec}\n  files: {files}"));
        let there = |name: &str| format!("{NAME}{}", shown.join(name).display());
        let copy = boot.scratch.0.join("copy");
        fs::copy("/usr/bin/id", &copy).unwrap();
        let copy = copy.to_str().unwrap();
        boot.host.ok(&["file", "push", "--mode", "4755", copy, &there("id")]);
        let about = fs::metadata(shown.join("id")).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid(), about.gid()), (0o755, 65_534, 65_534));
        let program = shown.join("id").display().to_string();
        let ids = ["--user", "65534", "--group", "65534", "--cwd", "/", "--", &program, "-u"];
        assert_eq!(boot.host.run(&[&["exec", NAME, "-T"], &ids[..]].concat()), "65534\n");
        let why = boot.host.try_run(&["file", "pull", &there("secret"), copy]).unwrap_err();
        assert!(why.contains("ermission denied"), "{why}");
        fs::remove_file(shown.join("id")).unwrap();
    }
}

/// Upper bound from a signal to its effect: no command delays it.
const SOON: Duration = Duration::from_secs(8);

/// Upgrades a connection of the host's to this protocol.
fn switched(client: &Client, protocol: &str, method: &str, target: &str, body: &str) -> Wire {
    let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
    let mut wire = client.connect().expect("a connection");
    assert_eq!(wire.ask(method, target, &fields, body.as_bytes()).expect("an answer").status, 101);
    wire.within(SOON);
    wire
}

/// Returns a listener in the guest, and its connection with the host.
fn forwarded(client: &Client) -> (Wire, TcpStream) {
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
fn a_new_policy_ends_everything_but_running_commands() {
    let boot = Boot::new("incus");
    let agent = boot.start(&[]);
    boot.logged(" CONNECTED");
    boot.serves();
    let client = boot.client();
    let mut files = switched(&client, "sftp", "GET", "/1.0/sftp", "");
    let (mut wire, _accepted) = forwarded(&client);
    let there = boot.scratch.0.join("there");
    let command = format!(": >{}; sleep 4; echo whole", there.display());
    let running = Running::start(&client, &script(&command)).expect("a command");
    wait("the command", LIMIT, || there.exists().then_some(()));
    // A signal alone changes nothing.
    kill(Signal::HUP, agent.0.id());
    boot.logged("policy: everything is allowed");
    files.send(&[0, 0, 0, 5, 1, 0, 0, 0, 3]).unwrap();
    assert_eq!(files.exactly(5).unwrap()[4], 2, "VERSION");

    // A command whose streams are not connected yet was allowed by the old policy.
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
    let exec = || boot.host.exec(&["true"]);
    let why = exec().expect_err("a refusal");
    assert!(why.contains("policy does not allow exec"), "{why}");
    let (code, text) = boot.ask(&["ready"]);
    assert!(code == Some(3) && text.contains("policy denies guestapi"), "{text}");
    files.rest().expect("the session's end");
    wire.rest().expect("the connection's end");
    let (_, shown) = boot.says(&["status"]);
    assert!(shown.contains("policy: denied: guestapi exec files"), "{shown}");
    assert!(!boot.log().contains("restarting in place"), "a command runs");

    // An invalid policy denies everything. A valid one restores it.
    boot.put("etc/mote-agent.yml", "features: {exce: true}\n");
    kill(Signal::HUP, agent.0.id());
    boot.logged("unknown feature \"exce\"");
    boot.put("etc/mote-agent.yml", "features: {exec: {users: [0]}}\n");
    kill(Signal::HUP, agent.0.id());
    wait("exec", LIMIT, || exec().ok());
    assert_eq!(running.finish(&client).expect("its output").out, "whole\n");
}

#[test]
fn a_sandboxed_agent_allows_nothing_more_until_restarted() {
    let true = by_root() else { return };
    let boot = Boot::new("incus");
    let mut agent: Process = boot.start(&["--deny", "exec,files,mounts"]);
    boot.logged(" CONNECTED");
    boot.logged("in a sandbox");
    let (mut wire, _accepted) = forwarded(&boot.client());
    kill(Signal::HUP, agent.0.id());
    wire.rest().expect("the connection's end");
    assert_eq!(agent.ends(SOON), Some(1), "{}", boot.log());
}
