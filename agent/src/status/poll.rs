//! The outputs of the status machine: what is due, and when the next thing will be.

use super::{
    Address, Connect, How, READ, REFRESH, REFRESHED, REPLACED, RefusedLine, State, Status, TURN,
    Word,
};
use crate::time::Uptime;

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
    /// For the log: a CONNECT line is not followed.
    Refused(RefusedLine),
    /// For the log: a CONNECT line is followed.
    Told(Address),
    /// For the log.
    Changed(State),
}

/// The line that announces us.
pub const HERE: &[u8] = b"STARTED\n";
/// The lines that say we are leaving: twice, since newer Incus reads the last but one (P§2.3).
pub const GONE: &[u8] = b"STOPPED\nSTOPPED\n";

impl Word {
    fn line(self) -> &'static [u8] {
        match self {
            Self::Started => HERE,
            // For a host that looks into the ring for the first time: newer Incus reads the last
            // but one line (P§2.3), which must not be an old CONNECTED. 16 bytes, the whole ring.
            Self::Refresh => b"STARTED\nSTARTED\n",
            Self::Connected => b"CONNECTED\n",
            Self::Stopped => GONE,
        }
    }
}

impl Status {
    /// What to do now; to be called until `None`. A late call catches up with one line, never with
    /// a burst.
    pub fn poll(&mut self, now: Uptime) -> Option<Action> {
        if let Some(why) = self.refused.take() {
            return Some(Action::Refused(why));
        }
        self.expire(now);
        self.begin(now);
        if let Some(address) = self.told.take() {
            return Some(Action::Told(address));
        }
        if let Some(verification) = &mut self.verification
            && verification.due.take_if(|due| *due <= now).is_some()
        {
            let Connect { address, fingerprint } = verification.target;
            return Some(Action::Verify { address, fingerprint, attempt: verification.attempt });
        }
        if self.reported != Some(self.state) {
            self.reported = Some(self.state);
            return Some(Action::Changed(self.state));
        }
        if now < self.blocked {
            return None;
        }
        let word = self.say.take().or_else(|| self.due_word(now))?;
        self.last = word;
        self.written = Some(now);
        let visible = word != Word::Refresh;
        let kick = visible && self.state != State::Connected;
        Some(Action::Write { line: word.line(), visible, kick })
    }

    /// The word that is due by the clock, and sets when the next one is.
    fn due_word(&mut self, now: Uptime) -> Option<Word> {
        match self.state {
            State::Connect | State::Stopped => None,
            State::Started if self.turn.is_some_and(|turn| turn <= now) => {
                self.next_turn = now + TURN;
                self.turn = Some(self.next_turn);
                self.announce = now + READ;
                Some(Word::Stopped)
            }
            State::Started if self.announce <= now => {
                self.announce = now + self.intervals.started;
                Some(Word::Started)
            }
            State::Connected if self.announce <= now => {
                self.untold = self.untold.saturating_sub(1);
                self.announce = now + self.announce_pace();
                self.refresh = self.refresh.map(|_| now + REFRESH);
                Some(Word::Started)
            }
            State::Connected if self.refresh.is_some_and(|refresh| refresh <= now) => {
                self.refresh = Some(now + REFRESHED);
                Some(Word::Refresh)
            }
            State::Started | State::Connected => None,
        }
    }

    /// A verification that takes too long has failed.
    fn expire(&mut self, now: Uptime) {
        if let Some(late) = self.verification.filter(|it| it.deadline <= now) {
            self.verified(now, late.attempt, false);
        }
    }

    /// Begins the next verification, if one is due. A CONNECT line goes before our own tries.
    fn begin(&mut self, now: Uptime) {
        if self.next_connect <= now
            && let Some(connect) = self.waiting.take()
        {
            let replaces = self.verification.is_some();
            self.next_connect = now + if replaces { REPLACED } else { self.intervals.connect };
            self.follow(now, connect, How::Connect { since: now });
            // Where we are already, it is only looked whether that still is so.
            if self.state != State::Connected || self.known != Some(connect) {
                self.told = Some(connect.address);
                self.enter(now, State::Connect);
            }
        }
        if self.state == State::Started
            && self.verification.is_none()
            && self.retry.is_some_and(|retry| retry.at <= now)
            && let Some(known) = self.known
        {
            self.follow(now, known, How::Own);
        }
    }

    /// When [`Status::poll`], having given `None`, will next have something to say by itself. Any
    /// other method may change it.
    #[must_use]
    pub fn deadline(&self) -> Option<Uptime> {
        let unblocked = |when: Uptime| when.max(self.blocked);
        let written = match self.state {
            State::Started => Some(self.turn.map_or(self.announce, |turn| turn.min(self.announce))),
            State::Connected => {
                Some(self.refresh.map_or(self.announce, |refresh| refresh.min(self.announce)))
            }
            State::Connect | State::Stopped => None,
        };
        let retried = match (self.state, self.verification, self.known, self.retry) {
            (State::Started, None, Some(_), Some(retry)) => Some(retry.at),
            (_, verification, _, _) => verification.map(|it| it.due.unwrap_or(it.deadline)),
        };
        let followed = self.waiting.map(|_| self.next_connect);
        let said = self.say.map(|_| self.blocked);
        [written.map(unblocked), retried, followed, said].into_iter().flatten().min()
    }
}
