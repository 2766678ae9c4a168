//! The status channel as one state machine: what to write to the serial port and when, what a line
//! from there means, when to call the host. P§2, seeds §1.
//!
//! ```text
//!            told by PUT or CONNECT             verified
//!  STARTED ─────────────────────────▶ CONNECT ───────────▶ CONNECTED
//!     ▲  ▲                               │ failed              │
//!     │  └───────────────────────────────┘                     │
//!     └───────── a call failed, at once ───────────────────────┘
//! ```
//! A known address is tried again in the background while STARTED. The host's ring has 16 bytes and
//! it acts on the last complete line only, so lines are repeated rather than assumed to be read.
//!
//! Inputs are the methods here; outputs are [`Status::poll`] and [`Status::deadline`]. It never
//! does I/O, and it never takes an address for the host's before a call to it was answered, save
//! what came by PUT or `agent.conf`, whose writer has proved itself.

mod connect;
mod host;
mod pace;
mod poll;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub use connect::{Address, Connect, RefusedLine};
pub use pace::{
    AGAIN, CONNECT, CONNECT_FOR, CONNECTED, Intervals, LOST, READ, REFRESH, REFRESHED, REPLACED,
    SHORTEST, STARTED, TURN, VERIFY,
};
pub use poll::{Action, GONE, HERE};

use crate::line::{Line, LineBuf};
use crate::time::Uptime;

/// Where we are with the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Announcing ourselves.
    Started,
    /// Told where the host is, calling it.
    Connect,
    /// The host answers.
    Connected,
    /// Leaving.
    Stopped,
}

impl State {
    /// The word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Started => "STARTED",
            Self::Connect => "CONNECT",
            Self::Connected => "CONNECTED",
            Self::Stopped => "STOPPED",
        }
    }
}

/// What we write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Started,
    /// STARTED, silently.
    Refresh,
    Connected,
    Stopped,
}

/// Who told us the address of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Put,
    Connect { since: Uptime },
    Own,
}

/// How the host talks to us, as far as we have heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Nothing,
    Put,
    Connect,
}

#[derive(Clone, Copy, Debug)]
struct Verification {
    attempt: u32,
    target: Connect,
    how: How,
    /// When the shell is to begin; `None` once it has.
    due: Option<Uptime>,
    deadline: Uptime,
}

#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Uptime,
    pause: Duration,
}

/// The machine.
#[derive(Debug)]
pub struct Status {
    intervals: Intervals,
    state: State,
    since: Uptime,
    reported: Option<State>,
    buf: LineBuf,
    trust_known: bool,
    /// The host, as far as we know.
    known: Option<Connect>,
    heard: Heard,
    attempts: u32,
    verification: Option<Verification>,
    /// The latest CONNECT line, until its turn comes.
    waiting: Option<Connect>,
    /// When the next one may be followed.
    next_connect: Uptime,
    /// For the log: the address of a CONNECT line that is followed.
    told: Option<Address>,
    retry: Option<Retry>,
    /// When to say STOPPED and STARTED to a host that does not call.
    turn: Option<Uptime>,
    /// Not before this.
    next_turn: Uptime,
    announce: Uptime,
    /// When to announce silently, if that is of use.
    refresh: Option<Uptime>,
    /// Eager announcements left.
    untold: u8,
    say: Option<Word>,
    /// No writing before this: the port would not take it.
    blocked: Uptime,
    last: Word,
    /// When that was written.
    written: Option<Uptime>,
    refused: Option<RefusedLine>,
    next_refused: Uptime,
}

impl Status {
    /// Begins STARTED, with an announcement due at once.
    #[must_use]
    pub fn new(now: Uptime, intervals: Intervals) -> Self {
        Self {
            intervals: intervals.bounded(),
            state: State::Started,
            since: now,
            reported: None,
            buf: LineBuf::default(),
            trust_known: false,
            known: None,
            heard: Heard::Nothing,
            attempts: 0,
            verification: None,
            waiting: None,
            next_connect: now,
            told: None,
            retry: None,
            turn: Some(now + LOST),
            next_turn: now,
            announce: now,
            refresh: None,
            untold: 0,
            say: None,
            blocked: now,
            last: Word::Started,
            written: None,
            refused: None,
            next_refused: now,
        }
    }

    /// Where we are.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Since when.
    #[must_use]
    pub fn since(&self) -> Uptime {
        self.since
    }

    /// Where the host is, as far as we know: told by PUT or `agent.conf`, or by a CONNECT line that
    /// proved true.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.known.map(|known| known.address)
    }

    /// How often to look at a port that cannot be waited for.
    #[must_use]
    pub fn read_interval(&self) -> Duration {
        match self.state {
            State::Connect => self.intervals.connect,
            State::Started | State::Stopped => self.intervals.started,
            State::Connected => self.intervals.connected,
        }
    }

    /// Whether a host certificate is known, so that a CONNECT line may come without a fingerprint.
    pub fn trust_known(&mut self, known: bool) {
        self.trust_known = known;
    }

    /// Bytes from the port: cut anywhere, noise and our own echo among them.
    pub fn received(&mut self, now: Uptime, bytes: &[u8]) {
        if self.state == State::Stopped {
            return;
        }
        for byte in bytes {
            let parsed = match self.buf.push(*byte) {
                None => continue,
                Some(Line::TooLong) => Ok(None),
                Some(Line::Full(line)) => Connect::parse(&line),
            };
            match parsed {
                Ok(None) => {}
                Ok(Some(Connect { fingerprint: None, .. })) if !self.trust_known => {
                    self.refuse(now, RefusedLine::NoCertificate);
                }
                Ok(Some(connect)) => self.connect_line(connect),
                Err(why) => self.refuse(now, why),
            }
        }
    }

    fn refuse(&mut self, now: Uptime, why: RefusedLine) {
        if now >= self.next_refused {
            self.refused = Some(why);
            self.next_refused = now + pace::REFUSED;
        }
    }

    fn connect_line(&mut self, connect: Connect) {
        let under_way = self.verification.is_some_and(|verification| {
            verification.target == connect && verification.how != How::Own
        });
        // The same words again while we follow them say nothing new, but they are the latest.
        self.waiting = if under_way { None } else { Some(connect) };
    }

    fn announce_pace(&self) -> Duration {
        if self.untold > 0 { self.intervals.started } else { self.intervals.connected }
    }

    fn at_once(&self, now: Uptime) -> Uptime {
        self.written.map_or(now, |written| now.max(written + pace::GAP))
    }

    fn enter(&mut self, now: Uptime, state: State) {
        if self.state != state {
            self.state = state;
            self.since = now;
        }
    }

    /// The port is there (again): whoever reads it has not seen us yet.
    pub fn port_appeared(&mut self, now: Uptime) {
        self.buf.clear();
        self.blocked = self.at_once(now);
        self.announce = self.announce.min(self.blocked);
    }

    /// The last write did not happen: it is repeated, but not at once.
    pub fn write_failed(&mut self, now: Uptime) {
        self.blocked = now
            + match self.state {
                // There may not be much time left.
                State::Stopped => self.intervals.connect,
                State::Started | State::Connect | State::Connected => self.intervals.started,
            };
        match (self.last, self.state) {
            (Word::Started | Word::Refresh, _) => self.announce = self.announce.min(self.blocked),
            (Word::Stopped, State::Stopped) | (Word::Connected, State::Connected) => {
                self.say = Some(self.last);
            }
            (Word::Stopped, State::Started) => self.turn = Some(self.blocked),
            // No longer true.
            (Word::Stopped | Word::Connected, _) => {}
        }
    }

    /// We are leaving; the last line says so.
    pub fn stop(&mut self, now: Uptime) {
        self.say = Some(Word::Stopped);
        self.blocked = now;
        self.verification = None;
        self.waiting = None;
        self.enter(now, State::Stopped);
    }
}
