//! When an agent may end without a word to the host, since another goes on in its place: the program started anew, or
//! a second agent.

use core::time::Duration;

use crate::time::Uptime;

/// How long nothing of the host's has to be under way: one request of the host follows the other.
const QUIET: Duration = Duration::from_millis(100);
/// How long results that the host may still ask for are waited for. A host that runs one short command after another
/// must not put the end off for ever.
const LEAVE_DEADLINE: Duration = Duration::from_secs(10);
/// How long commands of the host may go on after a second agent has taken over.
const DRAIN: Duration = Duration::from_secs(300);

/// What is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Nothing.
    Idle,
    /// Nothing but results of commands, which the host may ask for.
    Results,
    /// A request, a command, a session.
    Busy,
}

/// An end that waits for what is under way.
#[derive(Debug)]
pub struct Leave {
    asked: Uptime,
    latest: Option<Uptime>,
    quiet_since: Option<Uptime>,
}

impl Leave {
    /// For a re-exec, however long the host's commands take: one of them may be the upgrade itself.
    #[must_use]
    pub const fn reexec(asked: Uptime) -> Self {
        Self { asked, latest: None, quiet_since: None }
    }

    /// For a second agent, which serves the host from now on.
    #[must_use]
    pub fn replaced(now: Uptime) -> Self {
        Self { asked: now, latest: Some(now + DRAIN), quiet_since: None }
    }

    /// Whether the agent may leave now; otherwise to be asked again soon.
    pub fn may(&mut self, now: Uptime, load: Load) -> bool {
        let is_late = now - self.asked >= LEAVE_DEADLINE;
        match load {
            Load::Idle => {}
            Load::Results if is_late => {}
            Load::Results | Load::Busy => {
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

    /// Milliseconds since boot at which it may leave, of an agent that has this load at these times.
    fn leaves(mut leave: Leave, loads: &[(Load, u64, u64)]) -> Option<u64> {
        (0..1_000_000).step_by(50).find(|at| {
            let now = loads.iter().find(|(_, begin, end)| (begin..end).contains(&at));
            leave.may(Uptime::from_millis(*at), now.map_or(Load::Idle, |(load, ..)| *load))
        })
    }

    #[test]
    fn it_leaves_when_nothing_was_under_way_for_a_moment() {
        let anew = || Leave::reexec(START);
        assert_eq!(leaves(anew(), &[]), Some(100));
        assert_eq!(leaves(anew(), &[(Load::Busy, 0, 300), (Load::Busy, 350, 1000)]), Some(1100));
        assert_eq!(leaves(anew(), &[(Load::Busy, 0, 300), (Load::Results, 300, 5300)]), Some(5400));
        assert_eq!(leaves(anew(), &[(Load::Busy, 0, 30_000)]), Some(30_000));
    }

    #[test]
    fn a_host_without_a_pause_does_not_put_it_off_for_ever() {
        let short = [(Load::Busy, 0, 9_900), (Load::Results, 9_900, u64::MAX)];
        assert_eq!(leaves(Leave::reexec(START), &short), Some(10_000));
    }

    #[test]
    fn a_new_start_waits_for_a_command_without_an_end_and_a_second_agent_does_not() {
        let always = [(Load::Busy, 0, u64::MAX)];
        assert_eq!(leaves(Leave::reexec(START), &always), None);
        assert_eq!(leaves(Leave::replaced(START), &always), Some(300_000));
        assert_eq!(leaves(Leave::replaced(START), &[(Load::Busy, 0, 200)]), Some(300));
    }
}
