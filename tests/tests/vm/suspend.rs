//! A guest that suspends to memory: the agent's timers ignore that time, and its connections are
//! lost.

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

use mote_tests::{Guest, MOTE_BOOT, Spec, World, bounded, skipped, wait};

const INTERVAL: u64 = 20_000;
/// Duration of the suspend, seconds: longer than the interval, so that a line is due at wake-up,
/// and longer than `mote-host exec` waits for a silent guest.
const ASLEEP: u64 = 25;

const ALARM: &str = "/sys/class/rtc/rtc0/wakealarm";

/// Returns whether the guest has a clock that can wake it.
fn wakes(guest: &mut Guest) -> bool {
    let has_alarm = guest.sh(&format!("test -e {ALARM}")).0 == 0;
    if !has_alarm {
        skipped("a hardware's clock that wakes the guest");
    }
    has_alarm
}

fn suspend(guest: &mut Guest) {
    guest.ok(&format!("echo 0 >{ALARM}; echo +{ASLEEP} >{ALARM}"));
    let begun = Instant::now();
    guest.send("echo mem >/sys/power/state");
    let (code, output) = guest.reply(Duration::from_secs(120));
    assert_eq!(code, 0, "{output}");
    assert!(begun.elapsed().as_secs() >= ASLEEP - 2, "it did not sleep: {:?}", begun.elapsed());
}

#[test]
fn writes_the_next_line_within_a_second_after_a_suspend() {
    // This host reads each line.
    let words = format!("mote.args=--interval-connected,{INTERVAL}");
    let spec = Spec { socket: true, words, ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.shell();
    let true = wakes(&mut guest) else { return };
    let lines = |world: &World| world.host.state()["lines"].as_array().map_or(0, Vec::len);
    let next = |world: &World, what: &str| {
        let before = lines(world);
        let limit = Duration::from_millis(2 * INTERVAL);
        wait(what, limit, || (lines(world) > before).then_some(())).1
    };
    next(&world, "CONNECTED");
    next(&world, "a line");
    let before = lines(&world);
    suspend(&mut guest);
    let woke = Instant::now();
    wait("a line", Duration::from_millis(2 * INTERVAL), || (lines(&world) > before).then_some(()));
    let late = woke.elapsed();
    println!("after {ASLEEP} s of sleep: a line within {late:?}");
    // Otherwise it would be an interval after the last line before the suspend.
    assert!(late < Duration::from_millis(INTERVAL * 3 / 4), "{late:?}");
    // The timer that woke it stops.
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

#[test]
fn ends_a_command_with_a_reason_after_a_suspend() {
    let mut world = World::of("lxd", &Spec::default(), &[]);
    let mut guest = world.shell();
    let true = wakes(&mut guest) else { return };
    let script = "echo $$; trap '' HUP TERM; while :; do sleep 1; done";
    let mut command = world.host.exec_with(&["-T", "-n"], &["sh", "-c", script]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut client = bounded(&mut command).expect("mote-host");
    let mut pid = String::new();
    let stdout = client.stdout.as_mut().expect("its output");
    BufReader::new(stdout).read_line(&mut pid).expect("a line");
    suspend(&mut guest);
    let (status, took) =
        wait("the client's end", MOTE_BOOT, || client.try_wait().expect("its status"));
    let mut said = String::new();
    client.stderr.take().expect("its errors").read_to_string(&mut said).expect("text");
    println!("{took:?} after the guest woke: {status}, {said:?}");
    // The operation's end, or an unknown operation.
    let lost = "the guest has lost its connections, as after a suspend";
    assert!(matches!(status.code(), Some(129 | 137)) && said.contains(lost), "{status}: {said}");
    guest.ok(&format!("! kill -0 {}", pid.trim()));
    // The vsock device still works.
    assert_eq!(world.host.exec(&["echo", "again"]).as_deref(), Ok("again\n"));
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    assert_eq!(guest.ok("grep -c 'took too long' /run/agent.log || :"), "0\n");
    world.power_off(&mut guest);
}
