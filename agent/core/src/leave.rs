//! When an agent may exit without STOPPED because another one continues: re-exec or takeover.

use core::time::Duration;

use crate::time::Uptime;

/// Idle time required before an exit, because the host's requests follow one another.
const QUIET: Duration = Duration::from_millis(100);
/// Longest wait for results that the host may still request. A host that runs one short command
/// after another must not delay the exit forever.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// Longest wait for peers that may be hostile. After [`LEAVE_DEADLINE`] a moment without any peer
/// suffices, so a host that makes one call after another loses none. A host that makes several at
/// once may have no such moment, and then loses those in their handshake.
const PEERS_DEADLINE: Duration = Duration::from_secs(20);
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
    /// Only handshakes, whose callers may be any program, or reports by programs in the guest;
    /// perhaps also results.
    Peers,
    /// A host that listens to events; perhaps also results.
    Listener,
    Busy,
}

/// An exit that waits for what is in progress.
#[derive(Debug)]
pub struct Leave {
    asked: Uptime,
    latest: Option<Uptime>,
    quiet_since: Option<Uptime>,
}

impl Leave {
    /// Waits for a re-exec, without a limit for commands: one of them may be the upgrade itself.
    pub const fn reexec(asked: Uptime) -> Self {
        Self { asked, latest: None, quiet_since: None }
    }

    /// Waits before a takeover, while this agent still serves the host.
    pub fn before_takeover(now: Uptime) -> Self {
        Self { asked: now, latest: Some(now + BEFORE_TAKEOVER), quiet_since: None }
    }

    /// Waits after a takeover: the other agent serves the host from now on.
    pub fn replaced(now: Uptime) -> Self {
        Self { asked: now, latest: Some(now + DRAIN), quiet_since: None }
    }

    /// Returns whether the agent may exit now; call it again soon otherwise.
    pub fn may(&mut self, now: Uptime, load: Load) -> bool {
        let waited = now - self.asked;
        let is_late = waited >= LEAVE_DEADLINE;
        match load {
            Load::Idle => {}
            Load::Results if is_late => {}
            Load::Peers if waited >= PEERS_DEADLINE => {}
            Load::Listener if waited >= LISTENER_DEADLINE => {}
            Load::Results | Load::Peers | Load::Listener | Load::Busy => {
                self.quiet_since = None;
                return self.latest.is_some_and(|latest| now >= latest);
            }
        }
        is_late || now - *self.quiet_since.get_or_insert(now) >= QUIET
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
            leave.may(Uptime::from_millis(*at), now.map_or(Load::Idle, |(load, ..)| *load))
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
            (reexec(), &[(Busy, 0, 9_900), (Results, 9_900, u64::MAX)], Some(10_000)),
            // A listener outlasts its commands' results, but does not delay it forever, either.
            (reexec(), &[(Listener, 0, 20_000), (Results, 20_000, 25_000)], Some(20_000)),
            (reexec(), &[(Listener, 0, u64::MAX)], Some(60_000)),
            (reexec(), &[(Peers, 0, u64::MAX)], Some(20_000)),
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
