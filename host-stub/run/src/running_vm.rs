//! Everything that a run needs on this machine: a directory, the host in this process, QEMU and its
//! helper processes. All of it is removed when dropped, and the processes also end if this one is
//! killed.

use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use super::child::{self, Helper, Kept};
use super::machine::Machine;
use mote_client::clock::until;
use mote_client::common::printable::log_line;
use mote_client::common::whole_file::end_of_log;
use mote_client::instance::vsock_device::Watch;
use mote_client::{Instance, random, store};
use mote_stub::control::{self, Host};
use mote_stub::daemon::vm::SUSPENDED;
use mote_stub::daemon::{Daemon, Live};

/// Prefix of the directories' names.
const PREFIX: &str = "mote-run-";
/// Limit for a process to create its socket.
const SOCKET: Duration = Duration::from_secs(10);

/// A run's directory, removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    directory: PathBuf,
    _lock: File,
}

impl Scratch {
    /// Creates a directory, and removes those of killed runs.
    pub(crate) fn new() -> Result<Self> {
        /// Maximum length of the path, in bytes; a socket's path has about 50 more, and is limited.
        const LONGEST: usize = 55;
        // Commas separate the options of vhost-device-vsock, which has no escape for them.
        let fits = |path: &PathBuf| {
            path.as_os_str().len() <= LONGEST && !path.as_os_str().as_bytes().contains(&b',')
        };
        let above = std::env::temp_dir().canonicalize().ok().filter(fits);
        let above = above.unwrap_or_else(|| "/tmp".into());
        sweep(&above);
        let private = Permissions::from_mode(0o700);
        let directory =
            tempfile::Builder::new().prefix(PREFIX).permissions(private).tempdir_in(&above);
        let directory = directory.with_context(|| above.display().to_string())?;
        let lock = store::lock(directory.path())?;
        Ok(Self { directory: directory.keep(), _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.directory
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A thread of the host may still be writing to it.
        until(Duration::from_millis(500), Duration::from_millis(10), || {
            let is_removed = fs::remove_dir_all(&self.directory).is_ok();
            (is_removed || !self.directory.exists()).then_some(())
        });
    }
}

/// Removes the directories of this user's killed runs. Other users' files in a shared directory are
/// neither opened nor followed.
fn sweep(above: &Path) {
    /// A younger directory may not have its lock yet.
    const YOUNG: Duration = Duration::from_secs(60);
    let entries = fs::read_dir(above).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for entry in ours {
        let path = entry.path();
        let Ok(about) = path.symlink_metadata() else { continue };
        let is_our_own = about.is_dir() && about.uid() == rustix::process::geteuid().as_raw();
        let changed = about.modified().ok();
        let age = changed.and_then(|at| SystemTime::now().duration_since(at).ok());
        let is_free = || {
            let lock = store::open_lock(&path, OpenOptions::new().read(true));
            lock.is_ok_and(|lock| lock.try_lock().is_ok())
        };
        if is_our_own && age.is_some_and(|age| age > YOUNG) && is_free() {
            let _others = fs::remove_dir_all(&path);
        }
    }
}

pub(crate) struct RunningVm {
    pub(crate) qemu: Kept,
    /// The process that replaces the kernel's vsock.
    pub(crate) vsock: Option<Watch>,
    _helpers: Vec<Kept>,
    pub(crate) host: Arc<Host>,
    described: Instance,
    pub(crate) qemu_log: PathBuf,
}

impl RunningVm {
    /// Starts everything. Must run in the main thread, because the processes end with the thread.
    pub(crate) fn start(
        root: &Path,
        machine: &Machine,
        console: &Path,
        verbose: bool,
        log: File,
    ) -> Result<Self> {
        store::create(root, &machine.instance)?;
        // The host may read the console there.
        symlink(console, machine.beside("console"))?;
        let host = Host::new(Daemon::new(root, random::port(), Some(log))?)?;
        let ours = host.clone();
        std::thread::spawn(move || {
            if let Err(error) = control::serve(&ours) {
                ours.daemon.log(&format!("control socket: {error:#}"));
            }
        });
        machine.write_files(root)?;
        let (mut helpers, mut vsock) = (Vec::new(), None);
        for helper in machine.helpers() {
            let process = serve(&mut child::command(&helper.program), &helper)?;
            if Some(&helper.program) == machine.vsock.as_ref() {
                vsock = Some(Watch::new(process.pid(), helper.log()));
            }
            helpers.push(process);
        }
        let qemu_log = machine.beside("qemu.log");
        let mut command = child::command(&machine.qemu);
        command.args(machine.arguments(root, console, verbose)?);
        let qemu = start(&mut command, &qemu_log)?;
        let described = machine.instance.clone();
        Ok(Self { qemu, vsock, _helpers: helpers, host, described, qemu_log })
    }

    pub(crate) fn instance(&self) -> Instance {
        self.look(|live| live.instance.clone()).unwrap_or_else(|| self.described.clone())
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&mut Live) -> T) -> Option<T> {
        self.host.daemon.with(&self.described.name, look).ok()
    }

    /// Returns whether QEMU stopped the VM, which then needs help to continue. A suspended VM is
    /// different: its clock wakes it.
    pub(crate) fn stands_still(&self) -> bool {
        let is_so = |live: &mut Live| {
            live.vm.is_paused() && !matches!(live.vm.does.as_str(), "prelaunch" | SUSPENDED)
        };
        self.look(is_so).unwrap_or(false)
    }
}

impl Drop for RunningVm {
    fn drop(&mut self) {
        // This ends all writes to the instance's directory.
        let _ended = self.host.delete(&self.described.name, true);
        self.host.daemon.unbind();
    }
}

/// Returns the last line of a log, which a guest may have filled.
pub(super) fn last_line(log: &Path) -> String {
    let text = end_of_log(log);
    // QEMU's warnings about missing processor features are not errors.
    let is_error = |line: &&str| !(line.trim().is_empty() || line.contains(": warning: "));
    text.lines().rfind(is_error).map_or_else(|| "no message".to_owned(), log_line)
}

pub(super) fn start(command: &mut Command, log: &Path) -> Result<Kept> {
    let log = File::create(log).with_context(|| log.display().to_string())?;
    Kept::start(command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log))
}

pub(super) fn serve(command: &mut Command, helper: &Helper) -> Result<Kept> {
    let Helper { program, socket, .. } = helper;
    let log = helper.log();
    let mut process = start(command.args(&helper.arguments).current_dir(&helper.directory), &log)?;
    until(SOCKET, Duration::from_millis(2), || {
        (socket.exists() || process.ended().is_some()).then_some(())
    });
    if !socket.exists() {
        bail!("{} is not accepting connections: {}", program.display(), last_line(&log));
    }
    Ok(process)
}
