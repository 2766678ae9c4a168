//! Sequence of a shutdown: SIGTERM, SIGKILL, unmount, power off or reboot.

use core::time::Duration;

use crate::time::Uptime;

/// Time between SIGTERM and SIGKILL, as in sysvinit. The agent reports STOPPED within 2 s.
const ASKED: Duration = Duration::from_secs(5);
/// Longest wait for killed processes, because a process that hangs in the kernel does not end.
const KILLED: Duration = Duration::from_secs(2);
/// Time from the agent's end to the machine's: QEMU notifies its host of status port changes once a
/// second, and the host must read STOPPED (P§2.1).
const PORT_READ_WAIT: Duration = Duration::from_millis(1200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    Off,
    Reboot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Send SIGTERM to all processes.
    Ask,
    /// Send SIGKILL to all processes.
    Kill,
    Unmount,
    /// Power off or reboot.
    Leave(Goal),
    /// Wait until then, or until a process ends.
    Wait(Uptime),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begun,
    Asked(Uptime),
    Killed(Uptime),
    Unmounted,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    goal: Goal,
    stage: Stage,
    /// Time by which the host has read the agent's last message.
    read: Uptime,
}

impl Shutdown {
    pub fn new(goal: Goal) -> Self {
        Self { goal, stage: Stage::Begun, read: Uptime::default() }
    }

    pub fn agent_ended(&mut self, now: Uptime) {
        self.read = now + PORT_READ_WAIT;
    }

    /// Returns the next step; `alone` means that no other process is left.
    #[must_use]
    pub fn next(&mut self, now: Uptime, alone: bool) -> Act {
        let (stage, act) = match self.stage {
            Stage::Begun => (Stage::Asked(now + ASKED), Act::Ask),
            Stage::Asked(_) | Stage::Killed(_) if alone => (Stage::Unmounted, Act::Unmount),
            Stage::Asked(end) if now >= end => (Stage::Killed(now + KILLED), Act::Kill),
            Stage::Killed(end) if now >= end => (Stage::Unmounted, Act::Unmount),
            Stage::Asked(end) | Stage::Killed(end) => (self.stage, Act::Wait(end)),
            Stage::Unmounted if now < self.read => (self.stage, Act::Wait(self.read)),
            Stage::Unmounted => (self.stage, Act::Leave(self.goal)),
        };
        self.stage = stage;
        act
    }
}

/// Pause before the first restart.
const FIRST: Duration = Duration::from_millis(100);
const MAX_RESTART_PAUSE: Duration = Duration::from_secs(30);
/// A program that ran this long is stable: its next pause is the first again.
const STAYED: Duration = Duration::from_secs(60);

/// The pauses before restarts of one program: doubled each time, so that a program that cannot run
/// costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restarts {
    last: Duration,
}

impl Restarts {
    /// Returns the pause before the next start of a program that ran for `ran`.
    pub fn pause(&mut self, ran: Duration) -> Duration {
        self.last =
            if ran >= STAYED { FIRST } else { (self.last * 2).clamp(FIRST, MAX_RESTART_PAUSE) };
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the steps with their times for a system whose agent ends at `agent` and whose last
    /// process at `last`.
    fn story(goal: Goal, agent: Option<u64>, last: u64) -> Vec<(u64, Act)> {
        let mut shutdown = Shutdown::new(goal);
        let (mut now, mut acts) = (10_000, Vec::new());
        loop {
            if agent == Some(now) {
                shutdown.agent_ended(Uptime::from_millis(now));
            }
            match shutdown.next(Uptime::from_millis(now), now >= last) {
                Act::Wait(until) => {
                    assert!(until.as_millis() > now, "no wait that is over");
                    now += 100;
                }
                act @ (Act::Ask | Act::Kill | Act::Unmount | Act::Leave(_)) => {
                    acts.push((now - 10_000, act));
                    if matches!(act, Act::Leave(_)) {
                        return acts;
                    }
                }
            }
        }
    }

    #[test]
    fn does_not_kill_programs_that_end_on_sigterm() {
        let acts = story(Goal::Off, Some(10_300), 10_500);
        let expected = [(0, Act::Ask), (500, Act::Unmount), (1500, Act::Leave(Goal::Off))];
        assert_eq!(acts, expected);
    }

    #[test]
    fn kills_processes_that_ignore_sigterm() {
        let acts = story(Goal::Reboot, Some(10_300), 15_100);
        let end = |at| {
            [(0, Act::Ask), (5000, Act::Kill), (at, Act::Unmount), (at, Act::Leave(Goal::Reboot))]
        };
        assert_eq!(acts, end(5100));
        assert_eq!(story(Goal::Reboot, Some(10_300), u64::MAX), end(7000));
    }

    #[test]
    fn waits_for_the_host_to_read_the_port_of_a_killed_agent() {
        let acts = story(Goal::Off, Some(15_100), 15_100);
        assert_eq!(acts[2..], [(5100, Act::Unmount), (6300, Act::Leave(Goal::Off))]);
    }

    #[test]
    fn does_not_wait_without_an_agent() {
        let acts = story(Goal::Off, None, 0);
        assert_eq!(acts, [(0, Act::Ask), (0, Act::Unmount), (0, Act::Leave(Goal::Off))]);
    }

    fn pauses(ran: &[u64]) -> Vec<u128> {
        let mut restarts = Restarts::default();
        ran.iter().map(|ran| restarts.pause(Duration::from_secs(*ran)).as_millis()).collect()
    }

    #[test]
    fn doubles_the_delay_for_an_unstable_program() {
        let expected = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses(&[0; 11]), expected);
    }

    #[test]
    fn a_stable_program_restarts_at_once() {
        assert_eq!(pauses(&[0, 0, 59, 60, 0, 3600]), [100, 200, 400, 100, 200, 100]);
    }
}
