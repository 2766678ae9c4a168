//! Cost of an agent in the tests' own image, for the table in `docs/results/boots.md`: the rows of
//! other architectures.

use std::time::{Duration, Instant};

use mote_tests::pages::ways::{Row, record};
use mote_tests::proc::{kilobytes, started};
use mote_tests::{Guest, Spec, World};

fn connected(guest: &mut Guest) -> Duration {
    let line = guest.ok("dmesg | grep -F 'mote: info: CONNECTED' | head -n 1");
    let time = line.trim_start_matches('[').split(']').next().unwrap_or_default();
    let seconds = time.trim().parse().unwrap_or_else(|_| panic!("no time: {line}"));
    Duration::from_secs_f64(seconds)
}

#[test]
fn connects_stays_small_and_stops_in_the_tests_image() {
    let spec = Spec { words: "mote.log=kernel".into(), ..Spec::default() };
    let begun = Instant::now();
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.shell();
    let power_on = begun.elapsed();
    let agent_start =
        connected(&mut guest) - started(&guest.ok("cat /proc/$(cat /run/agent.pid)/stat"));
    assert!(agent_start < power_on, "{agent_start:?} {power_on:?}");
    let pss = kilobytes(&guest.ok("cat /proc/$(cat /run/agent.pid)/smaps_rollup"), "Pss:");
    let pss = pss.expect("a size");
    assert!((200..1300).contains(&pss), "{pss} KiB");
    let [machine, release] = ["-m", "-r"].map(|what| guest.ok(&format!("uname {what}")));
    let bytes = guest.ok("stat -c %s /sbin/mote-agent").trim().parse().expect("a size");
    world.power_off(&mut guest);
    let booted = format!("busybox, initramfs; Linux {}; QEMU `virt`", release.trim());
    let row = |way| Row { way, booted, agent_start, power_on, bytes, pss, clean_stop: true };
    match machine.trim() {
        "aarch64" => record(&row("aarch64")),
        "riscv64" => record(&row("riscv64")),
        _ => println!("{:?}", row("x86_64")),
    }
}
