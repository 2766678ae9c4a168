//! `boot` and `start`: VMs that stay.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::{change, wait};
use crate::run::args::VmArgs;
use crate::run::boot;

/// `boot`.
#[derive(Debug, Args)]
pub(crate) struct BootArgs {
    /// The new instance: letters, digits and dashes
    name: String,
    #[command(flatten)]
    vm: VmArgs,
    /// Wait so many seconds for the agent; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 180.0)]
    boot_timeout: f64,
}

/// `start`.
#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// The instance
    name: String,
}

/// Boots; gives the exit code. The VM stays if its agent does not come.
pub(crate) fn run(root: &Path, args: &BootArgs) -> Result<u8> {
    boot::boot(root, &args.name, &args.vm)?;
    if args.boot_timeout <= 0.0 {
        return Ok(0);
    }
    wait::connected(root, &args.name, args.boot_timeout)
}

/// Starts the VM that `boot` has made, or tells the host of another one.
pub(crate) fn start(root: &Path, args: &StartArgs) -> Result<()> {
    if boot::is_ours(root, &args.name) {
        return boot::power_on(root, &args.name);
    }
    change::change(root, "POST", &args.name, "start", &Value::Null)
}
