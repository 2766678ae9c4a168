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

mod connect;
#[cfg(test)]
mod tests;

use core::time::Duration;

pub use connect::{Address, Connect, RefusedLine};

use crate::line::{Line, LineBuf};
use crate::time::Uptime;

/// Between tries to reach a host that has just told us where it is: it is there, so soon.
pub const CONNECT: Duration = Duration::from_millis(100);
/// Between announcements while nobody has told us anything. The Go agents take 5 s; a restarted
/// host should not have to wait that long.
pub const STARTED: Duration = Duration::from_secs(1);
/// Between announcements while CONNECTED: hosts forget us when they restart and act on STARTED
/// only. As the Go agents.
pub const CONNECTED: Duration = Duration::from_secs(5);
/// Between silent rewrites of STARTED while CONNECTED. They raise no event and cost the host
/// nothing, but a restarted host finds one in the ring as soon as it looks.
pub const REFRESH: Duration = Duration::from_millis(1500);
/// For one verification; the host gives a PUT 3 s in all (P§3.2).
pub const VERIFY: Duration = Duration::from_secs(3);
/// How long a CONNECT line is followed before we give up and announce ourselves again.
pub const CONNECT_FOR: Duration = Duration::from_secs(2);
/// First and longest pause between own tries of an address that was lost.
pub const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));
/// Lost for so long, a real host that never noticed has to be told anew: it sends PUT only after
/// STOPPED and STARTED (P§2.3).
pub const LOST: Duration = Duration::from_secs(15);
/// Between STOPPED and STARTED then, so that the host reads the one before the other (P§2.3).
pub const READ: Duration = Duration::from_millis(1500);
/// Between two such turns: Incus shows them to its users.
pub const TURN: Duration = Duration::from_secs(30);
/// Announcements made at the `started` pace after we connected by ourselves: the host may not have
/// seen one yet.
const UNTOLD: u8 = 10;
/// Between refused lines in the log: a hostile writer must not fill it.
const REFUSED: Duration = Duration::from_secs(10);

const LINE_STARTED: &[u8] = b"STARTED\n";
/// The silent one, for a host that looks into the ring for the first time: newer Incus reads the last
/// but one line (P§2.3), which must not be an old CONNECTED. 16 bytes, the whole ring.
const LINE_REFRESH: &[u8] = b"STARTED\nSTARTED\n";
const LINE_CONNECTED: &[u8] = b"CONNECTED\n";
/// Twice for the same reason.
const LINE_STOPPED: &[u8] = b"STOPPED\nSTOPPED\n";

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

/// How often to announce ourselves, and to look at the port, in each state.
#[derive(Clone, Copy, Debug)]
pub struct Intervals {
    /// See [`CONNECT`].
    pub connect: Duration,
    /// See [`STARTED`].
    pub started: Duration,
    /// See [`CONNECTED`].
    pub connected: Duration,
}

impl Default for Intervals {
    fn default() -> Self {
        Self { connect: CONNECT, started: STARTED, connected: CONNECTED }
    }
}

/// What the shell is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write to the port.
    Write {
        /// Whole lines.
        line: &'static [u8],
        /// Open, write, close, so that QEMU raises an event; else on the open descriptor.
        visible: bool,
        /// Open and close the dummy port behind it, so that the event comes at once.
        kick: bool,
    },
    /// Call the host, then [`Status::verified`].
    Verify {
        /// Where.
        address: Address,
        /// Which certificate, if not the known one.
        fingerprint: Option<[u8; 32]>,
        /// To be given back.
        attempt: u32,
    },
    /// For the log.
    Refused(RefusedLine),
    /// For the log.
    Changed(State),
}

/// Who told us the address of a verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Put,
    Connect { give_up: Uptime },
    Own,
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
    address: Option<Address>,
    attempts: u32,
    verification: Option<Verification>,
    /// The latest CONNECT line, until its turn comes.
    waiting: Option<Connect>,
    /// When the next one may be followed.
    next_connect: Uptime,
    retry: Option<Retry>,
    /// When to say STOPPED and STARTED to a host that does not call.
    turn: Option<Uptime>,
    announce: Uptime,
    refresh: Uptime,
    /// Eager announcements left.
    untold: u8,
    say: Option<&'static [u8]>,
    /// No writing before this: the port would not take it.
    blocked: Uptime,
    last: &'static [u8],
    refused: Option<RefusedLine>,
    next_refused: Uptime,
}

impl Status {
    /// Begins STARTED, with an announcement due at once.
    #[must_use]
    pub fn new(now: Uptime, intervals: Intervals) -> Self {
        Self {
            intervals,
            state: State::Started,
            since: now,
            reported: None,
            buf: LineBuf::default(),
            trust_known: false,
            address: None,
            attempts: 0,
            verification: None,
            waiting: None,
            next_connect: now,
            retry: None,
            turn: None,
            announce: now,
            refresh: now,
            untold: 0,
            say: None,
            blocked: now,
            last: LINE_STARTED,
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

    /// The last address that was told.
    #[must_use]
    pub fn address(&self) -> Option<Address> {
        self.address
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
            self.next_refused = now + REFUSED;
        }
    }

    fn connect_line(&mut self, connect: Connect) {
        let under_way = self.verification.is_some_and(|verification| {
            verification.target == connect && verification.how != How::Own
        });
        // The same words again while we follow them say nothing new.
        if !under_way && self.state != State::Stopped {
            self.waiting = Some(connect);
        }
    }

    /// `agent.conf`, at start: the host is probably there. It is tried in the background, while we
    /// go on announcing ourselves.
    pub fn know(&mut self, now: Uptime, address: Address) {
        self.address = Some(address);
        self.retry = Some(Retry { at: now, pause: AGAIN.0 });
    }

    /// `PUT /1.0` came; its handler verifies by itself and gives the result with this number.
    pub fn put_started(&mut self, now: Uptime, address: Address) -> u32 {
        self.waiting = None;
        let target = Connect { address, fingerprint: None };
        self.follow(now, target, How::Put);
        if let Some(verification) = &mut self.verification {
            verification.due = None;
        }
        self.attempts
    }

    fn follow(&mut self, now: Uptime, target: Connect, how: How) {
        self.attempts = self.attempts.wrapping_add(1);
        let deadline = now + VERIFY;
        let attempt = self.attempts;
        self.verification = Some(Verification { attempt, target, how, due: Some(now), deadline });
        if how != How::Own {
            self.address = Some(target.address);
            self.retry = None;
            self.turn = None;
            self.untold = 0;
            self.enter(now, State::Connect);
        }
    }

    /// How a verification went; numbers other than the current one's are old news.
    pub fn verified(&mut self, now: Uptime, attempt: u32, ok: bool) {
        let Some(verification) = self.verification.filter(|it| it.attempt == attempt) else {
            return;
        };
        self.verification = None;
        if self.state == State::Stopped {
            return;
        }
        if ok {
            if verification.how != How::Own {
                self.say = Some(LINE_CONNECTED);
            } else if self.turn.is_none() {
                self.untold = UNTOLD;
            }
            return self.connected(now);
        }
        match verification.how {
            How::Connect { give_up } if now + self.intervals.connect < give_up => {
                self.follow(now, verification.target, verification.how);
                if let Some(again) = &mut self.verification {
                    again.due = Some(now + self.intervals.connect);
                }
            }
            How::Put | How::Connect { .. } => {
                // The host is alive, it has just told us; but it will not do so again by itself.
                self.turn = Some(now + READ);
                self.lost(now);
            }
            How::Own => {
                let pause = self.retry.map_or(AGAIN.0, |retry| retry.pause);
                self.retry = Some(Retry { at: now + pause, pause: (pause * 2).min(AGAIN.1) });
            }
        }
    }

    /// An ordinary call to the host worked.
    pub fn call_ok(&mut self, now: Uptime) {
        if self.state == State::Started && self.address.is_some() {
            if self.verification.is_some_and(|verification| verification.how == How::Own) {
                self.verification = None;
            }
            self.connected(now);
        }
    }

    /// An ordinary call to the host failed.
    pub fn host_lost(&mut self, now: Uptime) {
        if self.state == State::Connected {
            self.turn = Some(now + LOST);
            self.lost(now);
        }
    }

    fn connected(&mut self, now: Uptime) {
        self.retry = None;
        self.turn = None;
        self.refresh = now + REFRESH;
        let pace = if self.untold > 0 { self.intervals.started } else { self.intervals.connected };
        self.announce = now + pace;
        self.enter(now, State::Connected);
    }

    fn lost(&mut self, now: Uptime) {
        self.say = None;
        self.announce = now;
        self.retry = Some(Retry { at: now + AGAIN.0, pause: AGAIN.0 * 2 });
        self.enter(now, State::Started);
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
        self.blocked = now;
        self.announce = self.announce.min(now);
    }

    /// The last write did not happen: it is repeated, but not at once.
    pub fn write_failed(&mut self, now: Uptime) {
        self.blocked = now + self.intervals.started;
        if self.last == LINE_STARTED || self.last == LINE_REFRESH {
            self.announce = self.announce.min(self.blocked);
        } else {
            self.say = Some(self.last);
        }
    }

    /// We are leaving; the last line says so.
    pub fn stop(&mut self, now: Uptime) {
        self.say = Some(LINE_STOPPED);
        self.blocked = now;
        self.verification = None;
        self.enter(now, State::Stopped);
    }

    /// What to do now; to be called until `None`. A late call catches up with one line, never with
    /// a burst.
    pub fn poll(&mut self, now: Uptime) -> Option<Action> {
        if let Some(why) = self.refused.take() {
            return Some(Action::Refused(why));
        }
        self.expire(now);
        if let Some(verify) = self.begin(now) {
            return Some(verify);
        }
        if self.reported != Some(self.state) {
            self.reported = Some(self.state);
            return Some(Action::Changed(self.state));
        }
        if now < self.blocked {
            return None;
        }
        if let Some(line) = self.say.take() {
            return Some(self.write(line, true));
        }
        match self.state {
            State::Connect | State::Stopped => None,
            State::Started if self.turn.is_some_and(|turn| turn <= now) => {
                self.turn = Some(now + TURN);
                self.announce = now + READ;
                Some(self.write(LINE_STOPPED, true))
            }
            State::Started if self.announce <= now => {
                self.announce = now + self.intervals.started;
                Some(self.write(LINE_STARTED, true))
            }
            State::Connected if self.announce <= now => {
                self.untold = self.untold.saturating_sub(1);
                let eager = self.untold > 0;
                let pace = if eager { self.intervals.started } else { self.intervals.connected };
                self.announce = now + pace;
                self.refresh = now + REFRESH;
                Some(self.write(LINE_STARTED, true))
            }
            State::Connected if self.refresh <= now => {
                self.refresh = now + REFRESH;
                Some(self.write(LINE_REFRESH, false))
            }
            State::Started | State::Connected => None,
        }
    }

    fn write(&mut self, line: &'static [u8], visible: bool) -> Action {
        self.last = line;
        let kick = visible && self.state != State::Connected;
        Action::Write { line, visible, kick }
    }

    /// A verification that takes too long has failed.
    fn expire(&mut self, now: Uptime) {
        if let Some(late) = self.verification.filter(|it| it.deadline <= now) {
            self.verified(now, late.attempt, false);
        }
    }

    /// The next verification, if one is due and none is under way. A CONNECT line goes before our
    /// own tries.
    fn begin(&mut self, now: Uptime) -> Option<Action> {
        if self.state == State::Stopped {
            return None;
        }
        if self.waiting.is_some() && self.next_connect <= now {
            let connect = self.waiting.take()?;
            self.next_connect = now + self.intervals.connect;
            self.follow(now, connect, How::Connect { give_up: now + CONNECT_FOR });
        }
        if self.verification.is_none()
            && self.retry.is_some_and(|retry| retry.at <= now)
            && let Some(address) = self.address
        {
            self.follow(now, Connect { address, fingerprint: None }, How::Own);
        }
        let verification = self.verification.as_mut()?;
        if verification.due.is_none_or(|due| now < due) {
            return None;
        }
        verification.due = None;
        let Connect { address, fingerprint } = verification.target;
        Some(Action::Verify { address, fingerprint, attempt: verification.attempt })
    }

    /// When [`Status::poll`] will next have something to say by itself.
    #[must_use]
    pub fn deadline(&self) -> Option<Uptime> {
        let mut next = None;
        let mut at = |when: Option<Uptime>| {
            if let Some(when) = when {
                next = Some(next.map_or(when, |known: Uptime| known.min(when)));
            }
        };
        let write = |when: Uptime| Some(when.max(self.blocked));
        if let Some(verification) = &self.verification {
            at(Some(verification.due.unwrap_or(verification.deadline)));
        }
        if self.state != State::Stopped {
            at(self.waiting.map(|_| self.next_connect));
            if self.verification.is_none() && self.address.is_some() {
                at(self.retry.map(|retry| retry.at));
            }
        }
        if self.say.is_some() {
            at(Some(self.blocked));
        }
        match self.state {
            State::Started => {
                at(write(self.announce));
                at(self.turn.and_then(write));
            }
            State::Connected => at(write(self.announce.min(self.refresh))),
            State::Connect | State::Stopped => {}
        }
        next
    }
}
