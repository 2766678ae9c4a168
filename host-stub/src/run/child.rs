//! Processes that end with this one, however it ends. The kernel kills them when their parent is gone; that has to be
//! asked for by the process itself, between fork and exec, where only unsafe code could run. So this program is
//! started a second time, asks for it, and becomes the other.
//!
//! The parent is a thread to the kernel: they are started by the main one.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process, set_parent_process_death_signal, setsid,
};

/// First argument of this program when it is to become another one.
const MARK: &str = "--mote-host-child";
/// The parent of a process that goes on by itself.
const NOBODY: &str = "-";
/// This program, also after its file was replaced.
const OURSELVES: &str = "/proc/self/exe";
/// Between looks whether one has ended.
const LOOK: Duration = Duration::from_millis(5);

/// Becomes another program if that is what this process was started for; gives why it could not.
pub(crate) fn become_another() -> Option<anyhow::Error> {
    let mut words = std::env::args_os().skip(1);
    (words.next()? == MARK).then(|| become_one(words).err()).flatten()
}

fn become_one(mut words: impl Iterator<Item = OsString>) -> Result<()> {
    let parent = words.next().context("no parent")?;
    let lock = words.next().context("no lock")?;
    let program = words.next().context("no program")?;
    if parent == NOBODY {
        // A terminal that is closed is not its.
        setsid()?;
    } else {
        end_with(&parent)?;
    }
    if !lock.is_empty() {
        let file = File::options().append(true).create(true).open(&lock)?;
        file.try_lock().with_context(|| lock.display().to_string())?;
        // It stays open in the other program, and locked for as long as that runs.
        fcntl_setfd(&file, FdFlags::empty())?;
        std::mem::forget(file);
    }
    let error = Command::new(&program).args(words).exec();
    Err(error).with_context(|| program.display().to_string())
}

fn end_with(parent: &OsStr) -> Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have ended before we asked.
    let is_there = getppid().map(Pid::as_raw_nonzero).map(|pid| pid.to_string());
    if is_there.as_deref().map(OsStr::new) != Some(parent) {
        bail!("the parent has ended");
    }
    Ok(())
}

/// A command line of a program that ends with this process. A terminal's signals are not for it.
pub(crate) fn command(program: &Path) -> Command {
    as_child_of(&getpid().as_raw_nonzero().to_string(), Path::new(""), program)
}

/// One of a program that goes on by itself, and locks a file meanwhile if one is named.
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

/// A process that is killed when dropped, and waited for.
#[derive(Debug)]
pub(crate) struct Kept(Child);

impl Kept {
    /// Starts it.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        Ok(Self(command.spawn().context(OURSELVES)?))
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().ok().flatten()
    }

    /// The same, within that time.
    pub(crate) fn ends_within(&mut self, limit: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + limit;
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= end {
                return ended;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Lets it go on by itself.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }

    /// Tells it to end.
    pub(crate) fn terminate(&self) {
        // Not waited for yet: the number is still its own.
        let _gone = kill_process(Pid::from_child(&self.0), Signal::TERM);
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // One that hangs in the kernel dies when it comes back; nobody waits for that.
        const DEATH: Duration = Duration::from_secs(2);
        let _gone = self.0.kill();
        self.ends_within(DEATH);
    }
}

/// Where a program is: a path, or a name that is looked for in PATH and these directories.
pub(crate) fn find(program: &Path, others: &[&str]) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return is_program(program).then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::env::split_paths(&path).chain(others.iter().map(PathBuf::from));
    all.map(|directory| directory.join(program)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    let is_ours = rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    is_ours && path.is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_or_path() {
        assert!(find(Path::new("sh"), &[]).is_some());
        assert_eq!(find(Path::new("/bin/sh"), &[]), Some("/bin/sh".into()));
        assert_eq!(find(Path::new("/etc/passwd"), &[]), None);
        assert_eq!(find(Path::new("no-such-program"), &["/bin"]), None);
    }
}
