//! When an agent may exit without STOPPED because another one continues: re-exec or takeover.

use core::time::Duration;

use crate::time::Uptime;

/// Idle time required before an exit, because the host's requests follow one another.
const QUIET: Duration = Duration::from_millis(100);
/// After this time, a moment without any load suffices. A host that runs one short command after
/// another must not delay the exit forever.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// After this time, the agent ignores programs in the guest, and stops accepting callers for
/// [`DRAINING`] of each such period, so that handshakes and requests come to an end.
const DRAIN_PERIOD: Duration = Duration::from_secs(20);
/// Maximum wait of the host's own calls in the listen queue.
const DRAINING: Duration = Duration::from_millis(2500);
/// After the first time, how long a host must only have listened to events: it may be about to send
/// a command. Incus listens all the time, and may call now and then. If a listener is closed before
/// its command ends, the host reports exit code 129 (P§4.1).
const LISTENERS: [(Duration, Duration); 3] = [
    (Duration::from_secs(120), Duration::ZERO),
    (Duration::from_secs(60), Duration::from_secs(2)),
    (Duration::ZERO, Duration::from_secs(10)),
];
/// Maximum wait for a host that does not fetch its results, which the agent keeps for 5 s.
const RESULTS_DEADLINE: Duration = Duration::from_secs(120);
/// Maximum wait for the host before a takeover. The other agent waits for 5 s.
const BEFORE_TAKEOVER: Duration = Duration::from_secs(3);
/// Maximum time for the host's commands after a takeover.
const DRAIN: Duration = Duration::from_secs(300);

/// What is in progress. If several of these are, it is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Idle,
    /// Programs in the guest report to the host.
    Guests,
    /// Callers, which may be any program, are in their handshake.
    Handshakes,
    /// The host's requests, which need no other connection.
    Requests,
    /// A host listens to events.
    Listener,
    /// A host may still request the results of commands.
    Results,
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Wait,
    /// Wait, and accept no callers: they stay in the listen queue for the agent that takes over.
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
        let (waited, unchanged) = (now - self.asked, now - self.steady.1);
        let is_free = match load {
            Load::Idle => waited >= LEAVE_DEADLINE || unchanged >= QUIET,
            Load::Guests => waited >= DRAIN_PERIOD,
            Load::Listener => LISTENERS
                .iter()
                .any(|(after, is_enough)| waited >= *after && unchanged >= *is_enough),
            Load::Results => waited >= RESULTS_DEADLINE,
            Load::Handshakes | Load::Requests | Load::Busy => false,
        };
        let is_draining = waited >= DRAIN_PERIOD
            && waited.as_millis() % DRAIN_PERIOD.as_millis() < DRAINING.as_millis();
        if is_free || self.latest.is_some_and(|latest| now >= latest) {
            Step::Leave
        } else if is_draining && matches!(load, Load::Handshakes | Load::Requests) {
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
        use Load::{Busy, Guests, Handshakes, Listener, Requests, Results};
        let reexec = || Leave::reexec(START);
        let always = [(Busy, 0, u64::MAX)];
        for (leave, loads, expected) in [
            (reexec(), &[][..], Some(100)),
            (reexec(), &[(Busy, 0, 300), (Busy, 350, 1000)], Some(1100)),
            (reexec(), &[(Busy, 0, 300), (Results, 300, 5300)], Some(5400)),
            (reexec(), &[(Busy, 0, 30_000)], Some(30_000)),
            // A listener outlasts its commands' results, but does not delay it forever.
            (reexec(), &[(Listener, 0, 8_000), (Results, 8_000, 13_000)], Some(13_000)),
            (reexec(), &[(Listener, 0, u64::MAX)], Some(10_000)),
            // A host that listens and runs commands one after another.
            (
                reexec(),
                &[(Listener, 0, 9_900), (Busy, 9_900, 12_000), (Listener, 12_000, u64::MAX)],
                Some(22_000),
            ),
            (reexec(), &[(Busy, 0, 61_000), (Listener, 61_000, u64::MAX)], Some(63_000)),
            (reexec(), &[(Busy, 0, 121_000), (Listener, 121_000, u64::MAX)], Some(121_000)),
            (reexec(), &[(Busy, 0, 61_000), (Results, 61_000, u64::MAX)], Some(120_000)),
            (reexec(), &[(Guests, 0, u64::MAX)], Some(20_000)),
            (reexec(), &[(Handshakes, 0, 12_000), (Requests, 12_050, u64::MAX)], Some(12_000)),
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

    #[test]
    fn drains_for_a_part_of_each_period() {
        for (load, drains) in
            [(Load::Handshakes, true), (Load::Requests, true), (Load::Busy, false)]
        {
            let mut leave = Leave::reexec(START);
            let drained: Vec<u64> = (0..60)
                .filter(|at| leave.step(Uptime::from_millis(1_000 * at), load) == Step::Drain)
                .collect();
            let expected: &[u64] = if drains { &[20, 21, 22, 40, 41, 42] } else { &[] };
            assert_eq!(drained, expected, "{load:?}");
        }
    }
}
