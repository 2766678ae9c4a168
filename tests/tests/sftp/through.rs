//! Through the agent: OpenSSH's client at the host's end of TLS, a server for each session.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mote_tests::agent::Pair;
use mote_tests::host::NAME;
use mote_tests::{tool, wait};

use crate::openssh::{assert_same, batch, big_file};

/// A host and an agent that know each other.
fn known(flavour: &str) -> Pair {
    let pair = Pair::start(flavour, &[]);
    let look = || pair.host.try_run(&["file", "stat", NAME, "/"]).ok();
    wait("the host to know it", Duration::from_secs(10), look);
    gone(&pair);
    pair
}

/// How `sftp` reaches the agent.
fn by_host(pair: &Pair) -> String {
    let host = tool("MOTE_HOST", "target/debug/mote-host");
    format!("{} --dir {} sftp {NAME}", host.display(), pair.host.directory.display())
}

/// The servers that the agent has started.
fn servers(pair: &Pair) -> Vec<u32> {
    let agent = pair.agent.0.id();
    let children = fs::read_to_string(format!("/proc/{agent}/task/{agent}/children")).unwrap();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

fn gone(pair: &Pair) {
    wait("the servers' end", Duration::from_secs(10), || servers(pair).is_empty().then_some(()));
}

#[test]
fn a_file_comes_and_goes_whole_and_the_agent_stays_small() {
    let mut pair = known("incus");
    let here = pair.scratch.0.join("here");
    fs::create_dir(&here).unwrap();
    big_file(&here.join("big"), (128 << 20) + 77);
    let there = pair.scratch.0.join("there");
    let before = pair.memory("VmHWM");
    let timed = |lines: &str| {
        let begun = Instant::now();
        batch(&here, &by_host(&pair), &[], lines);
        128.0 / begun.elapsed().as_secs_f64()
    };
    let put = timed(&format!("put big {}", there.display()));
    assert_same(&here.join("big"), &there);
    let get = timed(&format!("get {} back", there.display()));
    assert_same(&there, &here.join("back"));
    let after = pair.memory("VmHWM");
    println!("128 MiB through TLS: put {put:.0} MiB/s, get {get:.0} MiB/s; {before} to {after} kB");
    assert!(after < before + 1024, "{before} kB grew to {after} kB");
    gone(&pair);
    pair.assert_alive();
}

#[test]
fn relative_paths_begin_where_each_server_s_own_agent_has_them() {
    let pair = known("incus");
    assert!(batch(Path::new("/"), &by_host(&pair), &[], "pwd\n").contains("directory: /\n"));
    let pair = known("lxd");
    let printed = batch(Path::new("/"), &by_host(&pair), &[], "pwd\n");
    let agent = fs::read_link(format!("/proc/{}/cwd", pair.agent.0.id())).unwrap();
    assert!(printed.contains(&format!("directory: {}\n", agent.display())), "{printed}");
}

#[test]
fn a_session_that_hangs_holds_up_nobody_and_is_killed_when_its_client_goes() {
    let mut pair = known("lxd");
    let host = pair.host.directory.to_str().unwrap().to_owned();
    // Its input stays open: it waits for requests.
    let mut waiting = Command::new(tool("MOTE_HOST", "target/debug/mote-host"))
        .args(["--dir", &host, "sftp", NAME])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let limit = Duration::from_secs(10);
    let (server, _) = wait("a server", limit, || {
        let server = servers(&pair).first().copied()?;
        let words = fs::read_to_string(format!("/proc/{server}/cmdline")).ok()?;
        words.ends_with("sftp-server\0").then_some(server)
    });
    // As on a mount whose server is gone, from where it can only be killed.
    let stopped = Command::new("kill").args(["-STOP", &server.to_string()]).status().unwrap();
    assert!(stopped.success());
    assert!(batch(Path::new("/"), &by_host(&pair), &[], "pwd\n").contains("directory: "));
    pair.assert_alive();
    wait("the other server's end", limit, || (servers(&pair) == [server]).then_some(()));
    waiting.kill().unwrap();
    waiting.wait().unwrap();
    gone(&pair);
    pair.assert_alive();
}
