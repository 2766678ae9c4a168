//! The SFTP server, driven by OpenSSH's client and by packets that no client sends.
#![allow(clippy::unwrap_used, reason = "what fails in a test's set-up fails the test")]

use mote_tests::prelude::*;
use mote_tests::sftp::{Reply, Session};

mod limits;
mod requests;
mod rights;

pub(crate) const FAILURE: Reply = Reply::Status(4);
pub(crate) const UNSUPPORTED: Reply = Reply::Status(8);

fn session() -> (Scratch, Session) {
    let scratch = Scratch::new();
    let session = Session::start(&scratch.0);
    (scratch, session)
}

// SFTP through the agent: OpenSSH's client at the host, over TLS, with one server per session.

fn known(flavour: &str) -> Pair {
    let pair = Pair::start(flavour, &[]);
    pair.host.ok(&["file", "stat", NAME, "/"]);
    gone(&pair);
    pair
}

fn by_host(pair: &Pair) -> String {
    let host = tool("MOTE_HOST", "target/debug/mote-host");
    format!("{} --dir {} sftp {NAME}", host.display(), pair.host.directory.display())
}

fn servers(pair: &Pair) -> Vec<u32> {
    proc::children(pair.agent.0.id())
}

fn by_agent(pair: &Pair) -> Process {
    let mut command = pair.host.command(&["sftp", NAME]);
    Process::bounded(command.stdin(Stdio::piped()).stdout(Stdio::null()))
}

/// Stops the one server that is not in `others`, as if its mount hung: only SIGKILL ends it.
fn hung(pair: &Pair, others: &[u32]) -> u32 {
    let (server, _) = wait("a server", Duration::from_secs(10), || {
        let server = servers(pair).into_iter().find(|server| !others.contains(server))?;
        let words = fs::read_to_string(format!("/proc/{server}/cmdline")).ok()?;
        words.ends_with("sftp-server\0").then_some(server)
    });
    kill(Signal::STOP, server);
    server
}

fn gone(pair: &Pair) {
    until("the servers' end", Duration::from_secs(10), || servers(pair).is_empty());
}

/// Limit for an upload's page faults: buffers are mapped again after each pause of the sender.
const FAULTS: u64 = 4000;

#[test]
fn transfers_a_file_while_the_agent_stays_small() {
    let mut pair = known("incus");
    let here = pair.scratch.0.join("here");
    fs::create_dir(&here).unwrap();
    big_file(&here.join("big"), (128 << 20) + 77);
    let there = pair.scratch.0.join("there");
    let before = pair.memory("VmHWM");
    let faults = proc::page_faults(pair.agent.0.id());
    batch(&here, &by_host(&pair), &format!("put big {}", there.display()));
    let faults = proc::page_faults(pair.agent.0.id()) - faults;
    assert_same(&here.join("big"), &there);
    batch(&here, &by_host(&pair), &format!("get {} back", there.display()));
    assert_same(&there, &here.join("back"));
    let after = pair.memory("VmHWM");
    assert!(after < before + 1024, "{before} kB grew to {after} kB");
    // 128 MiB are 8,192 TLS records; a new buffer for each costs two system calls and five pages.
    assert!(faults < FAULTS, "{faults} page faults: buffers are mapped again for each record");
    gone(&pair);
    pair.assert_alive();
}

#[test]
fn kills_a_hanging_session_when_its_client_disconnects() {
    let mut pair = known("lxd");
    let mut waiting = by_agent(&pair);
    let limit = Duration::from_secs(10);
    let server = hung(&pair, &[]);
    assert!(batch(Path::new("/"), &by_host(&pair), "pwd\n").contains("directory: "));
    pair.assert_alive();
    until("the other server's end", limit, || servers(&pair) == [server]);
    waiting.kill();
    gone(&pair);
    pair.assert_alive();
}

#[test]
fn a_hanging_uploads_place_is_freed_after_its_client_leaves() {
    const PLACES: usize = 64;
    let pair = known("lxd");
    // Idle sessions occupy all slots except one.
    let waiting: Vec<_> = (1..PLACES).map(|_| by_agent(&pair)).collect();
    let limit = Duration::from_secs(60);
    let all = || Some(servers(&pair)).filter(|servers| servers.len() == waiting.len());
    let (others, _) = wait("all servers", limit, all);
    let mut upload = by_agent(&pair);
    let server = hung(&pair, &others);
    let (mut input, (sender, sent)) = (upload.0.stdin.take().unwrap(), mpsc::channel());
    thread::spawn(move || while input.write_all(&[0; 4096]).is_ok() && sender.send(()).is_ok() {});
    // All buffers on the way to the server are full.
    while sent.recv_timeout(Duration::from_secs(2)).is_ok() {}
    let ask = || pair.host.try_run(&["file", "stat", NAME, "/"]);
    assert!(ask().is_err_and(|why| why.contains("Too many SFTP sessions")));
    upload.kill();
    // Up to 10 s until the agent checks, 2 s for SIGTERM, and 5 s for the server.
    wait("a free place", Duration::from_secs(25), || ask().ok());
    assert!(!servers(&pair).contains(&server));
}

fn batch(here: &Path, server: &str, lines: &str) -> String {
    let mut client = Command::new("sftp");
    client.args(["-b", "-", "-D", server]).current_dir(here).stdin(Stdio::piped());
    let mut client = bounded(client.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
    client.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = client.wait_with_output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    // The server's log has audit lines.
    assert!(errors.lines().all(|line| line.contains("info: audit: ")), "{printed}{errors}");
    printed
}

/// Creates a sparse file with short pieces that contain their own offset.
fn big_file(path: &Path, size: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for offset in (0..size - 16).step_by(64 * 1024) {
        file.write_all_at(format!("{offset:016x}").as_bytes(), offset).unwrap();
    }
    file.write_all_at(b"the end", size - 7).unwrap();
}

fn assert_same(a: &Path, b: &Path) {
    let (mut a, mut b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let size = a.metadata().unwrap().len();
    assert_eq!(size, b.metadata().unwrap().len());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut compared = 0;
    while compared < size {
        let count = a.read(&mut left).unwrap();
        b.read_exact(&mut right[..count]).unwrap();
        assert!(left[..count] == right[..count], "they differ after byte {compared}");
        compared += u64::try_from(count).unwrap();
    }
}

#[test]
fn errors_name_the_side_once() {
    let pair = Pair::start("lxd", &[]);
    let fails = |args: &[&str]| pair.host.try_run(args).unwrap_err();
    let directory = pair.scratch.0.join("files").display().to_string();
    let here = format!("{directory}/f1");
    put(&here, "content");
    let lacking = format!("{directory}/missing/f");
    let error = fails(&["file", "push", NAME, &here, &lacking]);
    let expected =
        format!("mote-host: the guest has no directory {directory}/missing; -p creates it\n");
    assert_eq!(error, expected);
    let error = fails(&["file", "push", NAME, "/no/such/file", &lacking]);
    assert_eq!(error, "mote-host: /no/such/file: No such file or directory\n");
    let error = fails(&["file", "pull", NAME, &lacking, "-"]);
    assert_eq!(error, format!("mote-host: in the guest, {lacking}: no such file or directory\n"));
}
