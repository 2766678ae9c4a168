//! Sequence of a shutdown: SIGTERM, SIGKILL, unmount, power off or reboot.

use core::time::Duration;

use crate::time::Uptime;

/// Time between SIGTERM and SIGKILL, as in sysvinit. The agent reports STOPPED within 2 s.
const ASKED: Duration = Duration::from_secs(5);
/// Maximum wait for killed processes; a process that hangs in the kernel never ends.
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
    /// Wait until this time, or until a process ends.
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
/// A program that ran this long is stable: its next pause is the first one again.
const STAYED: Duration = Duration::from_secs(60);

/// The pauses before a program's restarts. They double, so a program that cannot run costs little.
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
                    assert!(until.as_millis() > now, "a wait must end later");
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
    fn kills_what_ignores_sigterm_and_waits_until_the_host_has_read_the_port() {
        use Act::{Ask, Kill, Leave, Unmount};
        let (off, reboot) = (Leave(Goal::Off), Leave(Goal::Reboot));
        let killed = |then: &[(u64, Act)]| [&[(0, Ask), (5000, Kill)], then].concat();
        for (goal, agent, last, expected) in [
            (Goal::Off, Some(10_300), 10_500, vec![(0, Ask), (500, Unmount), (1500, off)]),
            (Goal::Off, None, 0, vec![(0, Ask), (0, Unmount), (0, off)]),
            (Goal::Reboot, Some(10_300), 15_100, killed(&[(5100, Unmount), (5100, reboot)])),
            (Goal::Reboot, Some(10_300), u64::MAX, killed(&[(7000, Unmount), (7000, reboot)])),
            // SIGKILL has ended the agent.
            (Goal::Off, Some(15_100), 15_100, killed(&[(5100, Unmount), (6300, off)])),
        ] {
            assert_eq!(story(goal, agent, last), expected, "{agent:?} {last}");
        }
    }

    #[test]
    fn doubles_the_delay_for_an_unstable_program() {
        let pauses = |ran: &[u64]| {
            let mut restarts = Restarts::default();
            let ran = ran.iter().map(|ran| Duration::from_secs(*ran));
            ran.map(|ran| restarts.pause(ran).as_millis()).collect::<Vec<_>>()
        };
        let expected = [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000];
        assert_eq!(pauses(&[0; 11]), expected);
        assert_eq!(pauses(&[0, 0, 59, 60, 0, 3600]), [100, 200, 400, 100, 200, 100]);
    }
}
