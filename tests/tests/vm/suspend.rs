//! A guest that sleeps: the agent's timers do not count that time.

use std::time::{Duration, Instant};

use mote_tests::vm::Spec;
use mote_tests::world::World;
use mote_tests::{skipped, wait};

/// Interval of the visible lines in this test, milliseconds.
const INTERVAL: u64 = 20_000;
/// How long the guest sleeps, seconds: longer than the interval, so that a line is due when it wakes.
const ASLEEP: u64 = 25;

const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";

#[test]
fn after_a_suspend_the_next_line_comes_within_a_second() {
    // A host that gets each line, and no silent ones.
    let words = format!("mote.args=--interval-connected,{INTERVAL}");
    let spec = Spec { socket: true, words, ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.shell();
    if guest.sh(&format!("test -e {ALARM}")).0 != 0 {
        return skipped("a hardware's clock that wakes the guest");
    }
    let lines = |world: &World| world.host.state()["lines"].as_array().map_or(0, Vec::len);
    let next = |world: &World, what: &str| {
        let before = lines(world);
        let limit = Duration::from_millis(2 * INTERVAL);
        wait(what, limit, || (lines(world) > before).then_some(())).1
    };
    next(&world, "CONNECTED");
    // Right after a line, the next one is an interval away.
    next(&world, "a line");
    guest.ok(&format!("echo 0 >{ALARM}; echo +{ASLEEP} >{ALARM}"));
    let begun = Instant::now();
    let before = lines(&world);
    guest.send("echo mem >/sys/power/state");
    let (code, output) = guest.reply(Duration::from_secs(120));
    assert_eq!(code, 0, "{output}");
    let woke = Instant::now();
    assert!((woke - begun).as_secs() >= ASLEEP - 2, "it did not sleep: {:?}", woke - begun);
    wait("a line", Duration::from_millis(2 * INTERVAL), || (lines(&world) > before).then_some(()));
    let late = woke.elapsed();
    println!("after {ASLEEP} s of sleep: a line within {late:?}");
    // Else it would be an interval after the line before its sleep.
    assert!(late < Duration::from_millis(INTERVAL * 3 / 4), "{late:?}");
    // The timer that woke it has gone back to sleep.
    let mut used = || {
        let ticks = guest.ok("cut -d' ' -f14,15 /proc/$(cat /run/agent.pid)/stat");
        ticks.split_whitespace().map(|part| part.parse::<u64>().expect("ticks")).sum::<u64>()
    };
    let before = used();
    std::thread::sleep(Duration::from_secs(3));
    let used = used() - before;
    assert!(used < 30, "{used} ticks of 300");
    world.power_off(&mut guest);
}
