//! Commands that change something.

use std::io::{Write, stdout};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{look, wait};
use mote_client::common::printable::word;
use mote_client::daemon::{ask, is_running};
use mote_client::instance::{store, vsock_device};
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

/// Interval of the checks of a VM that is to end.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) fn change(
    root: &Path,
    method: &str,
    name: &str,
    what: &str,
    body: &Value,
) -> Result<()> {
    ask(root, method, &format!("/1.0/instances/{name}/{what}"), body).map(drop)
}

pub(super) fn object(pairs: Vec<(String, String)>) -> Value {
    pairs.into_iter().map(|(key, value)| (key, json!(value))).collect::<Map<_, _>>().into()
}

/// Boots and returns the exit code. The VM stays if its agent does not connect.
pub(crate) fn boot(root: &Path, args: &BootArgs) -> Result<u8> {
    boot::boot(root, &args.name, &args.vm)?;
    if args.boot_timeout <= 0.0 {
        return Ok(0);
    }
    wait::connected(root, &args.name, args.boot_timeout)
}

/// Starts the VM that `boot` created, or reports the start of another one to the host.
pub(crate) fn start(root: &Path, name: &str) -> Result<()> {
    if boot::is_ours(root, name) {
        return boot::power_on(root, name);
    }
    change(root, "POST", name, "start", &Value::Null)
}

pub(crate) fn stop(root: &Path, args: &StopArgs) -> Result<()> {
    let (name, body) = (&args.name, json!({"force": args.force}));
    let said = ask(root, "POST", &format!("/1.0/instances/{name}/stop"), &body)?;
    let limit = Duration::try_from_secs_f64(args.timeout)?;
    let begun = Instant::now();
    // The monitor ends with the VM; without one there is nothing to wait for.
    loop {
        let state = look::state(root, name)?;
        if said["ordered"] != true || state["status"] == "Stopped" {
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
        let state = look::state(root, name)?;
        let fault = state["fault"].as_str().unwrap_or("none");
        return Ok(writeln!(stdout(), "active fault: {fault}")?);
    };
    // Checked here first, for the better message.
    Fault::new(kind, number)?;
    let body = json!({"kind": word(kind), "number": number});
    change(root, "POST", name, "fault", &body)
}

pub(crate) fn delete(root: &Path, name: &str, force: bool) -> Result<()> {
    if is_running(root) {
        let target = if force { "delete-running" } else { "delete" };
        return change(root, "POST", name, target, &Value::Null);
    }
    // No daemon may start to serve it meanwhile.
    let _lock = store::lock(root)?;
    let instance = store::load(root, name)?;
    if instance.is_running() && !force {
        bail!("{name} was running when the host ended; --force removes it");
    }
    vsock_device::end(root, &instance)?;
    store::remove(root, name)
}
