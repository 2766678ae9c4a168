//! Inputs about the host: its address, the results of calls to it, and its loss.

use core::time::Duration;

use super::{
    CONNECT_DEADLINE, Heard, Host, How, NO_CALL_TIMEOUT, Phase, REFRESH, STOPPED_TO_STARTED, State,
    Status, StatusLine, Timer, VERIFY, VERIFY_BACKOFF_MAX, VERIFY_BACKOFF_MIN, Verification, pace,
};
use crate::time::Uptime;

impl Status {
    /// Takes the host from `agent.conf` or from an earlier agent's file at start. It is verified in
    /// the background while announcements continue. Does nothing once the host has given its
    /// address itself.
    pub fn know(&mut self, now: Uptime, host: Host) {
        if self.state() == State::Started && self.heard == Heard::Nothing {
            self.link.tell(host);
            self.link.verifying = None;
            self.timers.stop(Timer::Call);
            self.timers.stop(Timer::Expire);
            self.timers.set(Timer::Retry, now);
            self.phase = Phase::Started { pause: VERIFY_BACKOFF_MIN };
        }
    }

    /// Records that `PUT /1.0` was received. Its handler makes the call itself and reports the
    /// result to [`Status::verified`] with the number that this method returns.
    pub fn put_started(&mut self, now: Uptime, host: Host) -> u32 {
        if self.state() == State::Stopped {
            // The machine is stopping: `verified` ignores this number.
            return self.link.attempts;
        }
        self.forget_line();
        self.link.tell(host);
        self.enter_connect(now, now, host, How::Put);
        self.timers.stop(Timer::Call);
        self.link.attempts
    }

    /// Begins a verification, due at `when`. It replaces any other.
    pub(super) fn verify(&mut self, when: Uptime, target: Host, how: How) {
        self.link.verify(target, how);
        self.timers.set(Timer::Call, when);
        self.timers.set(Timer::Expire, when + VERIFY);
        self.timers.stop(Timer::Retry);
    }

    /// Enters CONNECT with a verification that is due at `when`. Nothing is written in CONNECT.
    pub(super) fn enter_connect(&mut self, now: Uptime, when: Uptime, target: Host, how: How) {
        self.verify(when, target, how);
        for timer in [Timer::Announce, Timer::Refresh, Timer::Turn] {
            self.timers.stop(timer);
        }
        self.enter(now, Phase::Connect);
    }

    /// Takes the result of a verification. Returns false, without effect, if `attempt` is not the
    /// number of the current one.
    pub fn verified(&mut self, now: Uptime, attempt: u32, ok: bool) -> bool {
        let Some(Verification { target, how, .. }) = self.link.end(attempt, ok) else {
            return false;
        };
        self.timers.stop(Timer::Call);
        self.timers.stop(Timer::Expire);
        match (how, ok) {
            (How::Put, true) => self.confirmed(now, Heard::Put),
            (How::Connect { .. }, true) => self.confirmed(now, Heard::Connect),
            // Still connected.
            (How::Own, true) if self.state() == State::Connected => {}
            (How::Own, true) => self.regained(now),
            (How::Put, false) => {
                // The host is alive, since it sent a PUT, but it sends no further PUT by itself.
                self.heard = Heard::Put;
                self.lost(now, STOPPED_TO_STARTED);
            }
            (How::Connect { since }, false) => {
                let again = now + self.intervals.connect.max(now - since);
                if again < since + CONNECT_DEADLINE {
                    self.enter_connect(now, again, target, how);
                } else {
                    self.lost(now, NO_CALL_TIMEOUT);
                }
            }
            (How::Own, false) => match &mut self.phase {
                Phase::Started { pause } => {
                    self.timers.set(Timer::Retry, now + *pause);
                    // By then, a host that only restarted has returned. Guests' calls then go to
                    // the other address, too.
                    if self.heard == Heard::Nothing && *pause == VERIFY_BACKOFF_MAX {
                        self.link.try_other();
                    }
                    *pause = (*pause * 2).min(VERIFY_BACKOFF_MAX);
                }
                Phase::Connect | Phase::Connected { .. } | Phase::Stopped { .. } => {
                    self.lost(now, NO_CALL_TIMEOUT);
                }
            },
        }
        true
    }

    /// Records that a verification could not be made because the agent ran out of descriptors or
    /// memory, which says nothing about the host. In CONNECTED it is repeated a little later;
    /// elsewhere it counts as failed. Returns the same as [`Status::verified`].
    pub fn not_made(&mut self, now: Uptime, attempt: u32) -> bool {
        match self.link.verifying {
            Some(Verification { attempt: current, target, how })
                if current == attempt && self.state() == State::Connected =>
            {
                self.verify(now + VERIFY_BACKOFF_MIN, target, how);
                true
            }
            _ => self.verified(now, attempt, false),
        }
    }

    /// Records that the host answered an ordinary call with this HTTP status. A success proves
    /// nothing, but in STARTED it brings the agent's own verification forward. So does 401 in
    /// CONNECTED: the verification fails if the host no longer knows the agent. Returns whether the
    /// verification was brought forward, so that the shell must poll.
    pub fn call_answered(&mut self, now: Uptime, status: u16) -> bool {
        match (status, self.state()) {
            (200..300, State::Started) | (401, State::Connected) => self.verify_soon(now),
            _ => false,
        }
    }

    fn verify_soon(&mut self, now: Uptime) -> bool {
        let at = now.max(self.not_before.own);
        let sooner = self.host().is_some()
            && self.link.verifying.is_none()
            && self.timers.get(Timer::Retry).is_none_or(|due| at < due);
        if sooner {
            self.timers.set(Timer::Retry, at);
        }
        sooner
    }

    /// Records that an ordinary call to the host failed.
    pub fn host_lost(&mut self, now: Uptime) {
        if self.state() == State::Connected {
            self.lost(now, NO_CALL_TIMEOUT);
        }
    }

    fn confirmed(&mut self, now: Uptime, heard: Heard) {
        self.heard = heard;
        self.connected(now, 0, true);
    }

    /// Records that a verification by the agent itself succeeded. Does not write CONNECTED, which
    /// would hide STARTED from a host that has not read it yet.
    fn regained(&mut self, now: Uptime) {
        let eager = if self.heard == Heard::Nothing { pace::EAGER_ANNOUNCEMENTS } else { 0 };
        self.connected(now, eager, false);
    }

    fn connected(&mut self, now: Uptime, eager: u8, owed: bool) {
        // A host that has never called may have tried while this agent could not answer. It tries
        // again only after STOPPED and STARTED.
        if self.heard != Heard::Nothing {
            self.timers.stop(Timer::Turn);
        }
        match self.heard {
            Heard::Nothing | Heard::Put => self.timers.set(Timer::Refresh, now + REFRESH),
            // A host that sends CONNECT reads the port itself instead of a ring: it sees every
            // line, may answer each STARTED with CONNECT, and sends it by itself after its daemon
            // restarts (decisions §1).
            Heard::Connect => self.timers.stop(Timer::Refresh),
        }
        // After the STOPPED of `Timer::Turn` its STARTED must still be written.
        let pause = if self.last == StatusLine::Stopped {
            STOPPED_TO_STARTED
        } else {
            self.announce_pace(eager)
        };
        self.timers.set(Timer::Announce, now + pause);
        self.enter(now, Phase::Connected { eager, owed });
    }

    /// Enters STARTED and announces immediately. If the host does not call within `timeout`,
    /// writes STOPPED and STARTED. A running verification continues.
    fn lost(&mut self, now: Uptime, timeout: Duration) {
        self.link.lose();
        self.timers.stop(Timer::Refresh);
        self.timers.set(Timer::Announce, self.at_once(now));
        self.timers.set(Timer::Turn, self.not_before.turn.max(now + timeout));
        if self.link.verifying.is_none() && self.host().is_some() {
            self.timers.set(Timer::Retry, now + VERIFY_BACKOFF_MIN);
        }
        self.enter(now, Phase::Started { pause: VERIFY_BACKOFF_MIN * 2 });
    }
}
