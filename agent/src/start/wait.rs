//! Waits at start for devices, drivers and the host's files, which may all be missing when an
//! initramfs starts the agent.
//!
//! A kernel device event triggers a check. Mounts and copied files cause no event, so mote also
//! checks ten times a second, later once a second. A check lists a few directories. mote makes an
//! attempt only if the listing has changed, a minute has passed, or another program uses the
//! resource.

use std::time::Duration;

use mote_core::time::Uptime;

use crate::agent::run_files;
use crate::handover::lock::{Kept, Lock};
use crate::handover::reexec::OldRoot;
use crate::handover::reexec::{self, Mode};
use crate::options::Options;
use crate::runtime::{LATER_LOOK_INTERVAL, LOOK_INTERVAL, log, look_interval, notify, now};
use crate::start::look::look;
use crate::status::status_file;
use crate::sys::{self, SignalSource, Signalled};
use crate::system::uevent::{self, Events, Woken};

/// Interval between log lines, and between attempts without a change.
const REPEAT: Duration = Duration::from_secs(60);
/// When to send READY to the service manager although something is missing: units ordered after the
/// agent (cloud-init, the login) must not wait for a device that may never appear.
const READY: Duration = Duration::from_secs(10);

#[derive(PartialEq, Eq)]
pub(crate) struct Missing {
    /// The cause, then advice; logged again when it changes.
    pub(crate) why: String,
    /// Whether another program uses the resource. Each check retries: no event reports its end.
    pub(crate) is_taken: bool,
}

impl From<String> for Missing {
    fn from(why: String) -> Self {
        Self { why, is_taken: false }
    }
}

#[derive(PartialEq, Eq)]
pub(crate) enum Waited {
    Found,
    Leave,
}

/// Waits for resources one by one; meanwhile keeps the lock and notifies the service manager.
pub(crate) struct Wait<'a> {
    options: &'a Options,
    signals: &'a SignalSource,
    lock: &'a mut Lock,
    root: OldRoot,
    begun: Uptime,
    ready: bool,
    watchdog: Uptime,
}

impl<'a> Wait<'a> {
    pub(crate) fn new(
        options: &'a Options,
        signals: &'a SignalSource,
        lock: &'a mut Lock,
        root: OldRoot,
    ) -> Self {
        let begun = now();
        Self { options, signals, lock, root, begun, ready: false, watchdog: begun }
    }

    /// Calls `attempt` until it succeeds or a signal asks the agent to end. `what` names the
    /// missing resource in log and status. Errors: the first attempt's error under `--no-wait`; any
    /// error of poll(2) or of reading the signals.
    pub(crate) fn until(
        &mut self,
        what: &str,
        attempt: &mut dyn FnMut() -> Result<(), Missing>,
    ) -> Result<Waited, String> {
        let mut trouble = match attempt() {
            Ok(()) => return Ok(Waited::Found),
            Err(why) if !self.options.wait => return Err(why.why),
            Err(why) => why,
        };
        let begun = now();
        let events = uevent::listen().ok();
        // The first listing differs from this empty one, so a second attempt follows immediately: a
        // device may have appeared before the socket existed.
        let mut seen = Vec::new();
        let mut due = begun;
        loop {
            if self.lock.keep(&self.options.root) == Kept::Renewed {
                log::info(format_args!("{}", run_files::MOVED));
                due = now();
            }
            if now() >= due {
                due = now() + REPEAT;
                log::info(format_args!("waiting for {what}: {}", trouble.why));
                status_file::waiting(self.options, what, &trouble.why);
            }
            let look = look(self.options);
            if trouble.is_taken || look != seen || now() + LATER_LOOK_INTERVAL >= due {
                seen = look;
                match attempt() {
                    Ok(()) => {
                        let took = now() - begun;
                        let (seconds, millis) = (took.as_secs(), took.subsec_millis());
                        log::info(format_args!("{what}: found after {seconds}.{millis:03} s"));
                        if self.ready {
                            notify::send("STATUS=running");
                        }
                        return Ok(Waited::Found);
                    }
                    // Log a new reason immediately.
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

    /// Waits for the next check; returns true if a signal asks the agent to end.
    fn pause(
        &mut self,
        begun: Uptime,
        what: &str,
        events: Option<&Events>,
    ) -> Result<bool, String> {
        self.notify(what);
        let limit = look_interval(begun);
        let woken = uevent::pause(self.signals, events, limit);
        match woken.map_err(|error| format!("poll: {error}"))? {
            Woken::Signal => {}
            Woken::Event => {
                // One check handles a burst of events.
                sys::sleep(LOOK_INTERVAL);
                if let Some(events) = events {
                    uevent::drain(events);
                }
                return Ok(false);
            }
            Woken::Late => return Ok(false),
        }
        let next = sys::next_signal(self.signals);
        let end = match next.map_err(|error| format!("signals: {error}"))? {
            Signalled::Child => false,
            Signalled::Reexec => {
                reexec::start(Mode::Same);
                false
            }
            Signalled::Replaced => self.options.makes_room(),
            Signalled::End => true,
        };
        if end {
            notify::stopping();
        }
        Ok(end)
    }

    /// Sends the service manager READY when due, then watchdog pings.
    fn notify(&mut self, what: &str) {
        if !self.ready && now() - self.begun >= READY {
            self.ready = true;
            notify::send(&format!("READY=1\nSTATUS=waiting for {what}"));
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
