//! What is done once at start, before anybody is told that we are there (P§1.3): hostname, cloud-init's
//! seed and the reboot it needs, NICs. None of it is fatal.

use std::ffi::CString;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::statfs;
use rustix::process::{WaitOptions, waitpid};
use rustix::system::{RebootCommand, reboot};

use crate::log;
use crate::share::ConfigFiles;
use crate::sys::{Plan, next_signal, spawn};
use crate::templates::Applied;

/// The template whose text is the kernel's hostname too.
const HOSTNAME: &str = "etc/hostname";
/// What cloud-init reads only when the system starts.
const SEED: &str = "var/lib/cloud/seed/nocloud-net/meta-data";
/// How long a reboot that was asked for may take (the real agents: the same).
const REBOOT: Duration = Duration::from_secs(300);
/// Where the command may be.
const PLACES: [&str; 4] = ["sbin", "usr/sbin", "bin", "usr/bin"];
/// File systems that forget (statfs(2)): tmpfs and ramfs.
const FORGETFUL: [u32; 2] = [0x0102_1994, 0x8584_58f6];

/// What comes after the files have been read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Go on.
    Run,
    /// The system goes down; say nothing to anybody.
    Leave,
}

/// Does it all, in the order of P§1.3. The templates were applied while their share was there.
pub(crate) fn run(
    root: &Path,
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
    let nics = files.nics.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()));
    crate::nics::apply(root, nics);
    Next::Run
}

/// The kernel takes the file as it is, with its newline.
fn set_hostname(root: &Path) {
    let kernel = root.join("proc/sys/kernel/hostname");
    if !kernel.exists() {
        return;
    }
    let set = crate::iso::read_bounded(&root.join(HOSTNAME), 4096)
        .and_then(|name| std::fs::write(&kernel, &name).map(|()| name));
    match set {
        Ok(name) => {
            log::info(format_args!("hostname {}", String::from_utf8_lossy(&name).trim_end()));
        }
        Err(error) => log::warn(format_args!("cannot set the hostname: {error}")),
    }
}

/// A seed that came too late for this start of cloud-init. The real agents reboot whenever the
/// template is there; since a host need not take it away for the next boot, that may never end. So
/// here: only for a seed that was not there before, and only where it will be there afterwards.
fn wants_reboot(root: &Path) -> bool {
    if !root.join("etc/cloud").exists() {
        return false;
    }
    let forgets = statfs(root.join(SEED))
        .is_ok_and(|fs| FORGETFUL.into_iter().any(|kind| i64::from(kind) == fs.f_type));
    if forgets {
        log::warn(format_args!("no reboot for cloud-init's seed: it is in memory"));
    }
    !forgets
}

/// Asks for a reboot as the system's own command does, or else tells the kernel; then waits for it.
fn restart(root: &Path, signals: &impl AsFd) -> Next {
    log::info(format_args!("cloud-init has a new seed: rebooting"));
    let cloud_init = root.join("run/cloud-init");
    if let Err(error) = std::fs::remove_dir_all(&cloud_init)
        && error.kind() != ErrorKind::NotFound
    {
        log::warn(format_args!("cannot remove {}: {error}", cloud_init.display()));
    }
    rustix::fs::sync();
    if let Err(why) = command(root) {
        log::warn(format_args!("the reboot command: {why}"));
        // Not with another root: that is somebody's test, not his machine.
        if root != Path::new("/") {
            return Next::Run;
        }
        if let Err(error) = reboot(RebootCommand::Restart) {
            log::warn(format_args!("cannot reboot: {error}"));
            return Next::Run;
        }
    }
    match gone(signals) {
        Ok(false) => {
            log::warn(format_args!("the reboot did not come; going on"));
            Next::Run
        }
        Ok(true) | Err(_) => Next::Leave,
    }
}

fn command(root: &Path) -> io::Result<()> {
    let mut programs = Vec::new();
    for place in PLACES {
        programs.push(CString::new(root.join(place).join("reboot").as_os_str().as_bytes())?);
    }
    let stderr = io::stderr();
    let plan = Plan {
        programs: &programs,
        arguments: &[c"reboot".to_owned()],
        environment: &[c"PATH=/usr/sbin:/usr/bin:/sbin:/bin".to_owned()],
        // It asks nothing, and what it says is for the log.
        stdio: [stderr.as_fd(), stderr.as_fd(), stderr.as_fd()],
        directory: None,
        ids: None,
        terminal: false,
    };
    let (child, _failure) = spawn(&plan)?;
    let ended = waitpid(Some(child), WaitOptions::empty())?;
    match ended.and_then(|(_, status)| status.exit_status()) {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::other(format!("exit code {code}"))),
        None => Err(io::Error::other("killed")),
    }
}

/// Whether we were told to end before the time is over. Children that ended do not count.
fn gone(signals: &impl AsFd) -> io::Result<bool> {
    let end = Instant::now() + REBOOT;
    loop {
        let left = end.saturating_duration_since(Instant::now());
        let limit = Timespec::try_from(left).map_err(|_| ErrorKind::InvalidInput)?;
        if poll(&mut [PollFd::new(signals, PollFlags::IN)], Some(&limit))? == 0 {
            return Ok(false);
        }
        if !next_signal(signals)? {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    /// A root with cloud-init and a command that says it was called; not below `/tmp`, which may be
    /// in memory.
    fn root(name: &str, command: &str) -> std::path::PathBuf {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tmp");
        let root = root.join(format!("{name}-{}", std::process::id()));
        let _stale = fs::remove_dir_all(&root);
        for directory in ["etc/cloud", "sbin", "run/cloud-init/x", "var/lib/cloud/seed/nocloud-net"]
        {
            fs::create_dir_all(root.join(directory)).unwrap();
        }
        fs::write(root.join(SEED), "instance-id: a").unwrap();
        let program = root.join("sbin/reboot");
        fs::write(&program, format!("#!/bin/sh\n{command}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        root
    }

    #[test]
    fn a_command_that_fails_is_survived_and_its_state_removed() {
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
    fn the_command_is_called_once() {
        let root = root("reboot-works", "echo \"$0\" >>\"${0%/*}/called\"");
        command(&root).unwrap();
        let said = fs::read_to_string(root.join("sbin/called")).unwrap();
        assert_eq!(said, format!("{}/sbin/reboot\n", root.display()));
    }
}
