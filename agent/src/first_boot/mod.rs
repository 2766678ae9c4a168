//! First-boot steps before the agent announces itself (P§1.3): host name, reboot for a new
//! cloud-init seed, NICs. An error in one is logged, and start-up continues.

pub(crate) mod credentials;
pub(crate) mod nics;
pub(crate) mod templates;

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::Duration;

use mote_core::hostapi::policy::{Capability, Features};
use rustix::system::{RebootCommand, reboot};

use crate::config::files::ConfigFiles;
use crate::first_boot::templates::Applied;
use crate::runtime::{io_error, is_there, log, read_bounded};
use crate::sys::{self, Signalled, file, next_signal};
use crate::workers::command;

/// Template that also sets the kernel's hostname.
const HOSTNAME: &str = "etc/hostname";
/// cloud-init's seed, which it reads only at boot.
const SEED: &str = "var/lib/cloud/seed/nocloud-net/meta-data";
/// Maximum duration of the `reboot` command: systemctl gives up after 25 s without an answer.
const COMMAND: Duration = Duration::from_secs(60);
/// Maximum wait for a requested reboot, as in the Go agents.
const REBOOT: Duration = Duration::from_secs(300);
/// Magic numbers (statfs(2)) of tmpfs and ramfs, which lose their files at a reboot.
const IN_MEMORY: [u32; 2] = [0x0102_1994, 0x8584_58f6];

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Run,
    /// The system reboots: exit without an announcement.
    Leave,
}

/// Performs all steps that the policy allows, in the order of P§1.3. The templates were applied
/// before, while their share was mounted.
pub(crate) fn run(
    root: &Path,
    features: Features,
    applied: &Applied,
    files: &ConfigFiles,
    signals: &impl AsFd,
) -> Next {
    if applied.wrote(HOSTNAME) {
        set_hostname(root);
    }
    if applied.changed(SEED) && wants_reboot(root) && restart(root, signals) == Next::Leave {
        return Next::Leave;
    }
    if !files.nics.is_empty() && !features.allows(Capability::Network) {
        log::info(format_args!("the policy denies renaming NICs"));
        return Next::Run;
    }
    nics::apply(root, &files.nics);
    Next::Run
}

/// Sets the kernel's hostname from the file; the kernel strips the newline.
fn set_hostname(root: &Path) {
    let kernel = root.join("proc/sys/kernel/hostname");
    if !file::exists(&kernel) {
        return;
    }
    let set = read_bounded(&root.join(HOSTNAME), 4096)
        .and_then(|name| file::write(&kernel, &name).map(|()| name));
    match set {
        Ok(name) => {
            log::info(format_args!("hostname {}", String::from_utf8_lossy(&name).trim_ascii_end()));
        }
        Err(error) => log::warn(format_args!("cannot set the hostname: {error}")),
    }
}

/// Returns whether a changed seed needs a reboot, because cloud-init has already run in this boot.
/// The Go agents reboot whenever the template exists, endlessly if the host does not remove it.
/// mote requires that the seed has changed and survives the reboot.
fn wants_reboot(root: &Path) -> bool {
    if !is_there(root, "etc/cloud") {
        return false;
    }
    let in_memory = file::statfs(&root.join(SEED))
        .is_ok_and(|fs| IN_MEMORY.into_iter().any(|kind| i64::from(kind) == fs.f_type));
    if in_memory {
        log::warn(format_args!("not rebooting for cloud-init's seed: it would be lost"));
    }
    !in_memory
}

/// Reboots with the system's `reboot` command, or with reboot(2) if that fails, then waits.
fn restart(root: &Path, signals: &impl AsFd) -> Next {
    log::info(format_args!("cloud-init has a new seed: rebooting"));
    let cloud_init = root.join("run/cloud-init");
    if let Err(error) = std::fs::remove_dir_all(&cloud_init)
        && error.kind() != ErrorKind::NotFound
    {
        log::warn(format_args!("cannot remove {}: {error}", cloud_init.display()));
    }
    rustix::fs::sync();
    if let Err(why) = reboot_command(root, COMMAND) {
        log::warn(format_args!("reboot command: {why}"));
        // With another root this is a test, which must not reboot the machine.
        if root != Path::new("/") {
            return Next::Run;
        }
        if let Err(error) = reboot(RebootCommand::Restart) {
            log::warn(format_args!("cannot reboot: {error}"));
            return Next::Run;
        }
    }
    match told_to_end(signals) {
        Ok(false) => {
            log::warn(format_args!("no reboot within 300 s; continuing"));
            Next::Run
        }
        Ok(true) | Err(_) => Next::Leave,
    }
}

/// Runs the `reboot` command, which is in `/sbin` by FHS 3.0 §3.16. Kills it after `limit`.
fn reboot_command(root: &Path, limit: Duration) -> io::Result<()> {
    let path = CString::new(root.join("sbin/reboot").into_os_string().into_vec())?;
    match command::run(&[&path], io::stderr().as_fd(), limit)? {
        0 => Ok(()),
        code => Err(io_error(format!("exit code {code}"))),
    }
}

/// Waits up to [`REBOOT`] for a signal that ends the agent; returns false if none came.
fn told_to_end(signals: &impl AsFd) -> io::Result<bool> {
    let end = sys::since_boot() + REBOOT;
    while sys::readable(signals.as_fd(), end) {
        if next_signal(signals)? == Signalled::End {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// Creates a root on a disk with cloud-init and a `reboot` that runs `command`.
    fn root(name: &str, command: &str) -> std::path::PathBuf {
        root_in(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tmp"), name, command)
    }

    fn root_in(directory: &str, name: &str, command: &str) -> std::path::PathBuf {
        let root = Path::new(directory).join(format!("{name}-{}", std::process::id()));
        let _stale = fs::remove_dir_all(&root);
        for directory in ["etc/cloud", "sbin", "run/cloud-init/x", "var/lib/cloud/seed/nocloud-net"]
        {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join(SEED), "instance-id: a").unwrap();
        let program = format!("#!/bin/sh\n{command}\n");
        crate::runtime::put_mode(&root, "sbin/reboot", program, 0o755);
        root
    }

    #[test]
    fn the_agent_continues_if_the_reboot_command_fails() {
        let root = root("reboot-fails", "exit 3");
        let (signals, _writer) = rustix::pipe::pipe().unwrap();
        assert!(wants_reboot(&root));
        assert_eq!(restart(&root, &signals), Next::Run);
        assert!(!root.join("run/cloud-init").exists());
        fs::remove_file(root.join("sbin/reboot")).unwrap();
        assert_eq!(restart(&root, &signals), Next::Run);
        fs::remove_dir_all(root.join("etc/cloud")).unwrap();
        assert!(!wants_reboot(&root));
    }

    #[test]
    fn a_seed_in_memory_causes_no_reboot() {
        let root = root_in("/dev/shm", "reboot-in-memory", "exit 3");
        assert!(!wants_reboot(&root));
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn calls_the_command_once() {
        let root = root("reboot-works", "echo \"$0\" >>\"${0%/*}/called\"");
        reboot_command(&root, COMMAND).unwrap();
        let said = fs::read_to_string(root.join("sbin/called")).unwrap();
        assert_eq!(said, format!("{}/sbin/reboot\n", root.display()));
    }
}
