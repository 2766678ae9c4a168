//! Detects that the VM resumed, and whether it was paused, migrated, or cloned from a snapshot.
//!
//! After every restore and migration, QEMU makes each virtio NIC announce itself five times within
//! a second, which Linux reports through rtnetlink (`IFLA_EVENT_NOTIFY_PEERS`). A clone has a new
//! VM generation id, which its driver (`drivers/virt/vmgenid.c`) reports only in the kernel's log.
//! Nothing reports a pause, but afterwards the clock is behind ([`clock`]).

pub mod clock;

use core::time::Duration;

use crate::named::named;
use crate::time::Uptime;

/// The kernel's message for a new generation (`add_vmfork_randomness`).
const FORKED: &[u8] = b"random: crng reseeded due to virtual machine fork";
/// Period in which further signs belong to the same resume: QEMU announces five times. It is short,
/// because a clone starts at the time of its snapshot.
const QUIET: Duration = Duration::from_secs(2);
/// Number of retries after a failure.
const TRIES: u8 = 2;

named! {
    pub enum Kind {
        Paused "paused",
        /// Resumed after a stateful stop, or migrated to another host: only one copy exists.
        Resumed "resumed",
        /// Restored from a snapshot, or cloned: others may have the same memory.
        Restored "restored",
        /// Any of the above; this kernel does not report which.
        Unknown "unknown",
    }
}

impl Kind {
    /// Returns whether others may have the same memory, so that the generation increases.
    pub fn may_have_copies(self) -> bool {
        matches!(self, Self::Restored | Self::Unknown)
    }
}

/// Returns whether a record of `/dev/kmsg` reports a new generation. root can write the same text
/// there, but not as the kernel.
pub fn is_fork(record: &[u8]) -> bool {
    let text = record.iter().position(|byte| *byte == b';').and_then(|at| record.get(at + 1..));
    // The priority has one digit, because the kernel's facility is 0, which programs cannot use.
    matches!(record, [b'0'..=b'7', b',', ..]) && text.is_some_and(|text| text.starts_with(FORKED))
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent signs")]
pub struct Signs {
    /// The kernel's log reports a new generation.
    pub is_fork: bool,
    /// A NIC announced itself.
    pub is_announced: bool,
    /// The clock is behind, and no program has set it.
    pub is_behind: bool,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one does not follow from the other")]
pub struct Announcements {
    /// A new generation in the kernel's log.
    pub generation: bool,
    /// A NIC's announcement after restore or migration.
    pub announced: bool,
}

impl Signs {
    pub fn kind(self, possible: Announcements) -> Kind {
        if self.is_fork {
            return Kind::Restored;
        }
        match (self.is_announced, possible.generation) {
            (true, true) => Kind::Resumed,
            (true, false) => Kind::Unknown,
            (false, true) => Kind::Paused,
            // A NIC would have announced a restore.
            (false, false) if possible.announced => Kind::Paused,
            (false, false) => Kind::Unknown,
        }
    }
}

/// Distinguishes one resume from the next.
#[derive(Debug, Default)]
pub struct Returns {
    quiet: Uptime,
    /// Number of consecutive failures to reseed or to step the clock.
    failed: u8,
}

impl Returns {
    /// Returns whether these signs belong to a new resume; false for one already handled.
    pub fn is_another(&self, now: Uptime, signs: Signs) -> bool {
        // A new generation always counts: other signs may have come first.
        signs.is_fork || (now >= self.quiet && signs != Signs::default())
    }

    /// Records success: signs from now on belong to the same resume.
    pub fn done(&mut self, now: Uptime) {
        *self = Self { quiet: now + QUIET, failed: 0 };
    }

    /// Records a failure. Returns whether to retry, with the same signs.
    pub fn retries(&mut self, now: Uptime) -> bool {
        let failed = self.failed + 1;
        self.done(now);
        self.failed = failed % (TRIES + 1);
        self.failed > 0
    }

    pub fn is_over(&self) -> bool {
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::at;

    #[test]
    fn recognises_a_clone_only_by_the_kernels_message() {
        let line = "random: crng reseeded due to virtual machine fork\n";
        for (head, expected) in [
            ("5,812,5137002,-;", true),
            ("5,812,5137002,-,caller=T1;", true),
            // Written by a program: its facility is not 0.
            ("13,812,5137002,-;", false),
            ("8,812,5137002,-;", false),
            ("5,812,5137002,-;x", false),
            (";", false),
            ("", false),
        ] {
            let record = format!("{head}{line}");
            assert_eq!(is_fork(record.as_bytes()), expected, "{record}");
        }
        assert!(!is_fork(b"5,812,5137002,-;random: crng init done\n") && !is_fork(b""));
    }

    const FORK: Signs = Signs { is_fork: true, is_announced: false, is_behind: false };
    const NIC: Signs = Signs { is_fork: false, is_announced: true, is_behind: false };
    const CLOCK: Signs = Signs { is_fork: false, is_announced: false, is_behind: true };

    #[test]
    fn derives_the_kind_from_the_available_signs() {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        let both = Signs { is_announced: true, ..CLOCK };
        let most = Signs { is_fork: true, ..both };
        for (signs, expected) in [
            (FORK, [Kind::Restored; 4]),
            (most, [Kind::Restored; 4]),
            (NIC, [Kind::Unknown, Kind::Unknown, Kind::Resumed, Kind::Resumed]),
            (both, [Kind::Unknown, Kind::Unknown, Kind::Resumed, Kind::Resumed]),
            (CLOCK, [Kind::Unknown, Kind::Paused, Kind::Paused, Kind::Paused]),
        ] {
            for ((generation, announced), expected) in all.into_iter().zip(expected) {
                let possible = Announcements { generation, announced };
                assert_eq!(signs.kind(possible), expected, "{signs:?} {possible:?}");
            }
        }
    }

    #[test]
    fn reports_a_resume_once_except_for_a_clone() {
        let mut returns = Returns::default();
        assert!(!returns.is_another(at(1000), Signs::default()));
        assert!(returns.is_another(at(1000), NIC));
        returns.done(at(1000));
        // QEMU announces five times within a second, and the clock is behind.
        for (millis, signs) in [(1050, NIC), (1300, CLOCK), (2000, NIC), (2999, NIC)] {
            assert!(!returns.is_another(at(millis), signs));
        }
        // The kernel's log was late, or this is a clone of that clone, from an immediate snapshot.
        assert!(returns.is_another(at(2100), FORK));
        for signs in [NIC, CLOCK] {
            assert!(returns.is_another(at(3000), signs));
        }
    }

    #[test]
    fn retries_a_failed_resume_a_few_times() {
        let mut returns = Returns::default();
        for (millis, retries) in [(0, true), (3000, true), (6000, false), (9000, true)] {
            assert_eq!(returns.retries(at(millis)), retries, "{millis}");
            assert_eq!(returns.is_over(), !retries);
            assert!(!returns.is_another(at(millis + 1999), CLOCK), "not at once");
            assert!(returns.is_another(at(millis + 2000), CLOCK));
        }
        returns.done(at(12_000));
        assert!(returns.is_over() && returns.retries(at(15_000)) && returns.retries(at(18_000)));
    }

    #[test]
    fn the_generation_counts_unless_it_is_known_to_be_the_same() {
        let all = [Kind::Paused, Kind::Resumed, Kind::Restored, Kind::Unknown];
        assert_eq!(all.map(Kind::name), ["paused", "resumed", "restored", "unknown"]);
        assert_eq!(all.map(Kind::may_have_copies), [false, false, true, true]);
    }
}
