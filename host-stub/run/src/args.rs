//! Arguments of `run` and `boot`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, ValueHint};

use super::share::Share;
use crate::accel::Accel;
use mote_client::Flavour;
use mote_client::common::printable::pair;

#[derive(Clone, Debug, Args)]
pub struct VmArgs {
    /// Boot this kernel. If given several times, each runs in its own VM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kernel: Vec<PathBuf>,
    /// Use this initramfs: one for all kernels, or one per kernel in the same order
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub initrd: Vec<PathBuf>,
    /// Add words to the kernel's command line, which contains console=, panic=-1 and quiet
    #[arg(long, value_name = "WORDS", requires = "kernel", allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// Add an agent to the initramfs, which needs a /bin/sh; it starts before the initramfs' /init
    #[arg(long, value_name = "FILE", requires = "initrd", value_hint = ValueHint::FilePath)]
    pub mote: Option<PathBuf>,
    /// Use this root disk. Without =FORMAT it is raw, or qcow2 if its name ends in .qcow2. Without
    /// --kernel the VM boots from it
    #[arg(long, value_name = "FILE[=FORMAT]", value_hint = ValueHint::FilePath)]
    pub disk: Option<String>,
    /// Write to the disk's file; otherwise it is not changed
    #[arg(long, requires = "disk")]
    pub write: bool,
    /// Pass this file to cloud-init, on its own disk
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub user_data: Option<PathBuf>,
    /// Set a configuration value that the guest sees: user.greeting=hello
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub config: Vec<(String, String)>,
    /// Share a directory with the guest, at the same path or at GUEST: by virtiofs or 9p, or as a
    /// copy if the guest supports neither. With :ro the guest cannot write
    #[arg(long, value_name = "DIR[:GUEST][:ro]", value_parser = Share::parse)]
    pub share: Vec<Share>,
    #[command(flatten)]
    pub hardware: HardwareArgs,
}

#[derive(Clone, Debug, Args)]
pub struct HardwareArgs {
    /// Memory, in MiB [default: 256 with a kernel, 512 with a disk]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Processors [default: 2 with KVM, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// The accelerator
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = false,
        env = "MOTE_HOST_ACCEL",
        hide_env_values = true
    )]
    pub accel: Accel,
    /// The machine
    #[arg(long, value_enum, default_value_t)]
    pub machine: MachineKind,
    /// Architecture of the processor [default: this machine's]
    #[arg(long, value_enum)]
    pub arch: Option<Arch>,
    /// The network
    #[arg(long, value_enum, default_value_t)]
    pub network: Network,
    /// Add arguments for QEMU, split as in a shell
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, value_parser = words)]
    pub qemu_arg: Vec<Words>,
    /// QEMU's program [default: qemu-system-ARCH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub qemu: Option<PathBuf>,
    /// The server to emulate
    #[arg(long, value_enum, default_value = "lxd")]
    pub flavour: Flavour,
}

/// Words split from one argument.
#[derive(Clone, Debug)]
pub struct Words(pub Vec<String>);

fn words(text: &str) -> Result<Words> {
    Ok(Words(shell_words::split(text)?))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// A PC
    #[value(name = "x86_64")]
    X86,
    /// QEMU's virt machine
    #[value(name = "aarch64")]
    Aarch64,
    /// QEMU's virt machine
    #[value(name = "riscv64")]
    Riscv64,
}

impl Arch {
    pub fn ours() -> Self {
        match std::env::consts::ARCH {
            "aarch64" => Self::Aarch64,
            "riscv64" => Self::Riscv64,
            _ => Self::X86,
        }
    }

    pub fn terminal(self) -> &'static str {
        if self == Self::Aarch64 { "ttyAMA0" } else { "ttyS0" }
    }

    /// Returns QEMU's option for the firmware that boots a disk, if QEMU does not include one.
    pub fn firmware(self) -> Option<&'static str> {
        match self {
            Self::X86 => None,
            Self::Aarch64 => Some("-bios QEMU_EFI.fd' (Debian: qemu-efi-aarch64)"),
            Self::Riscv64 => Some("-kernel uboot.elf' (Debian: u-boot-qemu)"),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum MachineKind {
    /// With PCI: q35, or virt for ARM and RISC-V
    #[default]
    Pci,
    /// Without PCI and SMBIOS: virtio-mmio, on QEMU's microvm (x86_64) or virt
    Microvm,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// No NIC
    #[default]
    None,
    /// A NIC with DHCP; through QEMU the guest reaches what this machine can reach
    User,
}

// A comment of a flattened struct would replace the command's in its help.
#[derive(Clone, Debug, Args)]
pub struct RunArgs {
    #[command(flatten)]
    pub(crate) vm: VmArgs,
    #[command(flatten)]
    pub(crate) limits: Limits,
    #[command(flatten)]
    pub(crate) job: JobArgs,
    /// Print QEMU's command line and run nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) reports: Reports,
    /// Run this many VMs at the same time, if there are several kernels
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) jobs: u32,
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Limits {
    /// End the command this many seconds after its start, with exit code 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Wait this many seconds for the agent [default: 60 with KVM, else 180]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub boot_timeout: Option<Duration>,
}

#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "clap represents a switch as a bool")]
pub(crate) struct JobArgs {
    /// Give the command a terminal
    #[arg(short = 't', long)]
    pub terminal: bool,
    /// Set a variable in the command's environment; without =VALUE, to its value here
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Run the command in this directory [default: /root]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Run it as this user id and group id (default group id: the same number)
    #[arg(long, value_name = "ID[:ID]", value_parser = user)]
    pub user: Option<(u32, u32)>,
    /// Copy a file or directory into the guest before the command
    #[arg(long, value_name = "PATH:GUEST", value_parser = pushed)]
    pub push: Vec<(String, String)>,
    /// Copy a file or directory from the guest after the command, whatever its exit code; PATH must
    /// not contain symbolic links
    #[arg(long, value_name = "GUEST:PATH", value_parser = pulled)]
    pub pull: Vec<(String, String)>,
    /// Keep the VM after the command, until Ctrl-C; prints how to reach it
    #[arg(long)]
    pub keep: bool,
    /// If the command fails, open a shell in the VM
    #[arg(long)]
    pub shell_on_failure: bool,
    /// Command to run, with its arguments
    #[arg(required_unless_present = "dry_run", trailing_var_arg = true)]
    pub command: Vec<String>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct Reports {
    /// Show the VM's console on stderr, with more kernel messages
    #[arg(short, long)]
    pub verbose: bool,
    /// Write the VM's console to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub console: Option<PathBuf>,
    /// Write the host's log to this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Write the result and the duration of each phase to this file (JSON)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub result: Option<PathBuf>,
    /// Write the result to this file (JUnit)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
}

impl Limits {
    /// Returns how long the agent may take to start.
    pub(crate) fn boot(self, accel: Accel) -> Duration {
        self.boot_timeout.unwrap_or(if accel == Accel::Kvm { BOOT } else { BOOT_WITH_TCG })
    }
}

/// Time for the agent to start.
const BOOT: Duration = Duration::from_secs(60);
const BOOT_WITH_TCG: Duration = Duration::from_secs(180);

fn seconds(text: &str) -> Result<Duration> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e9);
    let seconds = seconds.map(Duration::from_secs_f64);
    seconds.with_context(|| format!("{text} is not a number of seconds"))
}

fn variable(text: &str) -> Result<(String, String)> {
    if let Ok(pair) = pair(text) {
        return Ok(pair);
    }
    let value =
        std::env::var(text).with_context(|| format!("{text} is not set in this environment"))?;
    Ok((text.to_owned(), value))
}

fn user(text: &str) -> Result<(u32, u32)> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse().with_context(|| format!("{text} is not an id"));
    Ok((number(user)?, number(group)?))
}

/// Returns all ways to split a text at a colon, because paths may contain colons.
fn divided(text: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> + Clone {
    let all = text.match_indices(':').map(|(at, _)| (&text[..at], &text[at + 1..]));
    all.filter(|(from, to)| !from.is_empty() && !to.is_empty()).collect::<Vec<_>>().into_iter()
}

fn copy(text: &str, found: Option<(&str, &str)>) -> Result<(String, String)> {
    let (from, to) =
        found.or_else(|| divided(text).next()).with_context(|| format!("{text} is not FROM:TO"))?;
    Ok((from.to_owned(), to.to_owned()))
}

/// Splits a `--push` so that the source is the longest path that exists.
fn pushed(text: &str) -> Result<(String, String)> {
    let is_there = |(from, _): &(&str, &str)| Path::new(from).symlink_metadata().is_ok();
    copy(text, divided(text).rev().find(is_there))
}

/// Splits a `--pull` so that the target is the longest path that begins with `/`, `./` or `../` and
/// whose directory exists.
fn pulled(text: &str) -> Result<(String, String)> {
    let is_possible = |(_, to): &(&str, &str)| {
        let is_marked = ["/", "./", "../"].iter().any(|mark| to.starts_with(mark));
        is_marked && Path::new(to).parent().is_none_or(Path::is_dir)
    };
    copy(text, divided(text).find(is_possible))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mote_client::common::printable::parsed;

    fn parse(line: &str) -> Result<RunArgs> {
        parsed(line)
    }

    #[test]
    fn reads_the_command_after_the_options() {
        let args = parse("--kernel k --initrd i --timeout 5 -- sh -c true --kernel x").unwrap();
        assert_eq!(args.job.command, ["sh", "-c", "true", "--kernel", "x"]);
        assert_eq!((args.vm.kernel.len(), args.limits.timeout), (1, Some(Duration::from_secs(5))));
        assert_eq!(parse("--disk d ls -t").unwrap().job.command, ["ls", "-t"]);
        assert!(parse("--kernel k --dry-run").unwrap().job.command.is_empty());
        for line in [
            "--initrd i -- true",
            "--kernel k --timeout 0 -- true",
            "--kernel k --user me -- true",
            "--kernel k --push a -- true",
            "--kernel k --cpus 0 -- true",
            "--kernel k --write -- true",
            "--kernel k --env NO_SUCH_VARIABLE_HERE -- true",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn splits_values_as_documented() {
        assert_eq!(user("1000").unwrap(), (1000, 1000));
        assert_eq!(user("1:2").unwrap(), (1, 2));
        assert!(pushed("a").is_err() && pushed(":a").is_err() && pulled("a:").is_err());
        assert_eq!(words("-device 'a b',c -s").unwrap().0, ["-device", "a b,c", "-s"]);
        assert!(words("'").is_err());
        let line = "--kernel k --qemu-arg -s --append -- --env A=b=c -- true";
        let args = parse(line).unwrap();
        assert_eq!(args.job.env, [("A".to_owned(), "b=c".to_owned())]);
        assert_eq!(args.vm.hardware.qemu_arg[0].0, ["-s"]);
    }

    #[test]
    fn paths_may_have_colons() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name).display().to_string();
        std::fs::create_dir_all(at("a:b")).unwrap();
        std::fs::write(at("a:b/f"), "").unwrap();
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(pushed("a:/b:c").unwrap(), pair("a", "/b:c"));
        let (file, other) = (at("a:b/f"), at("a:b/g"));
        for to in ["/tmp/f", "f", "/tmp/x:y"] {
            assert_eq!(pushed(&format!("{file}:{to}")).unwrap(), pair(&file, to));
        }
        assert_eq!(pulled("/g:out:1").unwrap(), pair("/g", "out:1"));
        assert_eq!(pulled("/g:h:./out").unwrap(), pair("/g:h", "./out"));
        for from in ["/g", "/g:h", "/g:/h"] {
            assert_eq!(pulled(&format!("{from}:{other}")).unwrap(), pair(from, &other));
        }
    }
}
