//! `run` and `boot`, as they are written.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, ValueEnum, ValueHint};

use super::share::Share;
use crate::accel::Accel;
use mote_client::common::pair::pair;
use mote_client::instance::Flavour;

/// Where a VM's kernel is from, and what it has.
#[derive(Clone, Debug, Args)]
pub struct VmArgs {
    /// Boot this kernel; given several times, each is run in a VM of its own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kernel: Vec<PathBuf>,
    /// With this initramfs; one for all kernels, or one for each in their order
    #[arg(long, value_name = "FILE", requires = "kernel", value_hint = ValueHint::FilePath)]
    pub initrd: Vec<PathBuf>,
    /// Add words to the kernel's command line, which has console=, panic=-1 and quiet
    #[arg(long, value_name = "WORDS", requires = "kernel", allow_hyphen_values = true)]
    pub append: Vec<String>,
    /// Put an agent into the initramfs, which needs a /bin/sh; it is started before its /init
    #[arg(long, value_name = "FILE", requires = "initrd", value_hint = ValueHint::FilePath)]
    pub mote: Option<PathBuf>,
    /// The root disk; without =FORMAT it is raw, or qcow2 by its name. Without --kernel it is booted from
    #[arg(long, value_name = "FILE[=FORMAT]", value_hint = ValueHint::FilePath)]
    pub disk: Option<String>,
    /// Keep what is written to the disk; otherwise the file is not changed
    #[arg(long, requires = "disk")]
    pub write: bool,
    /// Give cloud-init this file, on a disk of its own
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub user_data: Option<PathBuf>,
    /// Set a configuration value, which the guest sees: user.greeting=hello
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    pub config: Vec<(String, String)>,
    /// Show the guest a directory, at the same path or at GUEST: by virtiofs or 9p, else it gets a copy; with :ro it cannot write
    #[arg(long, value_name = "DIR[:GUEST][:ro]", value_parser = Share::parse)]
    pub share: Vec<Share>,
    /// Its hardware.
    #[command(flatten)]
    pub hardware: HardwareArgs,
}

/// The machine.
#[derive(Clone, Debug, Args)]
pub struct HardwareArgs {
    /// Memory, MiB [default: 256 with a kernel, 512 with a disk]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Processors [default: 2 with KVM, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub cpus: Option<u32>,
    /// How the VM is run
    #[arg(
        long,
        value_enum,
        default_value_t,
        hide_possible_values = false,
        env = "MOTE_HOST_ACCEL",
        hide_env_values = true
    )]
    pub accel: Accel,
    /// Its processor's architecture [default: this machine's]
    #[arg(long, value_enum)]
    pub arch: Option<Arch>,
    /// Its network
    #[arg(long, value_enum, default_value_t)]
    pub network: Network,
    /// Add arguments to QEMU's, split as a shell does
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true, value_parser = words)]
    pub qemu_arg: Vec<Words>,
    /// QEMU's program [default: qemu-system-ARCH]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub qemu: Option<PathBuf>,
    /// The server to play
    #[arg(long, value_enum, default_value = "lxd")]
    pub flavour: Flavour,
}

/// Several words of one argument.
#[derive(Clone, Debug)]
pub struct Words(pub Vec<String>);

fn words(text: &str) -> Result<Words> {
    Ok(Words(shell_words::split(text)?))
}

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// A PC
    #[value(name = "x86_64")]
    X86,
    /// QEMU's virt
    #[value(name = "aarch64")]
    Aarch64,
    /// QEMU's virt
    #[value(name = "riscv64")]
    Riscv64,
}

impl Arch {
    /// This machine's.
    pub fn ours() -> Self {
        match std::env::consts::ARCH {
            "aarch64" => Self::Aarch64,
            "riscv64" => Self::Riscv64,
            _ => Self::X86,
        }
    }

    /// As programs are named.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86_64",
            Self::Aarch64 => "aarch64",
            Self::Riscv64 => "riscv64",
        }
    }

    /// What Linux calls the serial port of its machine.
    pub fn terminal(self) -> &'static str {
        if self == Self::Aarch64 { "ttyAMA0" } else { "ttyS0" }
    }

    /// What boots a disk and is not part of QEMU, unless it is.
    pub fn firmware(self) -> Option<&'static str> {
        match self {
            Self::X86 => None,
            Self::Aarch64 => Some("-bios QEMU_EFI.fd' (Debian: qemu-efi-aarch64)"),
            Self::Riscv64 => Some("-kernel uboot.elf' (Debian: u-boot-qemu)"),
        }
    }
}

/// A network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// No NIC
    #[default]
    None,
    /// One that reaches what this machine does, by QEMU (DHCP)
    User,
}

/// A run.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "to clap a switch is a bool")]
pub struct RunArgs {
    /// The VM.
    #[command(flatten)]
    pub vm: VmArgs,
    /// End the command after so many seconds, with code 124; they count from its start
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<f64>,
    /// Wait so many seconds for the agent [default: 60 with KVM, else 180]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub boot_timeout: Option<f64>,
    /// Give the command a terminal
    #[arg(short = 't', long)]
    pub terminal: bool,
    /// Set a variable of its environment; without =VALUE to what it is here
    #[arg(short, long, value_name = "KEY[=VALUE]", value_parser = variable)]
    pub env: Vec<(String, String)>,
    /// Run it in this directory [default: /root]
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Run it as this user id, and this group id (without it the same)
    #[arg(long, value_name = "ID[:ID]", value_parser = user)]
    pub user: Option<(u32, u32)>,
    /// Copy a file or directory into the guest before
    #[arg(long, value_name = "PATH:GUEST", value_parser = pushed)]
    pub push: Vec<(String, String)>,
    /// Copy one from the guest after it, whatever its code is; PATH must not lead through symbolic links
    #[arg(long, value_name = "GUEST:PATH", value_parser = pulled)]
    pub pull: Vec<(String, String)>,
    /// Keep the VM after the command, until Ctrl-C; prints how to reach it
    #[arg(long)]
    pub keep: bool,
    /// If the command fails, open a shell in the VM
    #[arg(long)]
    pub shell_on_failure: bool,
    /// Print QEMU's command and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Show the VM's console on stderr as it comes, and let the kernel say more
    #[arg(short, long)]
    pub verbose: bool,
    /// Keep the VM's console in this file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub console: Option<PathBuf>,
    /// Keep in this file what the host did
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub log: Option<PathBuf>,
    /// Write how it ended and how long each phase took to this file (JSON)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub result: Option<PathBuf>,
    /// Write it to this file as JUnit has it
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Run so many VMs at once, of several kernels
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: u32,
    /// What to run, with its arguments
    #[arg(required_unless_present = "dry_run", trailing_var_arg = true)]
    pub command: Vec<String>,
}

fn seconds(text: &str) -> Result<f64> {
    let seconds = text.parse().ok().filter(|seconds: &f64| *seconds > 0.0 && *seconds < 1e9);
    seconds.with_context(|| format!("{text} is no number of seconds"))
}

fn variable(text: &str) -> Result<(String, String)> {
    if let Ok(pair) = pair(text) {
        return Ok(pair);
    }
    let value = std::env::var(text).with_context(|| format!("{text} is not set here"))?;
    Ok((text.to_owned(), value))
}

fn user(text: &str) -> Result<(u32, u32)> {
    let (user, group) = text.split_once(':').unwrap_or((text, text));
    let number = |text: &str| text.parse().with_context(|| format!("{text} is no id"));
    Ok((number(user)?, number(group)?))
}

/// Every way to divide a text at one of its colons, since paths may have some too.
fn divided(text: &str) -> impl DoubleEndedIterator<Item = (&str, &str)> + Clone {
    let all = text.match_indices(':').map(|(at, _)| (&text[..at], &text[at + 1..]));
    all.filter(|(from, to)| !from.is_empty() && !to.is_empty()).collect::<Vec<_>>().into_iter()
}

fn copy(text: &str, found: Option<(&str, &str)>) -> Result<(String, String)> {
    let (from, to) =
        found.or_else(|| divided(text).next()).with_context(|| format!("{text} is not FROM:TO"))?;
    Ok((from.to_owned(), to.to_owned()))
}

/// What is pushed is the longest path that is there.
fn pushed(text: &str) -> Result<(String, String)> {
    let is_there = |(from, _): &(&str, &str)| Path::new(from).symlink_metadata().is_ok();
    copy(text, divided(text).rev().find(is_there))
}

/// Where a pull goes is the longest path that begins with `/`, `./` or `../` and is in a directory.
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
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: RunArgs,
    }

    fn parse(line: &str) -> Result<RunArgs> {
        Ok(Line::try_parse_from(["run"].into_iter().chain(line.split_whitespace()))?.args)
    }

    #[test]
    fn what_follows_the_options_is_the_command() {
        let args = parse("--kernel k --initrd i --timeout 5 -- sh -c true --kernel x").unwrap();
        assert_eq!(args.command, ["sh", "-c", "true", "--kernel", "x"]);
        assert_eq!((args.vm.kernel.len(), args.timeout), (1, Some(5.0)));
        assert_eq!(parse("--disk d ls -t").unwrap().command, ["ls", "-t"]);
        assert!(parse("--kernel k --dry-run").unwrap().command.is_empty());
        for line in [
            "--kernel k",
            "--initrd i -- true",
            "--kernel k --timeout 0 -- true",
            "--kernel k --timeout x -- true",
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
    fn values_are_split_where_they_are_said_to_be() {
        assert_eq!(user("1000").unwrap(), (1000, 1000));
        assert_eq!(user("1:2").unwrap(), (1, 2));
        assert!(pushed("a").is_err() && pushed(":a").is_err() && pulled("a:").is_err());
        assert_eq!(words("-device 'a b',c -s").unwrap().0, ["-device", "a b,c", "-s"]);
        assert!(words("'").is_err());
        let line = "--kernel k --qemu-arg -s --append -- --env A=b=c -- true";
        let args = parse(line).unwrap();
        assert_eq!(args.env, [("A".to_owned(), "b=c".to_owned())]);
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
        let of = |text: &str| {
            let share = Share::parse(text).unwrap();
            (share.source.display().to_string(), share.target)
        };
        let source = at("a:b");
        assert_eq!(of(&source), (source.clone(), source.clone()));
        assert_eq!(of(&format!("{source}:/m:ro")), (source.clone(), "/m".to_owned()));
        std::os::unix::fs::symlink("a:b", at("l")).unwrap();
        assert_eq!(of(&format!("{}:/m", at("l"))), (source, "/m".to_owned()));
        assert!(Share::parse("/absent:/m:/n").is_err() && Share::parse(":/m").is_err());
    }
}
