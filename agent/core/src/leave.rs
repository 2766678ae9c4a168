//! When an agent may exit without STOPPED because another one continues: re-exec or takeover.

use core::time::Duration;

use crate::time::Uptime;

/// Idle time required before an exit, because the host's requests follow one another.
const QUIET: Duration = Duration::from_millis(100);
/// Longest wait for results that the host may still request. A host that runs one short command
/// after another must not delay the exit forever.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for peers that may be hostile, until the agent accepts no more callers. After
/// [`LEAVE_DEADLINE`] a moment without any peer suffices.
const PEERS_DEADLINE: Duration = Duration::from_secs(20);
/// Longest wait for the handshakes in progress when the agent stops accepting: their time limit is
/// 3 s. Those of the host become requests, so the host loses no call.
const LAST_HANDSHAKES: Duration = Duration::from_secs(4);
/// Longest wait for a host that only listens to events: such a host waits for the end of a command,
/// or is about to send one. If its listener is closed, the host reports exit code 129 (P§4.1).
const LISTENER_DEADLINE: Duration = Duration::from_secs(60);
/// Longest wait for the host before a takeover. The other agent waits for 5 s.
const BEFORE_TAKEOVER: Duration = Duration::from_secs(3);
/// Longest time for the host's commands after a takeover.
const DRAIN: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Idle,
    /// Only results of commands that the host may still request.
    Results,
    /// Only handshakes, whose callers may be any program, or reports by programs in the guest.
    Peers,
    /// A host that listens to events, or results beside handshakes.
    Listener,
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    /// Wait, and accept no callers: they stay in the listen queue for the agent that continues.
    Drain,
    Leave,
}

/// An exit that waits for what is in progress.
#[derive(Debug)]
pub struct Leave {
    asked: Uptime,
    latest: Option<Uptime>,
    /// The current load, and since when.
    steady: (Load, Uptime),
}

impl Leave {
    /// Waits for a re-exec, without a limit for commands: one of them may be the upgrade itself.
    pub const fn reexec(asked: Uptime) -> Self {
        Self::new(asked, None)
    }

    /// Waits before a takeover, while this agent still serves the host.
    pub fn before_takeover(now: Uptime) -> Self {
        Self::new(now, Some(now + BEFORE_TAKEOVER))
    }

    /// Waits after a takeover: the other agent serves the host from now on.
    pub fn replaced(now: Uptime) -> Self {
        Self::new(now, Some(now + DRAIN))
    }

    const fn new(asked: Uptime, latest: Option<Uptime>) -> Self {
        Self { asked, latest, steady: (Load::Busy, asked) }
    }

    /// Returns what to do now; after all but [`Step::Leave`], call it again soon.
    pub fn step(&mut self, now: Uptime, load: Load) -> Step {
        if self.steady.0 != load {
            self.steady = (load, now);
        }
        let since = self.steady.1;
        let is_quiet = now - since >= QUIET;
        let is_late = now >= self.asked + LEAVE_DEADLINE;
        let last_accept = since.max(self.asked + PEERS_DEADLINE);
        let is_free = match load {
            Load::Idle => is_late || is_quiet,
            Load::Results => is_late && is_quiet,
            Load::Peers => now >= last_accept + LAST_HANDSHAKES,
            Load::Listener => now >= self.asked + LISTENER_DEADLINE,
            Load::Busy => false,
        };
        if is_free || self.latest.is_some_and(|latest| now >= latest) {
            Step::Leave
        } else if load == Load::Peers && now >= last_accept {
            Step::Drain
        } else {
            Step::Wait
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Uptime = Uptime(Duration::ZERO);

    /// Returns when an agent with this load over time may exit, ms.
    fn leaves(mut leave: Leave, loads: &[(Load, u64, u64)]) -> Option<u64> {
        (0..1_000_000).step_by(50).find(|at| {
            let now = loads.iter().find(|(_, begin, end)| (begin..end).contains(&at));
            let load = now.map_or(Load::Idle, |(load, ..)| *load);
            leave.step(Uptime::from_millis(*at), load) == Step::Leave
        })
    }

    #[test]
    fn leaves_once_idle_or_after_its_limit() {
        use Load::{Busy, Listener, Peers, Results};
        let reexec = || Leave::reexec(START);
        let always = [(Busy, 0, u64::MAX)];
        for (leave, loads, expected) in [
            (reexec(), &[][..], Some(100)),
            (reexec(), &[(Busy, 0, 300), (Busy, 350, 1000)], Some(1100)),
            (reexec(), &[(Busy, 0, 300), (Results, 300, 5300)], Some(5400)),
            (reexec(), &[(Busy, 0, 30_000)], Some(30_000)),
            // A busy host does not delay it forever.
            (reexec(), &[(Busy, 0, 9_950), (Results, 9_950, u64::MAX)], Some(10_050)),
            // A listener outlasts its commands' results, but does not delay it forever, either.
            (reexec(), &[(Listener, 0, 20_000), (Results, 20_000, 25_000)], Some(20_100)),
            (reexec(), &[(Listener, 0, u64::MAX)], Some(60_000)),
            (reexec(), &[(Peers, 0, u64::MAX)], Some(24_000)),
            (reexec(), &[(Peers, 0, 21_000), (Busy, 21_000, 30_000)], Some(30_000)),
            (reexec(), &[(Peers, 0, 21_000), (Results, 21_000, u64::MAX)], Some(21_100)),
            (reexec(), &[(Peers, 0, 12_000), (Peers, 12_050, u64::MAX)], Some(12_000)),
            // Only a takeover limits the wait for commands.
            (reexec(), &always, None),
            (Leave::replaced(START), &always, Some(300_000)),
            (Leave::before_takeover(START), &always, Some(3_000)),
            (Leave::before_takeover(START), &[(Listener, 0, 200)], Some(300)),
            (Leave::replaced(START), &[(Busy, 0, 200)], Some(300)),
        ] {
            assert_eq!(leaves(leave, loads), expected, "{loads:?}");
        }
    }
}
