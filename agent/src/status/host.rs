//! The host, as far as we know: told where it is, called, found, lost and found again.

use core::time::Duration;

use super::{
    AGAIN, Address, CONNECT_FOR, Connect, Heard, How, LOST, READ, REFRESH, Retry, State, Status,
    VERIFY, Verification, Word, pace,
};
use crate::time::Uptime;

impl Status {
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
    pub(super) fn follow(&mut self, when: Uptime, target: Connect, how: How) {
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

    /// Announces at once; takes a turn after `patience` if that is not heard.
    fn lost(&mut self, now: Uptime, patience: Duration) {
        self.say = None;
        self.announce = self.at_once(now);
        self.turn = Some(self.next_turn.max(now + patience));
        self.retry = Some(Retry { at: now + AGAIN.0, pause: AGAIN.0 * 2 });
        self.enter(now, State::Started);
    }
}
