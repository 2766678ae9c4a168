//! Time limits for events that will come: the time on an idle machine, multiplied by the measured
//! slowdown of this one. Assertions on durations do not use this.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The environment variable with the slowdown, such as `2.5`: passed to `mote-host`, and a lower
/// bound for tests.
pub const SLOWDOWN: &str = "MOTE_SLOWDOWN";

/// Upper bound of the slowdown, because each failing test waits for its whole limit.
const MOST: f64 = 5.0;

/// Duration of the measured work on an idle machine with two 2.1 GHz CPUs, plus a third. A faster
/// machine counts as one of this speed.
const CPU: Duration = Duration::from_millis(60);
const PROCESSES: Duration = Duration::from_millis(40);
/// Duration of the measured writes: many times an idle disk's 5 ms, because disks differ.
const DISK: Duration = Duration::from_millis(100);

static SEEN: AtomicU32 = AtomicU32::new(100);

/// Returns this machine's slowdown compared with an idle one, at least 1. The first call measures
/// it, for a tenth of a second on an idle machine.
pub fn slowdown() -> f64 {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let told = std::env::var(SLOWDOWN).ok().and_then(|text| text.parse().ok());
        see(told.unwrap_or(1.0));
        see(measured());
    });
    f64::from(SEEN.load(Ordering::Relaxed)) / 100.0
}

/// Scales a limit for an idle machine by this machine's slowdown.
pub fn patient(limit: Duration) -> Duration {
    limit.mul_f64(slowdown())
}

/// Returns whether `took` is within a limit for an idle machine, scaled to this one. Measures the
/// slowdown again before returning false, because the load may have grown.
pub fn in_time(took: Duration, limit: Duration) -> bool {
    took < patient(limit) || {
        see(measured());
        took < patient(limit)
    }
}

/// Polls until `look` returns a value. Returns the value and the elapsed time.
#[track_caller]
pub fn wait<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> (T, Duration) {
    let begun = Instant::now();
    match found(limit, look) {
        Some(found) => (found, begun.elapsed()),
        None => panic!("waited {:?} for {what}, {limit:?} on an idle machine", patient(limit)),
    }
}

/// Polls until `holds` returns true. Returns the elapsed time.
#[track_caller]
pub fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    wait(what, limit, || holds().then_some(())).1
}

/// Like [`wait`], but returns `None` instead of panicking at the limit.
pub fn found<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        let found = look();
        if found.is_some() || !in_time(begun.elapsed(), limit) {
            return found;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 to 500")]
fn see(slowdown: f64) {
    SEEN.fetch_max((slowdown.clamp(1.0, MOST) * 100.0) as u32, Ordering::Relaxed);
}

fn measured() -> f64 {
    let ratio = |idle: Duration, work: &dyn Fn()| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64() / idle.as_secs_f64()
    };
    ratio(CPU, &calculate).max(ratio(PROCESSES, &start)).max(ratio(DISK, &write))
}

fn calculate() {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..cpus {
            scope.spawn(|| (0..2_000_000_u64).fold(1, |sum, next| black_box(sum ^ next)));
        }
    });
}

fn start() {
    for _ in 0..20 {
        let mut program = Command::new("true");
        let _code = program.stdin(Stdio::null()).status();
    }
}

fn write() {
    let path = std::env::temp_dir().join(format!("mote-speed-{}", std::process::id()));
    let _best_effort = File::create(&path).and_then(|mut file| {
        file.write_all(&[1; 1 << 20])?;
        file.sync_all()
    });
    let _best_effort = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_time_limits_with_the_slowdown() {
        assert!(patient(Duration::from_secs(3)) >= Duration::from_secs(3));
        see(4.0);
        assert!(patient(Duration::from_secs(3)) >= Duration::from_secs(12));
        see(1e9);
        assert!(slowdown() <= MOST);
        let begun = Instant::now();
        let took = until("what comes late", Duration::from_millis(100), || {
            begun.elapsed() > Duration::from_millis(200)
        });
        assert!(took > Duration::from_millis(200));
    }
}
