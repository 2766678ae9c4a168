//! Features of systemd only: restarts, the watchdog, the score of the hardened unit, the power
//! button.

use std::time::Duration;

use mote_tests::{NAME, wait};

use crate::systems::{System, noted, seconds, serves, whole_life};
use crate::world::{BOOT, World, measured};

const SYSTEMD: System = System {
    name: "systemd",
    release: "bookworm",
    way: "deb+systemd",
    log: "journalctl --no-pager -b -o cat -u mote-agent",
    reload: "systemctl reload mote-agent",
};
const DROP_IN: &str = "/etc/systemd/system/mote-agent.service.d";
const HARDENED: &str = "/usr/share/doc/mote-agent/examples/hardened.conf";
/// Restarts, of which the fastest is used, because the machine may be busy.
const RESTARTS: u32 = 3;

/// Restarts the unit from outside of it. Returns the time until the next agent runs commands.
fn restart(world: &World) -> Duration {
    let pid = world.pid();
    world.last_words("systemctl --no-block restart mote-agent");
    world.another_than(&pid)
}

/// Returns the time from systemd's stop message to the next CONNECTED, by the journal's clock.
fn journal_restart(world: &World) -> Duration {
    let journal = world.sh("journalctl --no-pager -b -o short-monotonic -u mote-agent");
    let time = |line: &str| -> f64 {
        let text = line.trim_start_matches(['[', ' ']).split(']').next().unwrap_or_default();
        text.parse().unwrap_or_else(|_| panic!("no time: {line}"))
    };
    let (mut stopping, mut took) = (None, None);
    for line in journal.lines() {
        if line.contains("systemd[1]: Stopping mote-agent.service") {
            stopping = Some(time(line));
        } else if line.contains(": CONNECTED ")
            && let Some(begun) = stopping.take()
        {
            took = Some(time(line) - begun);
        }
    }
    Duration::from_secs_f64(took.unwrap_or_else(|| panic!("no restart: {journal}")))
}

/// Returns the overall score of `systemd-analyze security`.
fn exposure(world: &World) -> String {
    let said = world.sh("systemd-analyze security --no-pager mote-agent.service | tail -n 1");
    let (_, figure) = said.trim().split_once("mote-agent.service: ").expect("a figure");
    figure.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric()).to_owned()
}

fn watchdog(world: &World) {
    world.sh(&format!("mkdir -p {DROP_IN}; printf '[Service]\\nWatchdogSec=10s\\n' >{DROP_IN}/watchdog.conf; systemctl daemon-reload"));
    let _took = restart(world);
    let pid = world.pid();
    let mut kill =
        world.host.launch(&["exec", "-n", NAME, "--", "sh", "-c", &format!("kill -STOP {pid}")]);
    let took = world.another_than(&pid);
    kill.kill();
    let journal = world.sh(SYSTEMD.log);
    assert!(journal.contains("Watchdog timeout (limit 10s)!"), "{journal}");
    measured(
        "systemd: stopped by SIGSTOP, until commands run again (with WatchdogSec=10s; the unit has 60s)",
        &seconds(took),
    );
    world.sh(&format!("rm {DROP_IN}/watchdog.conf; systemctl daemon-reload"));
}

fn hardened(world: &mut World) {
    let before = exposure(world);
    world.sh(&format!("cp {HARDENED} {DROP_IN}/; systemctl daemon-reload"));
    let after = exposure(world);
    measured("systemd: `systemd-analyze security`, the unit", &before);
    measured("systemd: `systemd-analyze security`, with the hardened drop-in", &after);
    world.last_words("systemctl --no-block restart mote-agent");
    let denied = |why: &String| why.contains("policy");
    wait("an agent that denies commands", BOOT, || world.host.sh("true").err().filter(denied));
    world.until_connected();
    world.host.ok(&["state", NAME]);
}

#[test]
fn systemd() {
    let (mut world, times, killed) = serves(&SYSTEMD);
    assert_eq!(world.sh("systemctl is-system-running --wait"), "running\n");
    assert_eq!(world.sh("systemctl --failed --no-legend --plain"), "");
    let restarts: Vec<_> = (0..RESTARTS)
        .map(|_| {
            restart(&world);
            journal_restart(&world)
        })
        .collect();
    println!("restarts: {restarts:?}");
    let best = restarts.into_iter().min().expect("one");
    measured("systemd: `systemctl restart`, until CONNECTED", &seconds(best));
    assert!(best < Duration::from_secs(1), "{best:?}");
    watchdog(&world);
    assert_eq!(world.sh("systemctl --failed --no-legend --plain"), "");
    hardened(&mut world);
    world.vm.power_button();
    world.stopped();
    noted(&SYSTEMD, world.added, &times, killed, "the power button");
}

/// The root has nothing of mote but the extension.
#[test]
fn sysext() {
    whole_life(&System { name: "sysext", release: "trixie", way: "sysext", ..SYSTEMD });
}
