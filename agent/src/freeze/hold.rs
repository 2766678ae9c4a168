//! Freezes, waits and thaws, whichever call fails or hangs.

use std::time::Duration;

use super::state::End;

/// Time limit for thawing one file system.
pub(super) const THAW: Duration = Duration::from_secs(10);

/// The file systems, numbered in the order of freezing, and the caller.
pub(super) trait Disks {
    fn now(&self) -> Duration;
    /// Records the deadline.
    fn note(&mut self, until: Duration);
    /// Freezes one file system; returns 0 or the errno, `ETIMEDOUT` after the deadline.
    fn freeze(&mut self, disk: usize, until: Duration) -> i32;
    /// Reports the results to the caller; returns whether the caller still exists.
    fn tell(&mut self, errors: &[i32]) -> bool;
    /// Waits for a request to thaw; returns false if none came before the deadline.
    fn wait(&mut self, until: Duration) -> bool;
    /// Thaws one file system; returns the same as `freeze`.
    fn thaw(&mut self, disk: usize, until: Duration) -> i32;
}

/// Freezes `count` file systems for at most `length`. Returns how the freeze ended. If nothing was
/// frozen, also returns the number of the file system that failed, with its errno; the number
/// `count` means that none can be frozen.
pub(super) fn hold(
    disks: &mut dyn Disks,
    count: usize,
    length: Duration,
) -> (End, Option<(usize, i32)>) {
    let until = disks.now() + length;
    disks.note(until);
    let mut errors = Vec::new();
    let mut failure = 0;
    while failure == 0 && errors.len() < count {
        let error = disks.freeze(errors.len(), until);
        // Like qemu-ga, skips a file system that is already frozen or does not support it.
        if matches!(error, 0 | libc::EBUSY | libc::EOPNOTSUPP) {
            errors.push(error);
        } else {
            failure = error;
        }
    }
    let is_frozen = failure == 0 && errors.contains(&0);
    let mut end = End::None;
    if is_frozen {
        // If the caller has exited, no snapshot follows, so thaw immediately.
        let is_asked = !disks.tell(&errors) || disks.wait(until);
        end = if is_asked { End::Asked } else { End::Late };
    }
    // Thaw in reverse order: a file system in an image file writes to the one below it.
    for (at, _) in errors.iter().enumerate().rev().filter(|(_, error)| **error == 0) {
        let error = disks.thaw(at, disks.now() + THAW);
        if error == libc::EINVAL {
            end = end.max(End::Before);
        } else if error != 0 {
            end = End::Stuck;
        }
    }
    (end, (!is_frozen).then_some((errors.len(), failure)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LENGTH: Duration = Duration::from_secs(60);
    const BEGUN: Duration = Duration::from_secs(1000);

    /// What the fake caller does once everything is frozen.
    #[derive(Default, PartialEq)]
    enum Caller {
        #[default]
        Asks,
        Forgets,
        IsGone,
    }

    #[derive(Default)]
    struct Fake {
        freeze: Vec<i32>,
        thaw: Vec<i32>,
        caller: Caller,
        seen: String,
        until: Duration,
    }

    impl Disks for Fake {
        fn now(&self) -> Duration {
            BEGUN
        }
        fn note(&mut self, until: Duration) {
            self.until = until;
        }
        fn freeze(&mut self, disk: usize, until: Duration) -> i32 {
            assert_eq!(until, self.until);
            self.seen += &format!("+{disk} ");
            self.freeze[disk]
        }
        fn tell(&mut self, errors: &[i32]) -> bool {
            self.seen += &format!("answered {} ", errors.len());
            self.caller != Caller::IsGone
        }
        fn wait(&mut self, until: Duration) -> bool {
            assert_eq!(until, BEGUN + LENGTH);
            self.seen += "waited ";
            self.caller == Caller::Asks
        }
        fn thaw(&mut self, disk: usize, until: Duration) -> i32 {
            assert_eq!(until, BEGUN + THAW);
            self.seen += &format!("-{disk} ");
            self.thaw.get(disk).copied().unwrap_or_default()
        }
    }

    /// Runs [`hold`]; returns its result and the calls.
    fn held(mut fake: Fake) -> (End, Option<(usize, i32)>, String) {
        let count = fake.freeze.len();
        let (end, failure) = hold(&mut fake, count, LENGTH);
        assert_eq!(fake.until, BEGUN + LENGTH);
        (end, failure, fake.seen)
    }

    const BUSY: i32 = libc::EBUSY;

    #[test]
    fn thaws_in_reverse_order_after_the_requested_time() {
        let all = "+0 +1 +2 answered 3 waited -2 -0 ";
        for (caller, end) in [(Caller::Asks, End::Asked), (Caller::Forgets, End::Late)] {
            let fake = Fake { freeze: vec![0, BUSY, 0], caller, ..Fake::default() };
            assert_eq!(held(fake), (end, None, all.to_owned()));
        }
        let fake = Fake { freeze: vec![0], caller: Caller::IsGone, ..Fake::default() };
        assert_eq!(held(fake), (End::Asked, None, "+0 answered 1 -0 ".to_owned()));
    }

    #[test]
    fn a_failed_freeze_thaws_the_others() {
        for error in [libc::EIO, libc::ETIMEDOUT] {
            let fake = Fake { freeze: vec![0, libc::EOPNOTSUPP, error, 0], ..Fake::default() };
            let undone = "+0 +1 +2 -0 ".to_owned();
            assert_eq!(held(fake), (End::None, Some((2, error)), undone));
        }
        let fake = Fake { freeze: vec![BUSY], ..Fake::default() };
        assert_eq!(held(fake), (End::None, Some((1, 0)), "+0 ".to_owned()));
    }

    #[test]
    fn a_failed_thaw_does_not_stop_the_others() {
        for (thaw, end) in [
            (vec![0, libc::EINVAL, 0], End::Before),
            (vec![0, 0, libc::ETIMEDOUT], End::Stuck),
            (vec![libc::EINVAL, libc::ETIMEDOUT, libc::EINVAL], End::Stuck),
        ] {
            let fake = Fake { freeze: vec![0; 3], thaw, ..Fake::default() };
            let all = "+0 +1 +2 answered 3 waited -2 -1 -0 ".to_owned();
            assert_eq!(held(fake), (end, None, all));
        }
    }
}
