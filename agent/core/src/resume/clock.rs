//! The wall clock beside one that goes on while the VM is stopped: whether it is behind, and by how much it is to be set.
//!
//! Times are nanoseconds since 1970, differences are the other clock's time less this one's: what is behind has a positive one.

use core::time::Duration;

/// A second.
const SECOND: i64 = 1_000_000_000;
/// A difference that is smaller has come by drift, or by the hardware clock's whole seconds.
const PAUSED: i64 = SECOND / 2;
/// A clock that was this near to the hardware's is meant to be right. What is farther off is so on purpose: the hardware's
/// clock in local time, or a date set by hand.
const MEANT: i64 = 2 * SECOND;
/// By how much farther off it may have come by drift in each second, before anybody looked: so many bits of nanoseconds, 131 ppm.
const DRIFT: u32 = 17;
/// A smaller step is not worth it.
const STEP: i64 = SECOND / 50;
/// What local times differ by is a multiple of this.
const QUARTER: i64 = 15 * 60 * SECOND;

/// Programs that set the clock, by the name that `/proc` has of them, which is 15 bytes at most.
const SETTERS: [[u8; 16]; 7] = [
    *b"chronyd\n        ",
    *b"ntpd\n           ",
    *b"ntp-daemon\n     ",
    *b"openntpd\n       ",
    *b"systemd-timesyn\n",
    *b"phc2sys\n        ",
    *b"connmand\n       ",
];

/// Whether a program of this name, with its newline, sets the clock.
#[must_use]
pub fn is_setter(name: &[u8]) -> bool {
    name.ends_with(b"\n") && SETTERS.iter().any(|one| one.starts_with(name))
}

/// What is known of the difference to the hardware's clock, which shows whole seconds.
#[derive(Debug, Default)]
pub struct Difference {
    /// The most that it can be. Looks at different times within a second narrow it.
    most: Option<i64>,
    /// Whether it was small once: then it grows by drift alone, however far in the end.
    was_near: bool,
    /// By how much it may be larger than small by then.
    drifted: i64,
}

impl Difference {
    /// Nothing is known of a clock that has drifted since this machine's start, so long ago.
    #[must_use]
    pub fn since(start: Duration) -> Self {
        let drifted = (start.as_secs() << DRIFT).cast_signed();
        Self { drifted, ..Self::default() }
    }

    /// Compares both clocks; whether this one has been stopped. Then what was known before is kept. This one was read before and
    /// after the hardware's: on a busy host seconds may pass in between, and a bound that takes both for the same moment
    /// would be too low for ever, so that a later look finds a pause that there was not.
    pub fn look(&mut self, hardware: i64, [before, after]: [i64; 2]) -> bool {
        let hardware = hardware.saturating_mul(SECOND);
        let least = hardware.saturating_sub(after);
        let most = hardware.saturating_sub(before).saturating_add(SECOND);
        let known = self.most.unwrap_or(most);
        if least.saturating_sub(known) >= PAUSED {
            return true;
        }
        // By drift it grows slowly.
        let most = if least >= known { most } else { known.min(most) };
        self.most = Some(most);
        let off = most.saturating_sub(SECOND / 2).saturating_abs();
        self.was_near |= off.saturating_sub(self.drifted) < MEANT;
        false
    }

    /// Takes what a later look sees for right: the pause is over.
    pub fn settle(&mut self) {
        self.most = None;
    }

    /// Forgets all: somebody has set the clock.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Why it is to be set when the VM runs again, if it is meant to show the hardware's time, as far as is known.
    #[must_use]
    pub fn cause(&self) -> Option<Cause> {
        match self.most {
            _ if self.was_near => Some(Cause::Stopped),
            None => Some(Cause::Unknown),
            Some(_) => None,
        }
    }
}

/// Why a clock is to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The VM runs again, and nobody knows whether this clock showed the hardware's time before.
    Unknown,
    /// It did, so it was stopped for as long as they differ by.
    Stopped,
    /// Somebody asks for it.
    Asked,
}

/// What to do about a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing: it is right.
    Right,
    /// Set it forward by so much, or back if it is negative.
    By(i64),
    /// Nothing: by so much a clock is off that shows another local time.
    LocalTime,
}

/// By how much to set the clock that differs by this much. Nobody but who is asked for it sets it back, nor to what may be
/// another local time.
#[must_use]
pub fn step(by: i64, cause: Cause) -> Step {
    let size = by.saturating_abs();
    if size < STEP || (by < 0 && cause != Cause::Asked) {
        return Step::Right;
    }
    let beyond = size.saturating_add(SECOND) % QUARTER;
    if size > 2 * SECOND && beyond <= 2 * SECOND && cause == Cause::Unknown {
        return Step::LocalTime;
    }
    Step::By(by)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{prop_assert, prop_assert_eq, proptest};

    const NOW: i64 = 1_700_000_000 * SECOND;
    const DAY: i64 = 86_400;
    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[test]
    fn programs_that_set_the_clock_are_known_by_name() {
        for name in ["chronyd\n", "ntpd\n", "systemd-timesyn\n"] {
            assert!(is_setter(name.as_bytes()), "{name}");
        }
        for name in ["chrony\n", "chronyd", "ntpdate\n", "systemd-timesyncd\n", "", "sh\n"] {
            assert!(!is_setter(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_clock_that_shows_another_time_on_purpose_is_known() {
        let mut difference = Difference::default();
        assert_eq!(difference.cause(), Some(Cause::Unknown), "as far as is known");
        assert!(!difference.look(NOW / SECOND, [NOW + SECOND / 2; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped), "that near");
        // The hardware's clock is in local time.
        let local = NOW / SECOND + 7200;
        let mut difference = Difference::since(WEEK);
        assert!(!difference.look(local, [NOW; 2]));
        assert_eq!(difference.cause(), None);
        assert!(difference.look(local + 40, [NOW; 2]));
        assert_eq!(difference.cause(), None, "as before");
        difference.settle();
        assert!(!difference.look(local + 40, [NOW; 2]));
        assert_eq!(difference.cause(), None, "as before the pause");
        difference.forget();
        assert!(!difference.look(NOW / SECOND, [NOW + 3600 * SECOND; 2]));
        assert_eq!(difference.cause(), None, "a date set by hand");
        difference.forget();
        assert!(!difference.look(NOW / SECOND, [NOW - 4 * SECOND; 2]));
        assert_eq!(difference.cause(), None, "a few seconds, just now");
    }

    #[test]
    fn a_clock_that_drifts_for_days_is_meant_to_be_right() {
        // Millionths: what this clock loses, or wins.
        for ppm in [-80, -20, 0, 20, 80] {
            let mut difference = Difference::default();
            let drifted = |seconds: i64| NOW + seconds * SECOND - seconds * ppm * 1000;
            for seconds in (0..7 * DAY).step_by(5) {
                let wall = drifted(seconds);
                assert!(!difference.look(NOW / SECOND + seconds, [wall; 2]), "{ppm}");
                assert_eq!(difference.cause(), Some(Cause::Stopped), "{ppm} {seconds}");
                if seconds == 4 * DAY {
                    // A migration, after which nobody sets it back.
                    difference.settle();
                }
                if seconds == 5 * DAY {
                    // An agent that starts anew.
                    difference = Difference::since(Duration::from_secs(seconds.unsigned_abs()));
                }
            }
            // The host sleeps meanwhile.
            let wall = drifted(7 * DAY);
            assert!(difference.look(NOW / SECOND + 8 * DAY, [wall; 2]), "{ppm}");
            assert_eq!(difference.cause(), Some(Cause::Stopped), "{ppm}");
        }
    }

    #[test]
    fn a_pause_of_an_hour_is_no_local_time() {
        let mut difference = Difference::default();
        assert_eq!(difference.cause(), Some(Cause::Unknown));
        assert!(!difference.look(NOW / SECOND, [NOW; 2]));
        assert!(difference.look(NOW / SECOND + 3600, [NOW; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped));
        difference.forget();
        assert_eq!(difference.cause(), Some(Cause::Unknown));
    }

    #[test]
    fn a_starved_first_look_does_not_decide() {
        let mut difference = Difference::default();
        assert!(!difference.look(NOW / SECOND, [NOW - 9 * SECOND, NOW]));
        assert!(!difference.look(NOW / SECOND + 3, [NOW + 3 * SECOND; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped));
    }

    #[test]
    fn a_host_that_is_busy_between_two_readings_is_no_pause() {
        let (mut time, mut difference) = (NOW, Difference::default());
        // How long the guest had no CPU before and after the reading of the hardware's clock, in tenths of a second.
        for (before, after) in [(0, 0), (0, 17), (0, 0), (21, 0), (4, 4), (0, 90), (0, 0), (0, 0)] {
            time += 5 * SECOND;
            let bounds = [time - before * SECOND / 10, time + after * SECOND / 10];
            assert!(!difference.look(time / SECOND, bounds), "{before} {after}");
        }
        // A pause is still seen.
        assert!(difference.look(time / SECOND + 3, [time; 2]));
    }

    #[test]
    fn nobody_sets_it_back_or_to_another_local_time_unasked() {
        for (by, expected) in [
            (0, Step::Right),
            (SECOND / 100, Step::Right),
            (SECOND / 10, Step::By(SECOND / 10)),
            (SECOND, Step::By(SECOND)),
            (40 * SECOND, Step::By(40 * SECOND)),
            (-40 * SECOND, Step::Right),
            (3600 * SECOND, Step::LocalTime),
            (899 * SECOND, Step::LocalTime),
            (1801 * SECOND, Step::LocalTime),
            (898 * SECOND, Step::By(898 * SECOND)),
            (902 * SECOND, Step::By(902 * SECOND)),
        ] {
            assert_eq!(step(by, Cause::Unknown), expected, "{by}");
        }
        assert_eq!(step(3600 * SECOND, Cause::Stopped), Step::By(3600 * SECOND));
        assert_eq!(step(-3600 * SECOND, Cause::Stopped), Step::Right);
        assert_eq!(step(-3600 * SECOND, Cause::Asked), Step::By(-3600 * SECOND));
    }

    proptest! {
        // What a look sees: the hardware's clock in whole seconds.
        #[test]
        fn a_pause_of_two_and_a_half_seconds_is_seen_at_once_and_none_where_there_is_none(
            off in -4_000_000_000_i64..4_000_000_000,
            paused in 0_i64..100,
            looks in proptest::collection::vec((1_i64..30_000, [0_i64..5_000, 0..5_000]), 1..20),
        ) {
            let mut difference = Difference::default();
            let mut time = NOW;
            let look = |difference: &mut Difference, time: i64, behind: i64, starved: [i64; 2]| {
                let [before, after] = starved.map(|millis| millis * 1_000_000);
                let bounds = [time - behind - before, time - behind + after];
                difference.look((time + off) / SECOND, bounds)
            };
            for (millis, starved) in looks {
                time += millis * 1_000_000;
                prop_assert!(!look(&mut difference, time, 0, starved));
            }
            // One that is not starved.
            prop_assert!(!look(&mut difference, time, 0, [0; 2]));
            time += paused * SECOND;
            let seen = look(&mut difference, time, paused * SECOND, [0; 2]);
            prop_assert!(seen || paused < 3, "{} s", paused);
            prop_assert!(!seen || paused > 0);
        }

        #[test]
        fn any_numbers_are_taken(hardware: i64, wall: i64, then: i64, asked: bool, age: u64) {
            let mut difference = Difference::since(Duration::from_secs(age));
            prop_assert!(!difference.look(hardware, [wall; 2]));
            difference.look(then, [wall, hardware]);
            let cause = if asked { Cause::Asked } else { difference.cause().unwrap_or(Cause::Unknown) };
            if let Step::By(by) = step(hardware, cause) {
                prop_assert!(by > 0 || asked);
            }
            prop_assert_eq!(step(0, cause), Step::Right);
        }
    }
}
