//! `qemu`: prints how to boot a VM that finds this host.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;

use mote_client::instance::store;
use mote_vm::recipe::{MEMORY, Recipe, root_disk};

#[derive(Debug, Args)]
pub(crate) struct QemuArgs {
    /// The instance
    name: String,
    /// Memory of the VM, MiB
    #[arg(long, value_name = "MIB", default_value_t = MEMORY)]
    memory: u32,
    /// Boot from this disk image instead of a kernel and an initrd; without =FORMAT it is raw, or
    /// qcow2 if it is named so
    #[arg(long, value_name = "FILE[=FORMAT]", value_hint = clap::ValueHint::FilePath)]
    disk: Option<String>,
    /// Attach a directory with user-data and meta-data as a disk, for cloud-init without its LXD
    /// data source
    #[arg(long, value_name = "DIR")]
    seed: Option<PathBuf>,
    /// Print only QEMU's arguments, one per line
    #[arg(long)]
    args: bool,
}

pub(crate) fn run(root: &Path, args: &QemuArgs) -> Result<()> {
    let instance = store::load(root, &args.name)?;
    let share = std::path::absolute(store::share(root, &args.name))?;
    let mut recipe = Recipe::of(root, &instance, &share);
    recipe.memory = args.memory;
    recipe.disk = args.disk.as_deref().map(root_disk).transpose()?;
    recipe.seed = args.seed.as_ref().map(std::path::absolute).transpose()?;
    if !args.args {
        return Ok(write!(stdout(), "{recipe}")?);
    }
    for argument in recipe.arguments() {
        writeln!(stdout(), "{argument}")?;
    }
    Ok(())
}
