//! The guest's policy on its host.

use mote_tests::conform::prelude::*;
use mote_tests::report;
use rustix::fs::OFlags;

use crate::world::{Boot, LIMIT, in_private_mounts, mount};

#[test]
fn reports_denied_mounts() {
    let boot = Boot::new("lxd");
    boot.put("etc/mote-agent.yml", "features: {guestapi: true, exec: true}\n");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#,
    );
    let _agent = boot.start(&[]);
    boot.logged("ignoring agent-mounts.json");
    boot.logged("CONNECTED");
    let add = ["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"];
    contains(boot.host.try_run(&add).unwrap_err(), &["the guest's policy does not allow mounts"]);
    boot.logged("ignoring a device event");
    assert!(!boot.root("mnt").exists());
}

#[test]
fn applies_the_policy_for_every_server_and_denies_all_if_invalid() {
    let exec = |boot: &Boot| boot.host.exec(&["true"]);
    for (flavour, file) in [("lxd", "etc/mote-agent.yml"), ("incus", "etc/incus-agent.yml")] {
        let boot = Boot::new(flavour);
        boot.put(file, "features:\n  guestapi: true\n  exec: false\n");
        let mut agent = boot.start(&[]);
        boot.serves();
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("allow exec")));
        agent.kill();
        boot.put(file, "features: {guestapi: true, exec: true}\n");
        agent = boot.start(&["--deny", "guestapi"]);
        boot.logged("STARTED");
        wait("exec", LIMIT, || exec(&boot).ok());
        // The answer says that the guest's policy denies the request.
        let why = "the guest's policy denies guestapi (denied: guestapi files ";
        exits(boot.ask(&["ready"]), Some(3), &[why]);
        assert!(!boot.log().split("policy: denied").last().unwrap().contains("devlxd on"));
        agent.kill();
        boot.put(file, "features: {exec: *x}\n");
        let _agent = boot.start(&[]);
        boot.logged("line 1: an alias is not supported");
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("policy")));
    }
}

#[test]
fn check_reports_actions_without_doing_them() {
    // Without a port the host would not see the agent, and the exit code would report that.
    let boot = Boot::whole("incus");
    boot.share("files/metadata.yaml", "templates: {/etc/x: {template: x}, /etc/y: {template: y}}");
    boot.share("files/x.out", "x");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"incus_d","target":"/mnt/d","fstype":"virtiofs"}]"#,
    );
    boot.put("etc/incus-agent.yml", "features: {exec: true}");
    let (code, text) = boot.says(&["--check"]);
    let denied = "policy: denied: guestapi files mounts port-forward metrics state";
    contains(&text, &["templates: 1 due at start", "mounts: incus_d on /mnt/d", denied]);
    exits((code, text), Some(0), &["nics: 0 to be named"]);
    assert!(!boot.root("etc/x").exists() && !boot.root("mnt").exists());
}

#[test]
fn does_not_report_a_denied_state_through_the_port() {
    let boot = Boot::new("incus");
    // The guest has a `/proc`, so that there is a state to report, but no vsock.
    report::root(&boot.root(""), [(1, true)].into_iter());
    let port = boot.scratch.0.join("port");
    fifo(&port);
    let told = |policy: &[&str]| {
        let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
        let mut end = File::options();
        let mut end = end.read(true).write(true).custom_flags(nonblock).open(&port).unwrap();
        let mut command = Command::new(agent());
        command.args(["--flavour", "incus", "--root"]).arg(boot.root(""));
        command.arg("--config-dir").arg(&boot.host.share).arg("--port").arg(&port).args(policy);
        let _agent = Process::start(command.stdin(Stdio::null()).stderr(Stdio::null()));
        // A single write arrives as a single read.
        let mut text = vec![0; 16 * 1024];
        let (count, _) = wait("STARTED", LIMIT, || end.read(&mut text).ok());
        let text = String::from_utf8_lossy(&text[..count]).into_owned();
        text.strip_prefix("STARTED\n").expect("STARTED first").to_owned()
    };
    let state = told(&[]);
    assert!(state.contains("\"processes\":1,") && state.ends_with("}\n"), "{state}");
    for policy in [["--deny", "state"], ["--allow", "guestapi"]] {
        assert_eq!(told(&policy), "", "{policy:?}");
    }
}

// Limits of the guest's policy on the host's commands, files and port-forward. A changed policy
// applies from the next request after SIGHUP, even while a command runs.

fn under(flavour: &'static str, features: &str) -> (Boot, Process) {
    let boot = Boot::new(flavour);
    boot.put("etc/mote-agent.yml", &format!("features:\n  guestapi: true\n  {features}\n"));
    let agent = boot.start(&[]);
    until("CONNECTED", LIMIT, || boot.log().contains(" CONNECTED"));
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
    assert!(shown.contains("clock power; limited: exec\n"), "{shown}");
}

#[test]
fn the_agents_program_as_a_listed_command_gives_no_root_access() {
    let program = agent().canonicalize().unwrap().display().to_string();
    let (boot, _agent) = under("lxd", &format!("exec: {{commands: [{program}]}}"));
    let true = is_root() else { return skipped("root") };
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
        &["ready-when", &command],
        &[],
        &["--no-wait", "--remember", other],
        &["freeze", "--root", other],
        &["grow"],
    ] {
        let why = exec(words).expect_err("a refusal");
        let is_said = ["only the agent starts this", "a host command may not start this"];
        assert!(is_said.iter().any(|said| why.contains(said)), "{words:?}: {why}");
    }
    assert!(!touched.exists() && fs::read_dir(other).unwrap().next().is_none());
    assert!(exec(&["version"]).unwrap().starts_with("mote-agent "));
}

/// An agent may be killed before its worker has requested to be killed when the agent ends.
#[test]
fn a_mount_worker_of_another_process_mounts_nothing() {
    let said = |parent: u32| {
        let mut worker = Command::new(agent());
        worker.args(["mount-worker", "1000", &parent.to_string()]);
        worker.env("MOTE_STARTED_BY", "agent").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut worker = worker.spawn().unwrap();
        worker.stdin.take().unwrap().write_all(b"{").unwrap();
        let out = worker.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(said(1), "the agent has ended\n");
    assert!(said(std::process::id()).contains("JSON"), "the document is truncated");
}

#[test]
fn sysvinits_keeper_restarts_the_agent() {
    let test = "policy::sysvinits_keeper_restarts_the_agent";
    if !is_root() || !in_private_mounts(test) {
        return;
    }
    for place in ["/usr/sbin", "/var/log"] {
        mount(&["-t", "tmpfs", "none"], Path::new(place));
    }
    program("/usr/sbin/mote-agent", "#!/bin/sh\necho \"by ${MOTE_STARTED_BY-root}\"\n");
    let keeper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/services/respawn");
    // Simulates apt-get, which the policy lists and whose package scripts restart the service.
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
    assert!(why.contains("the guest's policy does not allow it: files are read-only"), "{why}");
    boot.logged("policy: refused a file request of the host: files are read-only");
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn writes_files_as_a_listed_user_without_set_user_id() {
    let true = by_root() else { return };
    let place = Scratch::new();
    let shown = place.0.join("shown");
    fs::create_dir(&shown).unwrap();
    for (path, mode) in [(&place.0, 0o755), (&shown, 0o777)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let secret = shown.join("secret");
    fs::write(&secret, "secret").unwrap();
    fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
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

/// Upper bound of the time from a signal to its effect, which no command delays.
const SOON: Duration = Duration::from_secs(8);

fn switched(client: &Client, protocol: &str, method: &str, target: &str, body: &str) -> Wire {
    let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
    let mut wire = client.connect().expect("a connection");
    assert_eq!(wire.ask(method, target, &fields, body.as_bytes()).expect("an answer").status, 101);
    wire.within(SOON);
    wire
}

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
    let (boot, agent) = Boot::running("incus", &[]);
    boot.serves();
    let client = boot.client();
    let mut files = switched(&client, "sftp", "GET", "/1.0/sftp", "");
    let (mut wire, _accepted) = forwarded(&client);
    let there = boot.scratch.0.join("there");
    let command = format!(": >{}; sleep 4; echo whole", there.display());
    let running = Running::start(&client, &script(&command)).expect("a command");
    until("the command", LIMIT, || there.exists());
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
    contains(exec().expect_err("a refusal"), &["policy does not allow exec"]);
    exits(boot.ask(&["ready"]), Some(3), &["policy denies guestapi"]);
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
