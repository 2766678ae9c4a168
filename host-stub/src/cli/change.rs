//! Commands that change something; and `wait`, which waits until an agent or its instance is in a
//! state.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::look;
use mote_client::common::printable::word;
use mote_client::daemon::{ask, is_running, order, state};
use mote_client::exec::run::switch_off;
use mote_client::instance::vsock_device;
use mote_client::{complain, store};
use mote_run::args::VmArgs;
use mote_run::boot;
use mote_stub::daemon::fault::{Fault, Kind};

#[derive(Debug, Args)]
pub(crate) struct BootArgs {
    /// The new instance: letters, digits and dashes
    name: String,
    #[command(flatten)]
    vm: VmArgs,
    /// Wait this many seconds for the agent; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 180.0)]
    boot_timeout: f64,
}

#[derive(Debug, Args)]
pub(crate) struct StopArgs {
    /// The instance
    name: String,
    /// End QEMU without waiting for the guest
    #[arg(long, short)]
    force: bool,
    /// Give up after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0)]
    timeout: f64,
}

/// Interval between queries.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn change(root: &Path, name: &str, what: &str, body: &Value) -> Result<()> {
    ask(root, "PATCH", &format!("/1.0/instances/{name}/{what}"), body).map(drop)
}

pub(super) fn object(pairs: Vec<(String, String)>) -> Value {
    pairs.into_iter().map(|(key, value)| (key, json!(value))).collect::<Map<_, _>>().into()
}

/// Boots and returns the exit code. The VM stays if its agent does not connect.
pub(crate) fn boot(root: &Path, BootArgs { name, vm, boot_timeout }: BootArgs) -> Result<u8> {
    boot::boot(root, &name, vm)?;
    if boot_timeout <= 0.0 {
        return Ok(0);
    }
    wait(root, &WaitArgs { name, state: Awaited::Connected, timeout: Some(boot_timeout) })
}

/// Starts the VM that `boot` created, or reports the start of another one to the host.
pub(crate) fn start(root: &Path, name: &str) -> Result<()> {
    if boot::is_ours(root, name) {
        return boot::power_on(root, name);
    }
    order(root, name, "start", &Value::Null).map(drop)
}

pub(crate) fn stop(root: &Path, args: &StopArgs) -> Result<()> {
    let name = &args.name;
    let limit = Duration::try_from_secs_f64(args.timeout)?;
    let begun = Instant::now();
    let is_ordered = if args.force {
        order(root, name, "stop", &json!({"force": true}))?["ordered"] == true
    } else {
        switch_off(root, name, limit)?
    };
    // The monitor ends with the VM. Without a monitor, there is nothing to wait for.
    loop {
        let state = state(root, name)?;
        if !is_ordered || state["status"] == "Stopped" {
            return Ok(());
        }
        if begun.elapsed() >= limit {
            let why = match state["why"]["cause"].as_str() {
                Some("paused") => look::why(&state),
                _ => {
                    "does its guest handle the power button (systemd-logind, acpid, mote as /init)?"
                }
            };
            let after = limit.as_secs_f64();
            bail!("{name} did not power off within {after} s: {why}; --force ends QEMU");
        }
        std::thread::sleep(PAUSE);
    }
}

pub(crate) fn fault(
    root: &Path,
    name: &str,
    kind: Option<Kind>,
    number: Option<u64>,
) -> Result<()> {
    let Some(kind) = kind else {
        let state = state(root, name)?;
        let fault = state["fault"].as_str().unwrap_or("none");
        return Ok(writeln!(stdout(), "active fault: {fault}")?);
    };
    // Check it here first, because this message is better.
    Fault::new(kind, number)?;
    let body = json!({"kind": word(kind), "number": number});
    order(root, name, "fault", &body).map(drop)
}

pub(crate) fn delete(root: &Path, name: &str, force: bool) -> Result<()> {
    if is_running(root) {
        return order(root, name, "delete", &json!({ "force": force })).map(drop);
    }
    // Lock the directory, so that no daemon starts to serve the instance meanwhile.
    let _lock = store::lock(root)?;
    let instance = store::load(root, name)?;
    if instance.is_running() && !force {
        bail!("{name} was running when the host ended; --force removes it");
    }
    vsock_device::end(root, &instance)?;
    store::remove(root, name)
}

/// Exit code on timeout, as with timeout(1).
const LATE: u8 = 124;

/// How long to wait for a daemon to start or restart.
const DAEMON: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub(crate) struct WaitArgs {
    /// The instance
    name: String,
    /// State to wait for
    #[arg(long = "for", value_enum, ignore_case = true, value_name = "STATE")]
    state: Awaited,
    /// Give up after this many seconds (default: never)
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Awaited {
    /// The agent has reported itself
    #[value(name = "STARTED")]
    Started,
    /// The agent and the host reach each other
    #[value(name = "CONNECTED")]
    Connected,
    /// A program in the guest has reported Ready
    #[value(name = "Ready")]
    Ready,
    /// The agent has reported its end, or the VM is off
    #[value(name = "STOPPED")]
    Stopped,
}

impl Awaited {
    fn is_reached(self, state: &Value) -> bool {
        let agent = state["state"].as_str().unwrap_or("");
        match self {
            // CONNECTED implies STARTED.
            Self::Started => matches!(agent, "STARTED" | "CONNECTED"),
            Self::Connected => agent == "CONNECTED",
            Self::Ready => state["status"] == "Ready",
            Self::Stopped => agent == "STOPPED",
        }
    }
}

/// Waits and returns the exit code. Fails if the VM ends first.
pub(crate) fn wait(root: &Path, args: &WaitArgs) -> Result<u8> {
    let limit = args.timeout.map(Duration::try_from_secs_f64).transpose()?;
    let begun = Instant::now();
    let mut answered = begun;
    let mut has_run = false;
    loop {
        let state = match state(root, &args.name) {
            Ok(state) => state,
            // The daemon is starting or restarting.
            Err(_) if !is_running(root) && answered.elapsed() < DAEMON => {
                std::thread::sleep(PAUSE);
                continue;
            }
            Err(error) => return Err(error),
        };
        answered = Instant::now();
        if args.state.is_reached(&state) {
            return Ok(0);
        }
        if is_over(&state["vm"], &mut has_run) {
            bail!("{} is not {}: {}", args.name, word(args.state), look::why(&state));
        }
        if let Some(limit) = limit.filter(|limit| begun.elapsed() >= *limit) {
            // A call shows whether the agent is still there.
            let state = look::asked(root, &args.name).map_or(state, |(state, _)| state);
            let (name, state, why) = (&args.name, word(args.state), look::why(&state));
            complain(&format!("{name} is not {state} after {} s: {why}", limit.as_secs_f64()));
            return Ok(LATE);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether the VM has ended, so that waiting is pointless: it ran since the wait began, or
/// ended at its boot just before. After any other end it may be booted again.
fn is_over(vm: &Value, has_run: &mut bool) -> bool {
    const JUST: u64 = 5000;
    *has_run |= vm["monitor"] == "connected";
    if vm["monitor"] != "silent" || vm["end"].is_null() {
        return false;
    }
    let is_new = vm["end"]["ago_ms"].as_u64().is_some_and(|ago| ago < JUST);
    *has_run || (is_new && vm["end"]["heard"] == false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn accepts_only_a_seen_or_recent_end() {
        let end = |heard: bool, ago: u64| json!({"monitor": "silent", "end": {"reason": "", "heard": heard, "ago_ms": ago}});
        let is_over = |vm: &Value, has_run: bool| is_over(vm, &mut { has_run });
        assert!(!is_over(&json!({"monitor": "silent", "end": null}), true));
        assert!(is_over(&end(true, 10_000), true) && is_over(&end(false, 100), false));
        assert!(!is_over(&end(true, 100), false) && !is_over(&end(false, 10_000), false));
        let mut has_run = false;
        assert!(!super::is_over(&json!({"monitor": "connected", "end": null}), &mut has_run));
        assert!(has_run);
    }
}
