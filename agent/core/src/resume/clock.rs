//! Compares the wall clock with the RTC, which continues while the VM is stopped: is it behind, and
//! by how much must it be stepped?
//!
//! Times are nanoseconds since 1970. A difference is the RTC's time minus the wall clock's:
//! positive if the wall clock is behind.

use core::time::Duration;

/// One second, in ns.
const SECOND: i64 = 1_000_000_000;
/// Smaller differences come from drift, or from the RTC's whole seconds.
const PAUSED: i64 = SECOND / 2;
/// A clock this close to the RTC counts as correct. A larger difference is deliberate: an RTC in
/// local time, or a date set by hand.
const MEANT: i64 = 2 * SECOND;
/// Drift assumed before the first comparison: 2^17 ns per second (131 ppm), as a shift.
const DRIFT: u32 = 17;
/// Smallest step.
const STEP: i64 = SECOND / 50;
/// Differences between local times are multiples of this.
const QUARTER: i64 = 15 * 60 * SECOND;

/// Programs that set the clock, by their name in `/proc`, at most 15 bytes.
const SETTERS: &str = "chronyd ntpd ntp-daemon openntpd systemd-timesyn phc2sys connmand";

/// Returns whether a program with this name, which ends with a newline, sets the clock.
pub fn is_setter(name: &[u8]) -> bool {
    let name = name.strip_suffix(b"\n");
    SETTERS.split(' ').any(|setter| Some(setter.as_bytes()) == name)
}

/// The known difference to the RTC, which has whole seconds.
#[derive(Debug, Default)]
pub struct Difference {
    /// Upper bound. Comparisons at different times within a second narrow it.
    most: Option<i64>,
    /// Whether the difference was ever small. From then on it grows only by drift, however far.
    was_near: bool,
    /// Upper bound of the drift up to now.
    drifted: i64,
}

impl Difference {
    /// Creates an unknown difference. The clock has drifted since the machine's start, `start` ago.
    pub fn since(start: Duration) -> Self {
        let drifted = (start.as_secs() << DRIFT).cast_signed();
        Self { drifted, ..Self::default() }
    }

    /// Compares both clocks; returns whether the wall clock was stopped, in which case the known
    /// difference is kept. The wall clock was read before and after the RTC, because on a busy host
    /// seconds may pass in between. A bound that ignores this would stay too low, and a later
    /// comparison would detect a pause that did not happen.
    pub fn look(&mut self, hardware: i64, [before, after]: [i64; 2]) -> bool {
        let hardware = hardware.saturating_mul(SECOND);
        let least = hardware.saturating_sub(after);
        let most = hardware.saturating_sub(before).saturating_add(SECOND);
        let known = self.most.unwrap_or(most);
        if least.saturating_sub(known) >= PAUSED {
            return true;
        }
        // The bound grows slowly by drift.
        let most = if least >= known { most } else { known.min(most) };
        self.most = Some(most);
        let off = most.saturating_sub(SECOND / 2).saturating_abs();
        self.was_near |= off.saturating_sub(self.drifted) < MEANT;
        false
    }

    /// Treats the next difference as correct, because the pause is over.
    pub fn settle(&mut self) {
        self.most = None;
    }

    /// Forgets everything, because a program has set the clock.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// Returns why to step the clock after a resume, if the clock is meant to show the RTC's time.
    pub fn cause(&self) -> Option<Cause> {
        match self.most {
            _ if self.was_near => Some(Cause::Stopped),
            None => Some(Cause::Unknown),
            Some(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The VM resumed, and it is unknown whether the clock was correct before.
    Unknown,
    /// The clock was correct before, so it was stopped for the whole difference.
    Stopped,
    Asked,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Do not step: the clock is correct.
    Right,
    /// Step the clock by this much, in ns.
    By(i64),
    /// Do not step: the difference may be a time zone.
    LocalTime,
}

/// Returns how to correct this difference. Unless requested, never steps backwards, or by a
/// difference that may be a time zone.
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
    use proptest::{prop_assert, proptest};

    const NOW: i64 = 1_700_000_000 * SECOND;
    const DAY: i64 = 86_400;
    const WEEK: Duration = Duration::from_hours(7 * 24);

    #[test]
    fn recognises_programs_that_set_the_clock() {
        for name in ["chronyd\n", "ntpd\n", "systemd-timesyn\n"] {
            assert!(is_setter(name.as_bytes()), "{name}");
        }
        for name in ["chrony\n", "chronyd", "ntpdate\n", "systemd-timesyncd\n", "", "sh\n"] {
            assert!(!is_setter(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn recognises_an_intentionally_wrong_clock() {
        let mut difference = Difference::default();
        assert_eq!(difference.cause(), Some(Cause::Unknown), "as far as is known");
        assert!(!difference.look(NOW / SECOND, [NOW + SECOND / 2; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped), "that near");
        // The RTC is in local time.
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
    fn treats_a_drifting_clock_as_correct() {
        // The clock drifts by these millionths, slow or fast.
        for ppm in [-80, -20, 0, 20, 80] {
            let mut difference = Difference::default();
            let drifted = |seconds: i64| NOW + seconds * SECOND - seconds * ppm * 1000;
            for seconds in (0..7 * DAY).step_by(5) {
                let wall = drifted(seconds);
                assert!(!difference.look(NOW / SECOND + seconds, [wall; 2]), "{ppm}");
                assert_eq!(difference.cause(), Some(Cause::Stopped), "{ppm} {seconds}");
                if seconds == 4 * DAY {
                    // Simulates a migration, after which nothing steps the clock back.
                    difference.settle();
                }
                if seconds == 5 * DAY {
                    // Simulates a restart of the agent.
                    difference = Difference::since(Duration::from_secs(seconds.unsigned_abs()));
                }
            }
            // Simulates a suspend of the host.
            let wall = drifted(7 * DAY);
            assert!(difference.look(NOW / SECOND + 8 * DAY, [wall; 2]), "{ppm}");
            assert_eq!(difference.cause(), Some(Cause::Stopped), "{ppm}");
        }
    }

    #[test]
    fn does_not_mistake_an_hours_pause_for_local_time() {
        let mut difference = Difference::default();
        assert_eq!(difference.cause(), Some(Cause::Unknown));
        assert!(!difference.look(NOW / SECOND, [NOW; 2]));
        assert!(difference.look(NOW / SECOND + 3600, [NOW; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped));
        difference.forget();
        assert_eq!(difference.cause(), Some(Cause::Unknown));
    }

    #[test]
    fn ignores_a_delayed_first_reading() {
        let mut difference = Difference::default();
        assert!(!difference.look(NOW / SECOND, [NOW - 9 * SECOND, NOW]));
        assert!(!difference.look(NOW / SECOND + 3, [NOW + 3 * SECOND; 2]));
        assert_eq!(difference.cause(), Some(Cause::Stopped));
    }

    #[test]
    fn does_not_mistake_a_busy_host_for_a_pause() {
        let (mut time, mut difference) = (NOW, Difference::default());
        // Time without CPU before and after reading the RTC, in tenths of a second.
        for (before, after) in [(0, 0), (0, 17), (0, 0), (21, 0), (4, 4), (0, 90), (0, 0), (0, 0)] {
            time += 5 * SECOND;
            let bounds = [time - before * SECOND / 10, time + after * SECOND / 10];
            assert!(!difference.look(time / SECOND, bounds), "{before} {after}");
        }
        // It still detects a pause.
        assert!(difference.look(time / SECOND + 3, [time; 2]));
    }

    #[test]
    fn never_steps_back_or_by_a_time_zone_unasked() {
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
        // What one comparison reads: the RTC in whole seconds.
        #[test]
        fn detects_a_pause_of_two_and_a_half_seconds_immediately(
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
            // Not starved.
            prop_assert!(!look(&mut difference, time, 0, [0; 2]));
            time += paused * SECOND;
            let seen = look(&mut difference, time, paused * SECOND, [0; 2]);
            prop_assert!(seen || paused < 3, "{} s", paused);
            prop_assert!(!seen || paused > 0);
        }
    }
}
