//! How long to wait for what will come: the time that it may take on an idle machine, times how much slower this
//! one is seen to be. A test that asserts a time does not ask here.

use std::fs::File;
use std::hint::black_box;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The environment variable with the slowdown, such as `2.5`: given to `mote-host`, and taken as the least by
/// tests.
pub const SLOWDOWN: &str = "MOTE_SLOWDOWN";

/// The largest slowdown: a test that fails waits as long.
const MOST: f64 = 5.0;

/// The measurements' times on an idle machine of 2 CPUs with 2.1 GHz, a third added: what is faster counts as that.
const CPU: Duration = Duration::from_millis(60);
const PROCESSES: Duration = Duration::from_millis(40);
/// Many times the 5 ms of an idle one: disks differ, and tests write little.
const DISK: Duration = Duration::from_millis(100);

/// The most that was seen, in hundredths.
static SEEN: AtomicU32 = AtomicU32::new(100);

/// How many times slower this machine was seen to be than an idle one, at least 1. Measured at the first call, for
/// a tenth of a second on an idle machine.
pub fn slowdown() -> f64 {
    static FIRST: Once = Once::new();
    FIRST.call_once(|| {
        let told = std::env::var(SLOWDOWN).ok().and_then(|text| text.parse().ok());
        see(told.unwrap_or(1.0));
        see(measured());
    });
    f64::from(SEEN.load(Ordering::Relaxed)) / 100.0
}

/// How long to wait here for what takes so long on an idle machine.
pub fn patient(limit: Duration) -> Duration {
    limit.mul_f64(slowdown())
}

/// Whether what took so long here takes no longer than `limit` on an idle machine. Measures the machine again before it denies that:
/// others may have begun meanwhile.
pub fn in_time(took: Duration, limit: Duration) -> bool {
    took < patient(limit) || {
        see(measured());
        took < patient(limit)
    }
}

/// Looks until there is something; gives it and how long that took.
///
/// # Panics
/// If it is not there [`in_time`].
#[track_caller]
pub fn wait<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> (T, Duration) {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return (found, begun.elapsed());
        }
        let is_early = in_time(begun.elapsed(), limit);
        assert!(is_early, "waited {:?} for {what}, {limit:?} on an idle machine", patient(limit));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "100 to 500")]
fn see(slowdown: f64) {
    SEEN.fetch_max((slowdown.clamp(1.0, MOST) * 100.0) as u32, Ordering::Relaxed);
}

/// The slowest of CPUs, processes and disk.
fn measured() -> f64 {
    let ratio = |idle: Duration, work: &dyn Fn()| {
        let begun = Instant::now();
        work();
        begun.elapsed().as_secs_f64() / idle.as_secs_f64()
    };
    ratio(CPU, &calculate).max(ratio(PROCESSES, &start)).max(ratio(DISK, &write))
}

/// On all CPUs at once, as a VM and what it talks to.
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
    fn waits_are_as_long_as_the_machine_is_slow() {
        assert!(patient(Duration::from_secs(3)) >= Duration::from_secs(3));
        see(4.0);
        assert!(patient(Duration::from_secs(3)) >= Duration::from_secs(12));
        see(1e9);
        assert!(slowdown() <= MOST);
        let begun = Instant::now();
        let late = || (begun.elapsed() > Duration::from_millis(200)).then_some(());
        let (_, took) = wait("what comes late", Duration::from_millis(100), late);
        assert!(took > Duration::from_millis(200));
    }
}
