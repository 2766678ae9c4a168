//! Waits at start for devices, drivers and the host's files: an agent started early by an initramfs runs
//! before any of them is there.
//!
//! A kernel device event triggers a look. Mounts and copied files cause no event, so there is also a look
//! ten times a second, later once a second. A look lists a few directories; the attempt itself is made
//! only if the listing has changed or a minute has passed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use mote_core::time::Uptime;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::agent::run_files;
use crate::config::files;
use crate::handover::lock::{Kept, Lock};
use crate::handover::new_root::OldRoot;
use crate::handover::reexec;
use crate::handover::reexec::Mode;
use crate::options::Options;
use crate::runtime::clock::{LATER_LOOK_INTERVAL, LOOK_INTERVAL, look_interval, now};
use crate::runtime::{log, notify};
use crate::start::error::StartError;
use crate::status::status_file;
use crate::sys::{self, Signalled, SystemError};
use crate::system::devices::entries;
use crate::system::missing::Missing;
use crate::system::uevent;

/// Interval between log lines, and between attempts without a change.
const REPEAT: Duration = Duration::from_secs(60);
/// When the service manager is told READY although something is missing: units ordered after the agent
/// (cloud-init, the login) must not wait for a device that may never come.
const READY: Duration = Duration::from_secs(10);
/// Directories below the root in which new devices and drivers show.
const DIRECTORIES: [&str; 8] = [
    "dev",
    "lib/modules",
    "sys/bus",
    "sys/bus/pci/devices",
    "sys/bus/virtio/devices",
    "sys/class/block",
    "sys/class/virtio-ports",
    "sys/module",
];

/// Result of [`Wait::until`].
#[derive(PartialEq, Eq)]
pub(crate) enum Waited {
    /// The attempt succeeded.
    Found,
    /// A signal asks the agent to end.
    Leave,
}

/// Waits for one thing after the other; meanwhile keeps the lock and notifies the service manager.
pub(crate) struct Wait<'a> {
    options: &'a Options,
    signals: &'a OwnedFd,
    lock: &'a mut Lock,
    root: OldRoot,
    begun: Uptime,
    ready: bool,
    watchdog: Uptime,
}

impl<'a> Wait<'a> {
    /// Starts the clock for [`READY`].
    pub(crate) fn new(
        options: &'a Options,
        signals: &'a OwnedFd,
        lock: &'a mut Lock,
        root: OldRoot,
    ) -> Self {
        let begun = now();
        Self { options, signals, lock, root, begun, ready: false, watchdog: begun }
    }

    /// Calls `attempt` until it succeeds or a signal asks the agent to end. `what` names the thing
    /// waited for, in log and status.
    ///
    /// # Errors
    /// The first attempt's error under `--no-wait`; any error of poll(2) or of reading the signals.
    pub(crate) fn until(
        &mut self,
        what: &str,
        attempt: &mut dyn FnMut() -> Result<(), Missing>,
    ) -> Result<Waited, StartError> {
        let mut trouble = match attempt() {
            Ok(()) => return Ok(Waited::Found),
            Err(why) if !self.options.wait => return Err(why.into()),
            Err(why) => why,
        };
        let begun = now();
        let events = uevent::listen().ok();
        // The first look differs from this, so a second attempt follows at once: a device may have
        // come before the socket listened.
        let mut seen = Vec::new();
        let mut due = begun;
        loop {
            if self.lock.keep(&self.options.root) == Kept::Anew {
                log::info(format_args!("{}", run_files::MOVED));
                due = now();
            }
            if now() >= due {
                due = now() + REPEAT;
                log::info(format_args!("waiting for {what}: {trouble}"));
                status_file::waiting(self.options, what, trouble.why());
            }
            let look = look(self.options);
            if look != seen || now() + LATER_LOOK_INTERVAL >= due {
                seen = look;
                match attempt() {
                    Ok(()) => {
                        let took = now() - begun;
                        let (seconds, millis) = (took.as_secs(), took.subsec_millis());
                        log::info(format_args!("{what}: found after {seconds}.{millis:03} s"));
                        if self.ready {
                            notify::running();
                        }
                        return Ok(Waited::Found);
                    }
                    // Another reason than before: log it at once.
                    Err(why) if why != trouble => (trouble, due) = (why, now()),
                    Err(_) => {}
                }
            }
            if self.options.is_early() && self.root.left() {
                reexec::start(Mode::Left);
            }
            if due > now() && self.pause(begun, what, events.as_ref())? {
                return Ok(Waited::Leave);
            }
        }
    }

    /// Waits for the next look; true if a signal asks the agent to end.
    fn pause(
        &mut self,
        begun: Uptime,
        what: &str,
        events: Option<&OwnedFd>,
    ) -> Result<bool, SystemError> {
        self.notify(what);
        let limit = Timespec::try_from(look_interval(begun)).unwrap_or_default();
        let signals = self.signals.as_fd();
        let events = events.map_or(signals, AsFd::as_fd);
        let mut ready = [
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
            PollFd::from_borrowed_fd(events, PollFlags::IN),
        ];
        let count = poll(&mut ready, Some(&limit))
            .map_err(|error| SystemError::of("poll", error.into()))?;
        let [signal, _] = &ready;
        if !signal.revents().is_empty() {
            let next = sys::next_signal(self.signals);
            let end = match next.map_err(|error| SystemError::of("signals", error))? {
                Signalled::Child => false,
                Signalled::Anew => {
                    reexec::start(Mode::Same);
                    false
                }
                Signalled::Replaced => self.options.makes_room(),
                Signalled::End => true,
            };
            if end {
                notify::stopping();
            }
            return Ok(end);
        }
        if count > 0 {
            // Events come in bursts: one look for all of them.
            std::thread::sleep(LOOK_INTERVAL);
            uevent::drain(events);
        }
        Ok(false)
    }

    /// Sends the service manager READY once it is due, then its watchdog pings.
    fn notify(&mut self, what: &str) {
        if !self.ready && now() - self.begun >= READY {
            self.ready = true;
            notify::waiting(what);
        }
        let interval = notify::watchdog_interval().filter(|_| self.ready);
        if let Some(interval) = interval
            && now() - self.watchdog >= interval / 2
        {
            self.watchdog = now();
            notify::watchdog();
        }
    }
}

/// A listing of devices, drivers and config files, to compare with the next one.
fn look(options: &Options) -> Vec<u8> {
    let mut seen = Vec::with_capacity(4096);
    for directory in DIRECTORIES {
        for path in entries(&options.root.join(directory)) {
            seen.extend_from_slice(path.as_os_str().as_encoded_bytes());
            seen.push(0);
        }
    }
    for directory in files::directories(options) {
        for name in files::NAMES {
            if let Ok(about) = rustix::fs::stat(directory.join(name)) {
                let size = about.st_size.unsigned_abs();
                let (seconds, nanoseconds) = (about.st_mtime.unsigned_abs(), about.st_mtime_nsec);
                for number in [about.st_ino, size, seconds, nanoseconds] {
                    seen.extend_from_slice(&number.to_ne_bytes());
                }
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::scratch::scratch;

    #[test]
    fn what_comes_changes_the_look_and_nothing_else_does() {
        let root = scratch("look");
        let mut options = crate::options::parse([].into_iter()).unwrap();
        options.root = root.to_path_buf();
        let mut last = look(&options);
        for path in [
            "dev/vsock",
            "sys/bus/virtio/devices/virtio0",
            "sys/module/virtiofs",
            "run/incus_agent/agent.key",
        ] {
            assert_eq!(look(&options), last, "{path}");
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            let new = look(&options);
            assert_ne!(new, last, "{}", path.display());
            last = new;
        }
        // A file that grows, then one of the same length in its place.
        for key in ["key", "yek"] {
            std::thread::sleep(Duration::from_millis(20));
            std::fs::write(root.join("run/incus_agent/agent.key"), key).unwrap();
            let new = look(&options);
            assert_ne!(new, last, "{key}");
            last = new;
        }
    }
}
