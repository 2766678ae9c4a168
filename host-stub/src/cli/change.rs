//! Commands that change something.

use std::io::{Write, stdout};
use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::look;
use crate::common::pair::pair;
use crate::control::client::{ask, is_running};
use crate::daemon::fault::{self, Fault};
use crate::instance::{store, vsock_device};

/// `set`.
#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The instance
    name: String,
    /// What to set
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
    pairs: Vec<(String, String)>,
}

/// `unset`.
#[derive(Debug, Args)]
pub(crate) struct UnsetArgs {
    /// The instance
    name: String,
    /// What to remove
    key: String,
}

/// `device-add`.
#[derive(Debug, Args)]
pub(crate) struct DeviceAddArgs {
    /// The instance
    name: String,
    /// The device
    device: String,
    /// Its configuration, for example type=disk path=/mnt
    #[arg(value_name = "KEY=VALUE", value_parser = pair)]
    config: Vec<(String, String)>,
}

/// `device-remove`.
#[derive(Debug, Args)]
pub(crate) struct DeviceRemoveArgs {
    /// The instance
    name: String,
    /// The device
    device: String,
}

/// `fault`.
#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// The instance
    name: String,
    /// What to do wrong
    #[arg(value_parser = fault::KINDS.map(|(kind, _)| kind))]
    kind: Option<String>,
    /// For how long, or how late; see below
    number: Option<u64>,
}

/// `delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArgs {
    /// The instance
    name: String,
    /// Even if its VM runs
    #[arg(long, short)]
    force: bool,
}

fn change(root: &Path, method: &str, name: &str, what: &str, body: &Value) -> Result<()> {
    ask(root, method, &format!("/1.0/instances/{name}/{what}"), body).map(drop)
}

fn object(pairs: Vec<(String, String)>) -> Value {
    pairs.into_iter().map(|(key, value)| (key, json!(value))).collect::<Map<_, _>>().into()
}

/// `set`.
pub(crate) fn set(root: &Path, args: SetArgs) -> Result<()> {
    change(root, "PATCH", &args.name, "config", &object(args.pairs))
}

/// `unset`.
pub(crate) fn unset(root: &Path, args: &UnsetArgs) -> Result<()> {
    change(root, "PATCH", &args.name, "config", &json!({ &args.key: null }))
}

/// `device-add`.
pub(crate) fn device_add(root: &Path, args: DeviceAddArgs) -> Result<()> {
    let body = json!({"name": args.device, "config": object(args.config)});
    change(root, "PATCH", &args.name, "devices", &body)
}

/// `device-remove`.
pub(crate) fn device_remove(root: &Path, args: &DeviceRemoveArgs) -> Result<()> {
    let body = json!({"name": args.device, "config": null});
    change(root, "PATCH", &args.name, "devices", &body)
}

/// `start` and `stop`.
pub(crate) fn power(root: &Path, name: &str, which: &str) -> Result<()> {
    change(root, "POST", name, which, &Value::Null)
}

/// `fault`.
pub(crate) fn fault(root: &Path, args: &FaultArgs) -> Result<()> {
    let Some(kind) = &args.kind else {
        let state = look::known(root, &args.name).with_context(|| {
            let kinds = fault::KINDS.map(|(kind, _)| kind).join(", ");
            format!("fault NAME KIND sets one of {kinds}")
        })?;
        let fault = state["fault"].as_str().unwrap_or("none");
        return Ok(writeln!(stdout(), "fault in force: {fault}\n\n{}", fault::HELP)?);
    };
    // Before anybody is asked: what is wrong with it is known here.
    Fault::parse(kind, args.number)?;
    let body = json!({"kind": kind, "number": args.number});
    change(root, "POST", &args.name, "fault", &body)
}

/// `delete`.
pub(crate) fn delete(root: &Path, args: &DeleteArgs) -> Result<()> {
    if is_running(root) {
        let target = if args.force { "delete-running" } else { "delete" };
        return change(root, "POST", &args.name, target, &Value::Null);
    }
    // No daemon may begin to serve it meanwhile.
    let _lock = store::lock(root)?;
    let instance = store::load(root, &args.name)?;
    if instance.is_running() && !args.force {
        bail!("{} was running when the host ended; --force removes it", args.name);
    }
    vsock_device::end(root, &instance)?;
    store::remove(root, &args.name)
}
