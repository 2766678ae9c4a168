//! `--check` with one problem of a guest at a time. The output names what was expected, what was found
//! and what to do, and the exit code says whether the host will see the agent.

use mote_tests::conform::prelude::*;
use rustix::fs::OFlags;

use crate::check::rows::{Row, two_servers};
use crate::world::{Boot, LIMIT, NOBODY, in_private_mounts};

mod rows;

fn tree(directory: &Path, into: &mut BTreeMap<PathBuf, SystemTime>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let about = entry.metadata().expect("the guest");
        into.insert(entry.path(), about.modified().expect("a time"));
        if about.is_dir() {
            tree(&entry.path(), into);
        }
    }
}

fn begin(mut command: Command, args: &[&str]) -> Child {
    let command = command.args(args).arg("--check").stdin(Stdio::null()).stdout(Stdio::piped());
    bounded(command).expect("an agent")
}

fn end(check: Child) -> (Option<i32>, String) {
    let output = check.wait_with_output().expect("an agent");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check(command: Command, args: &[&str]) -> (Option<i32>, String) {
    end(begin(command, args))
}

/// Returns the lines of `--check --json`'s document, which must agree with its exit code.
fn lines_of((code, text): &(Option<i32>, String)) -> String {
    let document: Value = serde_json::from_str(text).unwrap_or_else(|why| panic!("{why}: {text}"));
    assert_eq!(document["ok"], *code == Some(0), "{text}");
    let facts = document["facts"].as_array().expect("facts");
    let word = |fact: &Value, key: &str| fact[key].as_str().expect("a word").to_owned();
    let first = &facts[0];
    let cause = if first["mark"] == "missing" { first["text"].clone() } else { Value::Null };
    assert_eq!(document["cause"], cause, "{text}");
    let line = |fact| {
        format!("{:<9}{}: {}\n", word(fact, "mark"), word(fact, "about"), word(fact, "text"))
    };
    facts.iter().map(line).collect()
}

/// Checks a guest with one problem, and without a mounted share unless `has_share`. Nothing is
/// written, problems come first, and the JSON document agrees.
fn hold(row: &Row, has_share: bool) {
    let (boot, args, line) = (Boot::whole("lxd"), &*row.args, row.line);
    let command = || if has_share { boot.command(&[]) } else { bare(&boot) };
    row.break_guest(&boot);
    let (mut before, mut after) = <(BTreeMap<_, _>, BTreeMap<_, _>)>::default();
    tree(&boot.root(""), &mut before);
    // Some rows wait for a device.
    let json = begin(command(), &[args, &["--json"]].concat());
    let (code, text) = check(command(), args);
    let json = end(json);
    tree(&boot.root(""), &mut after);
    assert_eq!(before, after);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the guest");
    let expected = line
        .replace("{none}", "No such file or directory (os error 2)")
        .replace("{lib}", &format!("{{root}}/lib/modules/{}", release.trim()))
        .replace("{root}", boot.root("").to_str().expect("the guest").trim_end_matches('/'))
        .replace("{share}", boot.host.share.to_str().expect("the guest"));
    assert!(text.lines().any(|other| other == expected), "no {expected:?} in:\n{text}");
    let is_seen = has_share && !line.starts_with("missing");
    assert_eq!(code, Some(i32::from(!is_seen)), "{line}:\n{text}");
    assert_eq!(text.starts_with("missing  "), !is_seen, "{text}");
    assert_eq!(lines_of(&json), text);
    let _mounted = Command::new("umount").arg(boot.root("run")).stderr(Stdio::null()).status();
}

/// Returns the agent for a guest whose config share is not mounted yet, in an empty directory.
fn bare(boot: &Boot) -> Command {
    let mut command = Command::new(agent());
    command.arg("--root").arg(boot.root("")).current_dir(boot.root("etc"));
    command
}

#[test]
fn check_reports_what_hides_the_agent_from_its_host() {
    ["ports", "files"].into_iter().flat_map(rows::of).for_each(|row| hold(&row, true));
    rows::of("bare").iter().for_each(|row| hold(row, false));
}

#[test]
fn check_reports_a_full_or_read_only_run() {
    if in_private_mounts("check::check_reports_a_full_or_read_only_run") {
        rows::of("mounts").iter().for_each(|row| hold(row, false));
    }
}

#[test]
fn check_reports_missing_privileges() {
    let boot = Boot::whole("lxd");
    let secret = |path: &str, mode| {
        fs::set_permissions(boot.root(path), Permissions::from_mode(mode)).unwrap();
    };
    secret("run/mote", 0o000);
    secret("dev/vport0p1", 0o000);
    // Copy it to where any user may read it: a home directory may be private, as root's is.
    let copy = boot.scratch.0.join("agent-of-all");
    copy_program(&agent(), &copy);
    let ask = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(boot.command(args).get_args()).stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = ask(&["--check"]);
    let root = boot.root("").display().to_string();
    for line in [
        "missing  port: {root}/dev/vport0p1: {denied}: run the agent as root",
        "missing  run: cannot write {root}/run/mote: {denied}; run the agent as root",
        "note     agent: cannot open {root}/run/mote/lock: {denied}; run the command as root",
    ] {
        let line = line.replace("{root}", root.trim_end_matches('/'));
        let line = line.replace("{denied}", "Permission denied (os error 13)");
        assert!(text.lines().any(|other| other == line), "no {line:?} in:\n{text}");
    }
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = ask(&["status"]);
    assert!(code == Some(3) && text.contains("run the command as root"), "{text}");
    assert!(!text.contains("running: no"), "{text}");
    secret("run/mote", 0o700);
}

// `--check` and `status` next to a running agent: they agree with its log and the host's view.

fn intrude(boot: &Boot) {
    let called = boot.client().connect_as(Caller::Untrusted);
    let answer = called.and_then(|mut wire| wire.ask("GET", "/1.0", "", b""));
    assert!(answer.is_err(), "{answer:?}");
}

fn status(boot: &Boot) -> (Option<i32>, Value) {
    let (code, text) = boot.says(&["status", "--json"]);
    let document = serde_json::from_str(&text).unwrap_or_else(|why| panic!("{why}: {text}"));
    (code, document)
}

/// Checks that log, status and check report this, and that the host cannot use the agent.
fn assert_blocked(boot: &Boot, why: &str) {
    boot.logged(&format!("warn: {why}"));
    until("the view", LIMIT, || status(boot).1["last_error"] == why);
    let (code, view) = status(boot);
    assert_eq!((code, &view["blocked"]), (Some(4), &Value::Bool(true)), "{view}");
    assert_eq!(boot.ask(&["status"]), (Some(4), format!("mote-agent: {why}\n")));
    let (code, text) = check(boot.command(&[]), &[]);
    assert!(code == Some(1) && text.starts_with(&format!("missing  agent: {why}\n")), "{text}");
}

#[test]
fn check_distinguishes_an_unread_policy_and_its_sandbox() {
    let (boot, agent) = Boot::running("lxd", &[]);
    let theirs = "note     policy: the running agent's policy differs because of its options or \
                  until SIGHUP: everything is allowed\n";
    let text = check(boot.command(&[]), &[]).1;
    assert!(!text.contains("the running agent's policy differs"), "{text}");
    boot.put("etc/mote-agent.yml", "features: {state: true}\n");
    let text = check(boot.command(&[]), &[]).1;
    contains(&text, &[theirs, "sandbox: would be in a sandbox", "policy: denied: guestapi exec "]);
    kill(Signal::HUP, agent.0.id());
    until("the policy", LIMIT, || !check(boot.command(&[]), &[]).1.contains(theirs));
}

#[test]
fn check_uses_the_running_agents_view() {
    let boot = Boot::whole("lxd");
    let sockets = boot.root("vs").display().to_string();
    let check = |expected: &str, code: i32| {
        let (was, text) = check(bare(&boot), &["--vsock-unix", &sockets]);
        assert!(text.lines().any(|line| line == expected), "no {expected:?} in:\n{text}");
        assert_eq!(was, Some(code), "{text}");
    };
    let mut running = boot.start(&["--deny", "guestapi"]);
    boot.logged("STARTED");
    until("the view", LIMIT, || boot.root("run/mote/status").exists());
    let share = boot.host.share.display().to_string();
    check(&format!("ok       files: read by the running agent: {share}"), 0);
    check("note     agent: the host has not called yet", 0);
    running.kill();
    // Start an agent that waits for its files.
    let nowhere = boot.root("nowhere").display().to_string();
    let mut command = Command::new(agent());
    command.args(["--config-dir", &nowhere, "--root"]).arg(boot.root("")).stderr(Stdio::null());
    let _waiting = Process::start(&mut command);
    until("the view", LIMIT, || boot.text("run/mote/status").contains("waiting"));
    check(&format!("ok       agent: running, waiting for the config files in {nowhere}"), 1);
    let none = "has none of agent.crt, agent.key, server.crt: copy them there";
    check(&format!("missing  agent: {nowhere} {none}"), 1);
    let (code, view) = status(&boot);
    assert_eq!((code, &view["running"]), (Some(0), &Value::Bool(true)), "{view}");
    assert_eq!(view["last_error"], format!("{nowhere} {none}"));
}

/// With the files of another instance, the agent reaches a host, but its own host cannot call it.
#[test]
fn check_reports_a_refused_host() {
    const WHY: &str =
        "refused a caller whose certificate is not server.crt: is this another host's share?";
    let (boot, elsewhere) = (Boot::whole("lxd"), Scratch::new());
    let other = Host::on_sockets(&elsewhere.0, &elsewhere.0.join("vs"), "lxd", &[]);
    fs::copy(other.share.join("server.crt"), boot.host.share.join("server.crt")).unwrap();
    let mut agent = boot.up(&[]);
    let told = boot.client().host_info().unwrap().to_string();
    assert!(boot.client().ask("PUT", "/1.0", &told).is_err());
    assert_blocked(&boot, WHY);
    // The same is true 30 s later: the agent is CONNECTED, but the host does not see it.
    assert_eq!(status(&boot).1["state"], "CONNECTED");
    agent.kill();
    // An untrusted caller comes before the host: the agent is blocked until the host calls.
    let right = boot.host.directory.join("instances/vm1/agent-client.crt");
    fs::copy(right, boot.host.share.join("server.crt")).unwrap();
    let _agent = boot.start(&[]);
    boot.serves();
    until("its view", LIMIT, || status(&boot).1["last_error"].is_null());
    intrude(&boot);
    assert_blocked(&boot, WHY);
    boot.client().announce();
    until("no error", LIMIT, || status(&boot).1["last_error"].is_null());
    let (code, view) = status(&boot);
    assert_eq!((code, &view["blocked"]), (Some(0), &Value::Bool(false)), "{view}");
    assert_eq!(view["called"], true);
    // Afterwards such a call has no effect.
    intrude(&boot);
    exits(check(boot.command(&[]), &[]), Some(0), &["ok       agent: running, CONNECTED\n"]);
}

/// As with another server's port or chardev name: the agent knows the host only from the share.
#[test]
fn check_reports_a_host_that_never_calls() {
    let boot = Boot::whole("lxd");
    let port = Terminal::open(80, 24);
    let _agent = boot.up(&["--port", &port.path()]);
    until("the view", LIMIT, || status(&boot).1["state"] == "CONNECTED");
    let found = boot.root("dev/vport0p1").display().to_string();
    let before = check(boot.command(&[]), &[]);
    for line in [
        format!("ok       port: {found} (lxd)\n"),
        format!("note     port: the running agent uses {}\n", port.path()),
        "note     agent: the host has not called yet\n".to_owned(),
    ] {
        assert!(before.0 == Some(0) && before.1.contains(&line), "{line} in {}", before.1);
    }
    assert_eq!(lines_of(&check(boot.command(&[]), &["--json"])), before.1);
    // The port of a second guest has no reader.
    let unread = Boot::new("lxd");
    let full = Terminal::open(80, 24);
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap();
    let mut fill = File::options().write(true).custom_flags(nonblock).open(full.path()).unwrap();
    while fill.write(b"#").is_ok() {}
    let _blocked = unread.start(&["--port", &full.path()]);
    for (boot, why) in [
        (&boot, "the host has not called: does it read this port (name, chardev)?"),
        (&unread, "the host has not called or read this port: is its chardev connected?"),
    ] {
        assert_blocked(boot, why);
        assert_eq!(boot.log().matches("warn: the host has not called").count(), 1);
        boot.serves();
    }
}

/// With ports of two servers, the agent may have selected the unread one, unless its host calls.
#[test]
fn check_reports_a_doubtful_port_if_calls_are_missing() {
    const WHY: &str = "ports of two servers: using Incus'; if the server is LXD, use --flavour lxd";
    let boot = Boot::whole("incus");
    two_servers(&boot);
    let sockets = boot.scratch.0.join("vs").display().to_string();
    let args = ["--vsock-unix", &sockets, "--config-dir", &boot.host.share.display().to_string()];
    let log = File::create(boot.scratch.0.join("agent.log")).unwrap();
    let _agent = Process::start(bare(&boot).args(args).stdin(Stdio::null()).stderr(log));
    boot.logged(&format!("warn: {WHY}"));
    assert_blocked(&boot, WHY);
    boot.client().announce();
    until("no error", LIMIT, || status(&boot).1["last_error"].is_null());
    exits(check(bare(&boot), &args), Some(0), &[&format!("note     port: {WHY}\n")]);
}

#[test]
fn status_has_the_same_members_for_programs() {
    let boot = Boot::whole("lxd");
    let mut agent = boot.start(&[]);
    boot.serves();
    until("CONNECTED", LIMIT, || status(&boot).1["state"] == "CONNECTED");
    let (code, view) = status(&boot);
    let keys = |view: &Value| -> Vec<_> { view.as_object().unwrap().keys().cloned().collect() };
    let all = keys(&view);
    let expected = "blocked called devlxd files flavour host last_error pid policy port program ready \
                    running since_uptime_ms state version";
    assert_eq!(all.join(" "), expected);
    assert_eq!((code, &view["running"], &view["called"]), (Some(0), &true.into(), &false.into()));
    let numbers = (view["pid"].as_u64(), view["since_uptime_ms"].is_u64());
    assert_eq!(numbers, (Some(agent.0.id().into()), true));
    agent.kill();
    let (code, view) = status(&boot);
    assert_eq!((code, &view["running"], keys(&view)), (Some(3), &false.into(), all));
    assert!(view["state"].is_null() && view["version"].is_string(), "{view}");
    let (_, text) = boot.says(&["status"]);
    contains(&text, &["running: no\n", "pid: -\n", "state: -\n", "host: -\n", "devlxd: -\n"]);
    let (_, text) = boot.ask(&["status"]);
    let was = format!("process {} ended unexpectedly in state CONNECTED", agent.0.id());
    assert!(text.contains(&was), "{text}");
    assert!(Path::new(&boot.root("run/mote/status")).exists());
}
