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

    /// `agent.conf`, at start: the host is probably there. It is tried in the background, while we
    /// go on announcing ourselves. Once the host has told us better, this is nothing.
    pub fn know(&mut self, now: Uptime, address: Address) {
        if self.state == State::Started && self.heard == Heard::Nothing {
            self.known = Some(Connect { address, fingerprint: None });
            self.verification = None;
            self.retry = Some(Retry { at: now, pause: AGAIN.0 });
        }
    }

    /// `PUT /1.0` came; its handler verifies by itself and gives the result with this number.
    pub fn put_started(&mut self, now: Uptime, address: Address) -> u32 {
        if self.state == State::Stopped {
            // Nobody's number: there is no verification, nor will there be.
            return self.attempts;
        }
        let target = Connect { address, fingerprint: None };
        self.waiting = None;
        // Also if it fails, as the Go agents (P§3.3): our own tries go there then.
        self.known = Some(target);
        self.follow(now, target, How::Put);
        if let Some(verification) = &mut self.verification {
            verification.due = None;
        }
        self.enter(now, State::Connect);
        self.attempts
    }

    /// Begins a verification in place of any other; due at `when`.
    fn follow(&mut self, when: Uptime, target: Connect, how: How) {
        self.attempts = self.attempts.wrapping_add(1);
        let (attempt, deadline) = (self.attempts, when + VERIFY);
        self.verification = Some(Verification { attempt, target, how, due: Some(when), deadline });
        match how {
            How::Own => {}
            How::Put | How::Connect { .. } => {
                self.retry = None;
                self.turn = None;
                self.untold = 0;
                // A CONNECTED that is still to be said was about the last time.
                self.say = None;
            }
        }
    }

    /// How a verification went; numbers other than the current one's are old news. Tells whether
    /// this one counted.
    pub fn verified(&mut self, now: Uptime, attempt: u32, ok: bool) -> bool {
        let Some(verification) = self.verification.take_if(|it| it.attempt == attempt) else {
            return false;
        };
        let Verification { target, how, .. } = verification;
        match (how, ok) {
            (How::Put, true) => self.told_truly(now, target, Heard::Put),
            (How::Connect { .. }, true) => self.told_truly(now, target, Heard::Connect),
            (How::Own, true) => self.regained(now),
            (How::Put, false) => {
                // The host is alive, it has just told us; but it will not do so again by itself.
                self.heard = Heard::Put;
                self.lost(now, READ);
            }
            (How::Connect { since }, false) => {
                let again = now + self.intervals.connect.max(now - since);
                if again < since + CONNECT_FOR {
                    self.follow(again, target, how);
                    self.enter(now, State::Connect);
                } else {
                    self.lost(now, LOST);
                }
            }
            (How::Own, false) => {
                let pause = self.retry.map_or(AGAIN.0, |retry| retry.pause);
                self.retry = Some(Retry { at: now + pause, pause: (pause * 2).min(AGAIN.1) });
            }
        }
        true
    }

    /// An ordinary call to the host worked. Tells whether that is news, which it seldom is.
    pub fn call_ok(&mut self, now: Uptime) -> bool {
        let news = self.state == State::Started && self.known.is_some();
        if news {
            self.verification.take_if(|verification| verification.how == How::Own);
            self.regained(now);
        }
        news
    }

    /// An ordinary call to the host failed.
    pub fn host_lost(&mut self, now: Uptime) {
        if self.state == State::Connected {
            self.lost(now, LOST);
        }
    }

    fn told_truly(&mut self, now: Uptime, target: Connect, heard: Heard) {
        self.known = Some(target);
        self.heard = heard;
        self.say = Some(Word::Connected);
        self.connected(now);
    }

    /// Connected, but not because the host told us just now. CONNECTED is not said: it would hide
    /// STARTED from a host that has not read it yet.
    fn regained(&mut self, now: Uptime) {
        if self.heard == Heard::Nothing {
            self.untold = pace::UNTOLD;
        }
        self.connected(now);
    }

    fn connected(&mut self, now: Uptime) {
        self.retry = None;
        self.turn = None;
        self.refresh = match self.heard {
            Heard::Nothing | Heard::Put => Some(now + REFRESH),
            // Such a host reads the port itself, not a ring: no line is silent, each STARTED may
            // be answered with CONNECT, and a new daemon tells us by itself (seeds §1).
            Heard::Connect => None,
        };
        // Between STOPPED and STARTED of a turn, the STARTED is still owed.
        let owed = self.last == Word::Stopped;
        self.announce = now + if owed { READ } else { self.announce_pace() };
        self.enter(now, State::Connected);
    }

    fn announce_pace(&self) -> Duration {
        if self.untold > 0 { self.intervals.started } else { self.intervals.connected }
    }

    /// Announces at once; takes a turn after `patience` if that is not heard.
    fn lost(&mut self, now: Uptime, patience: Duration) {
        self.say = None;
        self.announce = self.at_once(now);
        self.turn = Some(self.next_turn.max(now + patience));
        self.retry = Some(Retry { at: now + AGAIN.0, pause: AGAIN.0 * 2 });
        self.enter(now, State::Started);
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
