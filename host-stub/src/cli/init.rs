//! Commands that work on the directory: `init` creates an instance, `qemu` prints the QEMU options of
//! a VM that reaches this host, and `daemon` runs the host until a signal ends it.

use std::collections::BTreeMap;
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use mote_client::common::printable::{pair, to_stderr};
use mote_client::daemon::{is_running, order};
use mote_client::instance::store::{self, create};
use mote_client::instance::{VSOCK_ID, identity};
use mote_client::net::slots;
use mote_client::{Channel, Flavour, Instance, Vsock, random};
use mote_stub::control::{self, Host};
use mote_stub::daemon::Daemon;
use mote_vm::recipe::{MEMORY, Recipe, YOURS, root_disk};

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The new instance: letters, digits and dashes
    name: String,
    /// The server to emulate
    #[arg(long, value_enum, default_value = "lxd")]
    flavour: Flavour,
    /// Reach the guest through vhost-device-vsock's socket PATH (default: vsock in the instance's
    /// directory)
    #[arg(long, value_name = "PATH", group = "vsock")]
    vsock_uds: Option<PathBuf>,
    /// Reach an agent without a VM through unix sockets (mote-agent --vsock-unix PREFIX)
    #[arg(long, value_name = "PREFIX", group = "vsock")]
    vsock_plain: Option<PathBuf>,
    /// The guest's context id; reaches the guest through the kernel's vsock unless another option
    /// is given
    #[arg(long, value_name = "CID", value_parser = context_id)]
    vsock_cid: Option<u32>,
    /// Read the status port from a ring buffer through QEMU's monitor PATH (default: qmp in the
    /// instance's directory)
    #[arg(long, value_name = "PATH", group = "channel")]
    qmp: Option<PathBuf>,
    /// Read and write the status port through a socket or terminal device (the CONNECT dialect)
    #[arg(long, value_name = "PATH", group = "channel")]
    serial: Option<PathBuf>,
    /// Send every byte of the status port back, as shared memory would (with --serial)
    #[arg(long)]
    shared_memory: bool,
    /// Set a configuration value: user.greeting=hello, or for cloud-init
    /// cloud-init.user-data="$(cat FILE)", vendor-data or network-config
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    config: Vec<(String, String)>,
}

/// Creates the instance. Prints its share on stdout, for programs, and how to boot it on stderr,
/// for people.
pub(crate) fn run(root: &Path, args: InitArgs) -> Result<()> {
    let instance = described(root, args)?;
    let share = create(root, &instance)?;
    writeln!(stdout(), "{}", share.display())?;
    to_stderr(format_args!("{}", Recipe::of(root, &instance, &share)));
    // Inform a running daemon. If none runs, or it is about to end, the next one finds the
    // instance.
    if is_running(root)
        && let Err(error) = order(root, &instance.name, "adopt", &Value::Null)
        && is_running(root)
    {
        return Err(error);
    }
    Ok(())
}

fn described(root: &Path, args: InitArgs) -> Result<Instance> {
    // The daemon that uses the paths may run in another directory.
    let path =
        |path: PathBuf| std::path::absolute(&path).with_context(|| path.display().to_string());
    let beside = |name: &str| path(store::directory(root, &args.name).join(name));
    let mut config = identity();
    if let Some(cid) = args.vsock_cid {
        config.insert(VSOCK_ID.to_owned(), cid.to_string());
    }
    let vsock = match (args.vsock_uds, args.vsock_plain, args.vsock_cid) {
        // clap accepts only one of the options.
        (Some(uds), ..) => Vsock::Uds(path(uds)?),
        (None, Some(prefix), _) => Vsock::Plain(path(prefix)?),
        (None, None, Some(cid)) => Vsock::Cid(cid),
        (None, None, None) => Vsock::Uds(beside("vsock")?),
    };
    let shared = args.shared_memory;
    let channel = match (args.qmp, args.serial) {
        (_, None) if shared => bail!("--shared-memory needs --serial"),
        (Some(qmp), _) => Channel::Qmp(path(qmp)?),
        (None, Some(serial)) => Channel::Serial { path: path(serial)?, shared },
        (None, None) => Channel::Qmp(beside("qmp")?),
    };
    config.extend(args.config);
    fits(&vsock, &channel)?;
    Ok(Instance {
        name: args.name,
        flavour: args.flavour,
        vsock,
        channel,
        config,
        devices: BTreeMap::new(),
    })
}

/// Parses a context id. The first three are reserved (P§3.2).
fn context_id(text: &str) -> Result<u32> {
    let id = text.parse().ok().filter(|id| *id > 2);
    id.with_context(|| format!("{text} is not a guest's context id: the lowest is 3"))
}

/// Checks that socket paths are short enough. The host's own path ends with a port number.
fn fits(vsock: &Vsock, channel: &Channel) -> Result<()> {
    const MAX_SOCKET_PATH: usize = 107;
    const PORT: usize = "_65535".len();
    if let Vsock::Uds(path) = vsock
        && path.as_os_str().as_encoded_bytes().contains(&b',')
    {
        let path = path.display();
        bail!(
            "{path}: vhost-device-vsock accepts no path with a comma: choose another with --vsock-uds"
        );
    }
    let way = match vsock {
        Vsock::Uds(path) | Vsock::Plain(path) => Some((path, PORT, "--vsock-uds")),
        Vsock::Cid(_) => None,
    };
    let status = match channel {
        // The second monitor has a suffix.
        Channel::Qmp(path) => (path, YOURS.len(), "--qmp"),
        Channel::Serial { path, .. } => (path, 0, "--serial"),
    };
    for (path, more, option) in way.into_iter().chain([status]) {
        let length = path.as_os_str().len() + more;
        if length > MAX_SOCKET_PATH {
            let path = path.display();
            bail!(
                "{path} is too long for a socket ({length} of {MAX_SOCKET_PATH} bytes): choose another \
                 with {option}"
            );
        }
    }
    Ok(())
}

#[derive(Debug, Args)]
pub(crate) struct QemuArgs {
    /// The instance
    name: String,
    /// Memory of the VM, in MiB
    #[arg(long, value_name = "MIB", default_value_t = MEMORY)]
    memory: u32,
    /// Boot from this disk image instead of a kernel and an initrd; without =FORMAT it is raw, or
    /// qcow2 if its name ends in .qcow2
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

pub(crate) fn qemu(root: &Path, args: &QemuArgs) -> Result<()> {
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

#[derive(Debug, Args)]
pub(crate) struct DaemonArgs {
    /// End when the last instance is deleted
    #[arg(long)]
    until_empty: bool,
}

pub(crate) fn daemon(root: &Path, args: &DaemonArgs) -> Result<()> {
    let _lock = store::lock(root)?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let daemon = Daemon::new(root, random::port(), None)?;
    let ending = daemon.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            ending.unbind();
            #[expect(clippy::exit, reason = "the other threads wait for sockets forever")]
            std::process::exit(0);
        }
    });
    slots::raise_descriptor_limit();
    daemon.log(&format!("listening on vsock port {}", daemon.port));
    let host = Host::new(daemon)?;
    if args.until_empty {
        end_when_empty(host.clone());
    }
    control::serve(&host).context("control socket")
}

/// Ends this process when the last instance is deleted, or if none is created.
fn end_when_empty(host: Arc<Host>) {
    const LOOK: Duration = Duration::from_millis(200);
    const FIRST: Duration = Duration::from_secs(30);
    std::thread::spawn(move || {
        let begun = Instant::now();
        let (mut had_some, mut had_none) = (false, false);
        loop {
            std::thread::sleep(LOOK);
            // Keep the lock to the end, or an instance that is added meanwhile would be lost.
            let all = host.daemon.instances();
            let has_none = all.is_empty();
            // By the second check, the deletion of the last instance has been answered.
            if has_none && had_none && (had_some || begun.elapsed() > FIRST) {
                host.daemon.unbind();
                #[expect(clippy::exit, reason = "the other threads wait for sockets forever")]
                std::process::exit(0);
            }
            had_some |= !has_none;
            had_none = has_none;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Instance> {
        described(Path::new("/d"), mote_client::printable::parsed(line)?)
    }

    #[test]
    fn rejects_paths_that_are_too_long_for_a_socket() {
        let long = "x".repeat(102);
        let error = parsed(&format!("vm1 --vsock-uds /{long}")).unwrap_err().to_string();
        assert!(error.contains("107 bytes") && error.contains("--vsock-uds"), "{error}");
        assert!(parsed(&format!("vm1 --qmp /{}", &long[YOURS.len() + 2..])).is_ok());
        assert!(parsed(&format!("vm1 --qmp /{long}")).is_err());
    }

    #[test]
    fn rejects_contradictory_options() {
        for line in [
            "vm1 --flavour lxc --vsock-plain /p --qmp /q",
            "vm1 --flavour lxd --vsock-plain /p --vsock-uds /u --qmp /q",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --serial /s",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --shared-memory",
            "vm1 --flavour lxd --vsock-plain /p --shared-memory",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --vsock-cid 2",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --config novalue",
            "vm1 extra --flavour lxd --vsock-plain /p --qmp /q",
            "--flavour lxd --vsock-plain /p --qmp /q",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }
}
