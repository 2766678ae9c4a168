//! Detects that the VM resumed, and whether it was paused, migrated, or cloned from a snapshot.
//!
//! After every restore and migration, QEMU has each virtio NIC announce itself five times within a
//! second; Linux reports it by rtnetlink (`IFLA_EVENT_NOTIFY_PEERS`). A clone has a new VM generation
//! id: its driver (`drivers/virt/vmgenid.c`) only writes to the kernel's log. After a pause there is no
//! report: the clock is behind ([`clock`]).

pub mod clock;

use core::time::Duration;

use crate::time::Uptime;

/// What the kernel says of another generation (`add_vmfork_randomness`), without the number in front of it.
const FORKED: &[u8] = b"random: crng reseeded due to virtual machine fork";
/// For so long further signs are of the same return: QEMU tells five times. Short, since a copy begins at the time at which its
/// snapshot was made.
const QUIET: Duration = Duration::from_secs(2);
/// So often what has failed is tried again.
const TRIES: u8 = 2;

/// As what the VM runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It was paused.
    Paused,
    /// It went on after a stateful stop or on another host, and there is one of it.
    Resumed,
    /// From a snapshot, or as a copy of another VM: there may be others with the same memory.
    Restored,
    /// One of these: this kernel does not tell.
    Unknown,
}

impl Kind {
    /// As hooks and events have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Resumed => "resumed",
            Self::Restored => "restored",
            Self::Unknown => "unknown",
        }
    }

    /// Whether there may be others with the same memory, so that the generation counts up.
    #[must_use]
    pub fn is_another_life(self) -> bool {
        matches!(self, Self::Restored | Self::Unknown)
    }
}

/// Whether a record of `/dev/kmsg` says that the VM is a copy. Anybody with root's rights can write the same text there, but not
/// as the kernel.
#[must_use]
pub fn is_fork(record: &[u8]) -> bool {
    let text = record.iter().position(|byte| *byte == b';').and_then(|at| record.get(at + 1..));
    // Of one digit: beyond that a program has written it, whose facility is not the kernel's, 0.
    matches!(record, [b'0'..=b'7', b',', ..]) && text.is_some_and(|text| text.starts_with(FORKED))
}

/// What was seen of one return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "signs that come in any combination")]
pub struct Signs {
    /// The kernel's log tells of another generation.
    pub is_fork: bool,
    /// A NIC tells its neighbours where it is.
    pub is_announced: bool,
    /// The clock is behind, and nobody has set it.
    pub is_behind: bool,
}

/// What a guest would be possible.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "one does not follow from the other")]
pub struct Announcements {
    /// Of another generation, by the kernel's log.
    pub generation: bool,
    /// Of any restore and migration, by a NIC.
    pub announced: bool,
}

impl Signs {
    /// As what the VM runs again, by what has been seen of one return.
    #[must_use]
    pub fn kind(self, possible: Announcements) -> Kind {
        if self.is_fork {
            return Kind::Restored;
        }
        match (self.is_announced, possible.generation) {
            (true, true) => Kind::Resumed,
            (true, false) => Kind::Unknown,
            (false, true) => Kind::Paused,
            // A restore would have been more than that.
            (false, false) if possible.announced => Kind::Paused,
            (false, false) => Kind::Unknown,
        }
    }
}

/// Tells one return from the next.
#[derive(Debug, Default)]
pub struct Returns {
    quiet: Uptime,
    /// How often, in a row, random numbers and clock could not be made right.
    failed: u8,
}

impl Returns {
    /// Whether these are signs of another return than the last one, or of one that is not over.
    #[must_use]
    pub fn is_another(&self, now: Uptime, signs: Signs) -> bool {
        // A copy is always one: the others may have come before it.
        signs.is_fork || (now >= self.quiet && signs != Signs::default())
    }

    /// Notes that it is done: signs that come now are of the same return.
    pub fn done(&mut self, now: Uptime) {
        *self = Self { quiet: now + QUIET, failed: 0 };
    }

    /// Notes that it failed. Whether it is to be tried again: then its signs still hold.
    pub fn retries(&mut self, now: Uptime) -> bool {
        let failed = self.failed + 1;
        self.done(now);
        self.failed = failed % (TRIES + 1);
        self.failed > 0
    }

    /// Whether the last one is over.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.failed == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Uptime {
        Uptime::from_millis(millis)
    }

    #[test]
    fn only_the_kernel_tells_of_a_copy() {
        let line = "random: crng reseeded due to virtual machine fork\n";
        for (head, expected) in [
            ("5,812,5137002,-;", true),
            ("5,812,5137002,-,caller=T1;", true),
            // By a program: its facility is not 0.
            ("13,812,5137002,-;", false),
            ("8,812,5137002,-;", false),
            ("5,812,5137002,-;x", false),
            (";", false),
            ("", false),
        ] {
            let record = std::format!("{head}{line}");
            assert_eq!(is_fork(record.as_bytes()), expected, "{record}");
        }
        assert!(!is_fork(b"5,812,5137002,-;random: crng init done\n") && !is_fork(b""));
    }

    const FORK: Signs = Signs { is_fork: true, is_announced: false, is_behind: false };
    const NIC: Signs = Signs { is_fork: false, is_announced: true, is_behind: false };
    const CLOCK: Signs = Signs { is_fork: false, is_announced: false, is_behind: true };

    #[test]
    fn each_sign_says_as_much_as_the_kernel_tells() {
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
    fn a_return_is_told_once_but_for_a_copy() {
        let mut returns = Returns::default();
        assert!(!returns.is_another(at(1000), Signs::default()));
        assert!(returns.is_another(at(1000), NIC));
        returns.done(at(1000));
        // QEMU tells five times within a second, and the clock is behind.
        for (millis, signs) in [(1050, NIC), (1300, CLOCK), (2000, NIC), (2999, NIC)] {
            assert!(!returns.is_another(at(millis), signs));
        }
        // The kernel's log was late; or a copy of that copy, whose snapshot was made at once.
        assert!(returns.is_another(at(2100), FORK));
        for signs in [NIC, CLOCK] {
            assert!(returns.is_another(at(3000), signs));
        }
    }

    #[test]
    fn what_fails_is_tried_again_a_few_times() {
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
        for (kind, name, counts) in [
            (Kind::Paused, "paused", false),
            (Kind::Resumed, "resumed", false),
            (Kind::Restored, "restored", true),
            (Kind::Unknown, "unknown", true),
        ] {
            assert_eq!((kind.name(), kind.is_another_life()), (name, counts));
        }
    }
}
