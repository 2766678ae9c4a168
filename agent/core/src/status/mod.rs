//! The status channel as one state machine: when to write which line to the serial port, what a
//! received line means, when to call the host, and which one (P§2, decisions §1).
//!
//! ```text
//!                PUT or CONNECT                 verified
//!  STARTED ─────────────────────────▶ CONNECT ───────────▶ CONNECTED
//!     ▲  ▲                               │ failed              │
//!     │  └───────────────────────────────┘                     │
//!     └───────── a call failed, at once ───────────────────────┘
//! ```
//! In STARTED a known address is verified again in the background. Only a verification leads to
//! CONNECTED; answers to other calls bring the next one forward. The host keeps a ring of 16 bytes
//! and acts on the last complete line only, so lines are repeated rather than assumed to be read.
//!
//! Inputs are the methods of [`Status`]; outputs are [`Status::poll`] and [`Status::deadline`]. The machine does
//! no I/O. `link` decides which host to call.

mod connect;
mod host;
mod link;
mod pace;
mod phase;
mod poll;
#[cfg(test)]
mod tests;
mod timers;
#[cfg(feature = "alloc")]
pub mod view;

use core::time::Duration;

pub use connect::{Connect, LineBuf, RefusedLine};
pub use link::Host;
pub use pace::{
    CONNECT, CONNECT_DEADLINE, CONNECTED, Intervals, NO_CALL_TIMEOUT, REFRESH, REFRESHED,
    REPLACED_PAUSE, RESTART_INTERVAL, SHORTEST, STARTED, STOPPED_TO_STARTED, VERIFY,
    VERIFY_BACKOFF_MAX, VERIFY_BACKOFF_MIN,
};
pub use phase::State;
pub use poll::{Action, STARTED_LINE, STOPPED_LINES};

use crate::host_address::HostAddress;
use crate::time::Uptime;
use connect::Flood;
use link::{How, Link, Verification};
use phase::Phase;
use timers::{Timer, Timers};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatusLine {
    Started,
    /// STARTED twice, without an event.
    Refresh,
    Connected,
    Stopped,
}

/// How the host last gave its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Put,
    Connect,
}

/// Earliest time of the next action of each kind.
#[derive(Debug)]
struct NotBefore {
    /// Write to the port, after a failed write.
    write: Uptime,
    /// Follow a CONNECT line.
    connect: Uptime,
    /// Verify the known address.
    own: Uptime,
    /// Write STOPPED and STARTED for a host that does not call.
    turn: Uptime,
    /// Log a refused line.
    refused: Uptime,
}

/// Actions for the log that are still to be returned by [`Status::poll`].
#[derive(Debug, Default)]
struct ForTheLog {
    /// The state that was logged last, with its address if it is [`State::Connected`].
    state: Option<(State, Option<HostAddress>)>,
    /// The address in a CONNECT line that is followed.
    followed: Option<HostAddress>,
    /// The reason why a CONNECT line was refused.
    refused: Option<RefusedLine>,
}

#[derive(Debug)]
pub struct Status {
    intervals: Intervals,
    phase: Phase,
    since: Uptime,
    link: Link,
    timers: Timers,
    not_before: NotBefore,
    buf: LineBuf,
    flood: Flood,
    heard: Heard,
    /// The host of the latest CONNECT line, until [`Timer::Follow`].
    waiting: Option<Host>,
    last: StatusLine,
    /// Time of the last write; `None` before the first one.
    written: Option<Uptime>,
    log: ForTheLog,
}

impl Status {
    /// Creates a machine in STARTED, with an announcement due immediately.
    pub fn new(now: Uptime, intervals: Intervals) -> Self {
        let mut timers = Timers::default();
        timers.set(Timer::Announce, now);
        timers.set(Timer::Turn, now + NO_CALL_TIMEOUT);
        Self {
            intervals: intervals.bounded(),
            phase: Phase::Started { pause: VERIFY_BACKOFF_MIN },
            link: Link::default(),
            since: now,
            timers,
            not_before: NotBefore { write: now, connect: now, own: now, turn: now, refused: now },
            buf: LineBuf::default(),
            flood: Flood::default(),
            heard: Heard::Nothing,
            waiting: None,
            last: StatusLine::Started,
            written: None,
            log: ForTheLog::default(),
        }
    }

    pub fn state(&self) -> State {
        self.phase.state()
    }

    pub fn since(&self) -> Uptime {
        self.since
    }

    /// Returns whether the host has given its address itself, in a PUT or in a CONNECT line.
    pub fn is_heard(&self) -> bool {
        self.heard != Heard::Nothing
    }

    /// Returns the host that calls go to: the verified one, else the one from PUT or a file.
    pub fn host(&self) -> Option<Host> {
        self.link.host()
    }

    pub fn address(&self) -> Option<HostAddress> {
        self.host().map(|host| host.address)
    }

    /// Returns the latest time at which the shell wakes while the port is open: at
    /// [`Status::deadline`], or earlier to poll the port, because a snapshot restore, a migration
    /// or a driver bug can lose the kernel's wake-up. These reads are as frequent as the
    /// announcements of the state, and more frequent in CONNECT, which is short and has none.
    pub fn wake(&self, now: Uptime) -> Uptime {
        let look = now
            + match self.state() {
                State::Connect => self.intervals.connect,
                State::Started | State::Stopped => self.intervals.started,
                State::Connected => self.intervals.connected,
            };
        self.deadline().map_or(look, |due| due.min(look))
    }

    /// Takes bytes from the port, in any pieces. Skips noise and echoes of the agent's own lines.
    pub fn received(&mut self, now: Uptime, bytes: &[u8]) {
        if self.state() == State::Stopped {
            return;
        }
        self.flood.read(now, bytes.len());
        if self.read_paused_until(now).is_some() {
            self.refuse(now, RefusedLine::Flood);
        }
        for byte in bytes {
            let Some(line) = self.buf.push(*byte) else { continue };
            match Connect::parse(&line) {
                Ok(None) => {}
                Ok(Some(Connect { address, fingerprint })) => {
                    let known = self.host().map(|host| host.fingerprint);
                    match fingerprint.or(known) {
                        Some(fingerprint) => self.connect_line(Host { address, fingerprint }),
                        None => self.refuse(now, RefusedLine::NoCertificate),
                    }
                }
                Err(why) => self.refuse(now, why),
            }
        }
    }

    /// Returns the time until which the shell must not read the port, after too many bytes; `None`
    /// if it may read now.
    pub fn read_paused_until(&self, now: Uptime) -> Option<Uptime> {
        self.flood.pause(now)
    }

    fn refuse(&mut self, now: Uptime, why: RefusedLine) {
        if now >= self.not_before.refused {
            self.log.refused = Some(why);
            self.not_before.refused = now + pace::REFUSED_LOG_INTERVAL;
        }
    }

    fn connect_line(&mut self, host: Host) {
        let under_way = self.link.verifying.is_some_and(|verification| {
            verification.target == host && verification.how != How::Own
        });
        // A repeated line changes nothing, but as the latest one it replaces a pending one.
        if under_way {
            self.forget_line();
        } else {
            self.waiting = Some(host);
            self.timers.set(Timer::Follow, self.not_before.connect);
        }
    }

    fn forget_line(&mut self) {
        self.waiting = None;
        self.timers.stop(Timer::Follow);
    }

    /// Returns the interval between announcements in CONNECTED, short for the next `eager` ones.
    fn announce_pace(&self, eager: u8) -> Duration {
        if eager > 0 { self.intervals.started } else { self.intervals.connected }
    }

    /// Returns `now`, or [`pace::MIN_LINE_GAP`] after the last line if that is later.
    fn at_once(&self, now: Uptime) -> Uptime {
        self.written.map_or(now, |written| now.max(written + pace::MIN_LINE_GAP))
    }

    fn enter(&mut self, now: Uptime, phase: Phase) {
        if self.state() != phase.state() {
            self.since = now;
        }
        self.phase = phase;
    }

    /// Records that a port has appeared. Announces at once, since its reader has seen no line yet.
    pub fn port_appeared(&mut self, now: Uptime) {
        self.buf.clear();
        self.not_before.write = self.at_once(now);
        self.timers.advance(Timer::Announce, self.not_before.write);
    }

    /// Records that the last write failed. It is repeated later.
    pub fn write_failed(&mut self, now: Uptime) {
        let again = now
            + match self.state() {
                // The service manager or the power-off waits only briefly.
                State::Stopped => self.intervals.connect,
                State::Started | State::Connect | State::Connected => self.intervals.started,
            };
        self.not_before.write = again;
        match (self.last, &mut self.phase) {
            (StatusLine::Started | StatusLine::Refresh, _) => {
                self.timers.advance(Timer::Announce, again);
            }
            (StatusLine::Stopped, Phase::Stopped { owed })
            | (StatusLine::Connected, Phase::Connected { owed, .. }) => *owed = true,
            (StatusLine::Stopped, Phase::Started { .. }) => self.timers.set(Timer::Turn, again),
            // The state has changed since: the line is out of date.
            (StatusLine::Stopped | StatusLine::Connected, _) => {}
        }
    }

    /// Ends the machine: writes STOPPED, and nothing after it.
    pub fn stop(&mut self, now: Uptime) {
        self.not_before.write = now;
        self.link.verifying = None;
        self.waiting = None;
        self.timers.stop_all();
        self.enter(now, Phase::Stopped { owed: true });
    }
}
