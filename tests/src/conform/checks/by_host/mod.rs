//! `mote-host` as a user of the server runs it. The Go agents prove that the host is correct, and
//! mote must give the same results.

use std::process::ChildStdout;

use rustix::process::{Pid, kill_process};

use crate::conform::prelude::*;

pub(super) mod commands;
pub(super) mod files;

// These run alone: they inspect operations and processes, and transfer large amounts.
const COMMANDS: Group = Group::new("By mote-host: commands", "P§4.1").alone();
const FILES: Group = Group::new("By mote-host: files", "P§4.4").alone();
const REPORTS: Group = Group::new("By mote-host: state, metrics, port-forward", "P§4.5").alone();

const SOON: Duration = Duration::from_secs(60);

/// Returns the exit code after SIGKILL. Go agents up to LXD 5.0 and Incus 6.0 report -1.
fn killed(agent: &Agent) -> i32 {
    if agent.column.is_mote() { 137 } else { 255 }
}

fn much(agent: &Agent) -> usize {
    agent.column.pick(64 << 20, 8 << 20)
}

fn host(agent: &Agent, args: &[&str], input: &[u8]) -> Try<Output> {
    let mut command = agent.command(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bounded(&mut command).map_err(|error| format!("mote-host: {error}"))?;
    let stdin = child.stdin.take();
    thread::scope(|threads| {
        // The command may end without reading its input.
        threads.spawn(move || stdin.map(|mut stdin| stdin.write_all(input).ok()));
        child.wait_with_output().map_err(|error| error.to_string())
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn exec(agent: &Agent, args: &[&str], input: &str) -> Try<(i32, String, String)> {
    let output = host(agent, &[&["exec", "-T"], args].concat(), input.as_bytes())?;
    Ok((output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr)))
}

fn sh(agent: &Agent, script: &str) -> Try<(i32, String, String)> {
    exec(agent, &[NAME, "--", "sh", "-c", script], "")
}

fn fails(agent: &Agent, args: &[&str]) -> Try<String> {
    let output = host(agent, args, b"")?;
    if output.status.success() {
        Err(format!("{args:?} succeeds"))
    } else {
        Ok(text(&output.stderr))
    }
}

/// Starts a command in the guest with pipes and without input, and waits for this output.
fn started(agent: &Agent, args: &[&str], word: &str) -> Try<(Child, ChildStdout)> {
    let mut command = agent.command(&[&["exec", "-T", "-n"], args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bounded(&mut command).map_err(|error| format!("mote-host: {error}"))?;
    let mut output = child.stdout.take().ok_or("no pipe")?;
    let mut said = vec![0; word.len()];
    output.read_exact(&mut said).map_err(|error| format!("no {word:?}: {error}"))?;
    if said == word.as_bytes() {
        Ok((child, output))
    } else {
        Err(format!("it says {:?}", text(&said)))
    }
}

fn ended(child: &mut Child, what: &str) -> Try<Option<i32>> {
    match found(SOON, || child.try_wait().transpose()) {
        Some(status) => Ok(status.map_err(|error| error.to_string())?.code()),
        None => {
            let _killed = child.kill().and_then(|()| child.wait());
            Err(format!("{what}: no end within {} s", SOON.as_secs()))
        }
    }
}

fn signal(child: &Child, signal: Signal) -> Try {
    kill_process(Pid::from_child(child), signal).map_err(|error| format!("{signal:?}: {error}"))
}
