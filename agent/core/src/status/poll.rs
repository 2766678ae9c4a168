//! Outputs of the status machine: the action that is due, and the time of the next one.

use super::{
    Host, How, Phase, REFRESH, REFRESHED, REPLACED_PAUSE, RESTART_INTERVAL, RefusedLine,
    STOPPED_TO_STARTED, State, Status, StatusLine, Timer, VERIFY_BACKOFF_MIN, Verification,
};
use crate::host_address::HostAddress;
use crate::time::Uptime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Write {
        /// One or two complete lines.
        line: &'static [u8],
        /// Whether to close the port after the write, so that QEMU raises an event.
        visible: bool,
        /// Whether to then open and close the dummy port, whose event QEMU raises immediately.
        kick: bool,
    },
    /// Call the host, then report the result to [`Status::verified`] with the number `attempt`.
    Verify { host: Host, attempt: u32 },
    /// For the log: a CONNECT line was refused.
    Refused(RefusedLine),
    /// For the log: a CONNECT line is followed.
    HostAddress(HostAddress),
    /// For the log: the new state, or another address in [`State::Connected`]. [`State::Connect`]
    /// leads to one of the others and is not logged.
    Changed(State),
}

pub const STARTED_LINE: &[u8] = b"STARTED\n";
/// Reports the agent's end: twice, since newer Incus reads the line before the last (P§2.3).
pub const STOPPED_LINES: &[u8] = b"STOPPED\nSTOPPED\n";

impl StatusLine {
    fn text(self) -> &'static [u8] {
        match self {
            Self::Started => STARTED_LINE,
            // 16 bytes, which fill the ring: newer Incus reads the line before the last (P§2.3),
            // and a restarted host must not find an old CONNECTED there.
            Self::Refresh => b"STARTED\nSTARTED\n",
            Self::Connected => b"CONNECTED\n",
            Self::Stopped => STOPPED_LINES,
        }
    }
}

impl Status {
    /// Returns the next action that is due; call it until it returns `None`. After a long pause it
    /// writes one line, not each missed one.
    pub fn poll(&mut self, now: Uptime) -> Option<Action> {
        if let Some(why) = self.log.refused.take() {
            return Some(Action::Refused(why));
        }
        self.expire(now);
        self.follow_line(now);
        self.retry(now);
        if let Some(address) = self.log.followed.take() {
            return Some(Action::HostAddress(address));
        }
        if self.timers.is_due(Timer::Call, now)
            && let Some(Verification { attempt, target: host, .. }) = self.link.verifying
        {
            self.timers.stop(Timer::Call);
            return Some(Action::Verify { host, attempt });
        }
        let state = self.state();
        let at = self.address().filter(|_| state == State::Connected);
        if state != State::Connect && self.log.state != Some((state, at)) {
            self.log.state = Some((state, at));
            return Some(Action::Changed(state));
        }
        if now < self.not_before.write {
            return None;
        }
        let line = self.owed_line().or_else(|| self.due_line(now))?;
        self.last = line;
        self.written = Some(now);
        let visible = line != StatusLine::Refresh;
        let kick = visible && state != State::Connected;
        Some(Action::Write { line: line.text(), visible, kick })
    }

    /// Returns the CONNECTED or STOPPED that the state still has to write.
    fn owed_line(&mut self) -> Option<StatusLine> {
        let (owed, line) = match &mut self.phase {
            Phase::Connected { owed, .. } => (owed, StatusLine::Connected),
            Phase::Stopped { owed } => (owed, StatusLine::Stopped),
            Phase::Started { .. } | Phase::Connect => return None,
        };
        core::mem::take(owed).then_some(line)
    }

    /// Returns the line whose timer is due, and sets the timer for the next one.
    fn due_line(&mut self, now: Uptime) -> Option<StatusLine> {
        if self.timers.is_due(Timer::Turn, now) {
            self.not_before.turn = now + RESTART_INTERVAL;
            if self.state() == State::Connected {
                // Do this only once, because the host works without having called.
                self.timers.stop(Timer::Turn);
            } else {
                self.timers.set(Timer::Turn, now + RESTART_INTERVAL);
            }
            self.timers.set(Timer::Announce, now + STOPPED_TO_STARTED);
            return Some(StatusLine::Stopped);
        }
        if self.timers.is_due(Timer::Announce, now) {
            let mut pace = self.intervals.started;
            if let Phase::Connected { eager, .. } = &mut self.phase {
                *eager = eager.saturating_sub(1);
                let left = *eager;
                pace = self.announce_pace(left);
            }
            self.timers.set(Timer::Announce, now + pace);
            if self.timers.get(Timer::Refresh).is_some() {
                self.timers.set(Timer::Refresh, now + REFRESH);
            }
            return Some(StatusLine::Started);
        }
        if self.timers.is_due(Timer::Refresh, now) {
            self.timers.set(Timer::Refresh, now + REFRESHED);
            return Some(StatusLine::Refresh);
        }
        None
    }

    /// Fails a verification that takes too long.
    fn expire(&mut self, now: Uptime) {
        if self.timers.is_due(Timer::Expire, now)
            && let Some(late) = self.link.verifying
        {
            self.verified(now, late.attempt, false);
        }
    }

    /// Follows the pending CONNECT line if it is due; polled before [`Status::retry`].
    fn follow_line(&mut self, now: Uptime) {
        if !self.timers.is_due(Timer::Follow, now) {
            return;
        }
        let Some(host) = self.waiting else { return };
        self.forget_line();
        let replaces = self.link.verifying.is_some();
        let pause = if replaces { REPLACED_PAUSE } else { self.intervals.connect };
        self.not_before.connect = now + pause;
        let how = How::Connect { since: now };
        if self.state() == State::Connected && self.host() == Some(host) {
            // A CONNECT line with the current address only verifies it again.
            self.verify(now, host, how);
            self.phase = Phase::Connected { eager: 0, owed: false };
        } else {
            self.log.followed = Some(host.address);
            self.enter_connect(now, now, host, how);
        }
    }

    /// Begins a verification of the known host if [`Timer::Retry`] is due.
    fn retry(&mut self, now: Uptime) {
        if !self.timers.is_due(Timer::Retry, now) {
            return;
        }
        let Some(known) = self.host() else { return };
        self.not_before.own = now + VERIFY_BACKOFF_MIN;
        self.verify(now, known, How::Own);
    }

    /// Returns when to call [`Status::poll`] again after it has returned `None`; `None` if there
    /// will be no action without an input. Any other method may change that time.
    pub fn deadline(&self) -> Option<Uptime> {
        let blocked = self.not_before.write;
        let next = self.timers.next(blocked);
        let owed = self.phase.owes_line().then_some(blocked);
        [next, owed].into_iter().flatten().min()
    }
}
