//! Starts processes that end with this one, however it ends. The kernel kills a process when its
//! parent ends, if the process has requested that. Between fork and exec, only unsafe code could
//! make the request. So this program starts itself again, makes the request and then executes the
//! other program.
//!
//! For the kernel, the parent is a thread, so the main thread must start these processes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::{
    MountFlags, MountPropagationFlags, mount_bind_recursive, mount_change, mount_remount,
};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal, setsid,
};
use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
#[expect(deprecated, reason = "only unsharing descriptors is unsafe")]
use rustix::thread::{UnshareFlags, unshare};
use serde::{Deserialize, Serialize};

use mote_client::clock::until;

/// First argument if this program is to execute another one.
const MARK: &str = "--mote-host-child";
/// Like [`MARK`], with the working directory mounted read-only.
const READ_ONLY: &str = "--mote-host-read-only";
/// The parent of a process that outlives this one.
const NOBODY: &str = "-";
/// The path of this program, even after its file was replaced.
const OURSELVES: &str = "/proc/self/exe";
/// Interval between checks whether a process has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Executes another program if the arguments ask for it. Returns the error if that fails.
pub fn become_another() -> Option<anyhow::Error> {
    let mut words = std::env::args_os().skip(1);
    let first = words.next()?;
    match () {
        () if first == MARK => become_one(words).err(),
        () if first == READ_ONLY => become_reader(words).err(),
        () => None,
    }
}

/// Returns a command line, without further arguments, of a program that cannot write to its working
/// directory and listens on this socket, which may exist. Its last argument will be `--fd=` and the
/// socket's number.
pub(crate) fn read_only(program: &Path, socket: &Path) -> (PathBuf, Vec<String>) {
    let words = [socket, program].map(|path| path.display().to_string());
    (OURSELVES.into(), [vec![READ_ONLY.to_owned()], words.into()].concat())
}

pub(crate) fn can_mount_read_only(directory: &Path) -> bool {
    let mut tried = Command::new(OURSELVES);
    tried.arg(READ_ONLY).args(["", "true"]).current_dir(directory);
    let tried = tried.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    tried.is_ok_and(|status| status.success())
}

/// Mounts the current directory read-only, with all mounts below it, in a mount namespace of this
/// process.
fn become_reader(mut words: impl Iterator<Item = OsString>) -> Result<()> {
    let socket = words.next().context("no socket")?;
    let program = words.next().context("no program")?;
    let mut command = Command::new(&program);
    command.args(words);
    if !socket.is_empty() {
        let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
        fcntl_setfd(&listener, FdFlags::empty())?;
        command.arg(format!("--fd={}", listener.into_raw_fd()));
    }
    let here = std::env::current_dir()?;
    #[expect(deprecated, reason = "only unsharing descriptors is unsafe")]
    unshare(UnshareFlags::NEWNS).context("mount namespace")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    mount_bind_recursive(&here, &here)?;
    for mount in mounts(&std::fs::read("/proc/self/mountinfo")?) {
        let flags = MountFlags::BIND | MountFlags::RDONLY;
        let changed = mount_remount(&mount, flags, c"");
        // All other mounts become read-only as far as possible, because the program gets a path,
        // which may meanwhile lead elsewhere.
        if mount.starts_with(&here) {
            changed.with_context(|| mount.display().to_string())?;
        }
    }
    // Enters the new mount; the process is still in the directory below it.
    std::env::set_current_dir(&here)?;
    Err(command.exec()).with_context(|| program.display().to_string())
}

fn mounts(mountinfo: &[u8]) -> Vec<PathBuf> {
    let lines = mountinfo.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    points.map(unescaped).collect()
}

fn unescaped(path: &[u8]) -> PathBuf {
    let (mut bytes, mut rest) = (Vec::new(), path);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let octal =
            digits.and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        rest = after.get(if octal.is_some() { 3 } else { 0 }..).unwrap_or_default();
    }
    OsString::from_vec(bytes).into()
}

fn become_one(mut words: impl Iterator<Item = OsString>) -> Result<()> {
    let parent = words.next().context("no parent")?;
    let lock = words.next().context("no lock")?;
    let program = words.next().context("no program")?;
    // A guest must not create device nodes through a share that a program of root serves, QEMU's 9p
    // included. Other users' programs have no such capability, and cannot drop it.
    let _has_none = remove_capability_from_bounding_set(CapabilitySet::MKNOD);
    if parent == NOBODY {
        // Signals of a closed terminal must not end this process.
        setsid()?;
    } else {
        end_with(&parent)?;
    }
    if !lock.is_empty() {
        let file = File::options().append(true).create(true).open(&lock)?;
        file.try_lock().with_context(|| lock.display().to_string())?;
        // The lock stays held while the other program runs.
        fcntl_setfd(&file, FdFlags::empty())?;
        std::mem::forget(file);
    }
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| program.display().to_string())
}

fn end_with(parent: &OsStr) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the request.
    let is_there = getppid().map(Pid::as_raw_nonzero).map(|pid| pid.to_string());
    if is_there.as_deref().map(OsStr::new) != Some(parent) {
        bail!("the parent has ended");
    }
    Ok(())
}

/// Returns the command line of a program that ends with this process. It gets no signals from the
/// terminal.
pub(crate) fn command(program: &Path) -> Command {
    as_child_of(&getpid().as_raw_nonzero().to_string(), Path::new(""), program)
}

/// Returns the command line of a program that outlives this process and, if a file is named, keeps
/// it locked.
pub(crate) fn detached(program: &Path, lock: &Path) -> Command {
    as_child_of(NOBODY, lock, program)
}

fn as_child_of(parent: &str, lock: &Path, program: &Path) -> Command {
    let mut command = Command::new(OURSELVES);
    command.arg(MARK).arg(parent).arg(lock).arg(program);
    if parent != NOBODY {
        command.process_group(0);
    }
    command
}

/// A process that QEMU needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Helper {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) socket: PathBuf,
    /// The file that it locks if it outlives this process; empty for none.
    pub(crate) lock: PathBuf,
    pub(crate) directory: PathBuf,
}

impl Helper {
    pub(crate) fn log(&self) -> PathBuf {
        self.socket.with_extension("log")
    }
}

/// A process that is killed and awaited when dropped.
#[derive(Debug)]
pub(crate) struct Kept(Child);

impl Kept {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn().context(OURSELVES)?))
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    pub(crate) fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        until(limit, LOOK, || self.ended())
    }

    /// Lets the process outlive this one.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    pub(crate) fn terminate(&self) {
        // The process is not reaped yet, so its id cannot have been reused.
        let _gone = kill_process(self.pid(), Signal::TERM);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // A process that hangs in the kernel dies when its call returns; do not wait for that.
        const DEATH: Duration = Duration::from_secs(2);
        let _gone = self.0.kill();
        self.ends_within(DEATH);
    }
}

/// Returns the path of a program: as given, or found by name in PATH and these directories.
pub(crate) fn find(program: &Path, others: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(others.iter().map(PathBuf::from));
    which::which_in(program, std::env::join_paths(all).ok(), ".").ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_canonical_mount_paths() {
        let info = b"1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /a\\040b rw - tmpfs t rw\n\
                     3 2 0:6 / /a\\040b/c\\134d ro - tmpfs t rw\n";
        assert_eq!(mounts(info), ["/", "/a b", "/a b/c\\d"].map(PathBuf::from));
    }
}
