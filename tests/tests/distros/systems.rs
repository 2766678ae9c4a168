//! Checks that are the same for each init system: the agent starts in time, serves the host, is
//! restarted after a kill, writes a log and reports STOPPED.

use crate::world::{BOOT, Plan, Times, World};
use mote_tests::pages::{measured, way};
use mote_tests::prelude::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    /// The Debian release.
    pub(crate) release: &'static str,
    /// The system's row in the table of `docs/results/boots.md`.
    pub(crate) way: &'static str,
    pub(crate) log: &'static str,
    pub(crate) reload: &'static str,
}

/// The log of the three systems without a journal.
const FILE: &str = "cat /var/log/mote-agent.log";

/// Checks the system up to its shutdown. Returns the times, and how long a killed agent was absent.
pub(crate) fn serves(system: &System) -> (World, Times, Duration) {
    let mut world = World::boot(system.name, system.release, &Plan::default());
    let times = world.connected();
    let path = |name: &str| world.scratch.0.join(name).display().to_string();
    let text = String::from_utf8(vec![b'm'; 300_000]).expect("text");
    fs::write(path("to"), &text).expect("a file");
    world.host.ok(&["file", "push", &path("to"), &format!("{NAME}/srv/file")]);
    world.host.ok(&["file", "pull", &format!("{NAME}/srv/file"), &path("from")]);
    assert_eq!(fs::read_to_string(path("from")).expect("a file"), text);
    assert_eq!(world.sh("mote-agent get user.foo"), "bar\n");
    contains(world.sh("mote-agent --check"), &["agent: running, CONNECTED"]);

    let killed = world.killed_and_back();
    let log = world.sh(system.log);
    for line in ["port /dev/v", "files from disk", "STARTED", ": CONNECTED ", "CONNECTED 2:"] {
        // In the journal, a priority replaces the first words of a line.
        let line = line.trim_start_matches(": ");
        assert!(log.matches(line).count() >= 2, "{line} of two agents: {log}");
    }
    let pid = world.pid();
    world.sh(system.reload);
    let restarted = || {
        // The agent restarts after the host's commands, whose results it keeps for 5 s.
        thread::sleep(Duration::from_secs(7));
        let log = world.sh(system.log);
        log.split_once("restarting in place").is_some_and(|(_, log)| log.contains("CONNECTED 2:"))
    };
    until("a new start", BOOT, restarted);
    assert_eq!(world.pid(), pid, "the same process");
    (world, times, killed)
}

pub(crate) fn noted(system: &System, times: &Times, killed: Duration, stop: &str) {
    let debian = if system.release == "trixie" { 13 } else { 12 };
    let booted = format!("Debian {debian}, kernel 6.1, x86_64");
    way(system.way, &booted, [times.agent_start, times.power_on]);
    let name = system.way.trim_start_matches("deb+");
    measured(&format!("{name}: killed, until commands run again"), &seconds(killed));
    measured(&format!("{name}: STOPPED at"), stop);
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

pub(crate) fn whole_life(system: &System) {
    let (mut world, times, killed) = serves(system);
    world.last_words("poweroff");
    world.stopped();
    noted(system, &times, killed, "`poweroff`");
}

/// Runs [`whole_life`] on Debian 12, for a system without a journal.
fn on_debian_12(name: &'static str, way: &'static str, reload: &'static str) {
    whole_life(&System { name, release: "bookworm", way, log: FILE, reload });
}

mote_tests::tests! {
    sysvinit: on_debian_12("sysvinit", "deb+sysvinit", "service mote-agent reload"),
    openrc: on_debian_12("openrc", "deb+OpenRC", "rc-service mote-agent reload"),
    runit: on_debian_12("runit", "deb+runit", "sv hup mote-agent"),
    s6: on_debian_12("s6", "deb+s6", "s6-svc -h /etc/s6/mote-agent"),
}

/// tiny-cloud looks for Incus' socket once, in the runlevel `boot`, and asks once, in the next.
#[test]
fn starts_before_tiny_cloud_in_openrcs_runlevel_boot() {
    let data = "#!/bin/sh\necho user-data\n";
    let config = format!("user.user-data={data}");
    let plan = Plan { incus: true, host: &["--config", &config], ..Plan::default() };
    let mut world = World::boot("tiny-cloud", "bookworm", &plan);
    world.connected();
    let asked =
        || world.host.sh("cat /srv/answers").ok().filter(|text| text.matches('\0').count() == 2);
    let (answers, _) = wait("tiny-cloud-early", BOOT, asked);
    let bodies: Vec<_> = answers
        .split_terminator('\0')
        .map(|answer| answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answers}")))
        .collect();
    assert!(bodies.iter().all(|(head, _)| head.starts_with("HTTP/1.1 200 ")), "{answers}");
    assert_eq!(bodies[0].1, data, "no chunks, nothing else");
    assert!(bodies[1].1.contains(&format!("local-hostname: {NAME}\n")), "{answers}");
    assert_eq!(world.sh("cat /srv/cloud"), "incus\n");
    contains(world.sh("rc-update show boot"), &["mote-agent", "tiny-cloud-boot"]);
    world.last_words("poweroff");
    world.stopped();
}

// Checks for systemd only: restarts, the watchdog, the hardened unit's score, the power button.

const SYSTEMD: System = System {
    name: "systemd",
    release: "bookworm",
    way: "deb+systemd",
    log: "journalctl --no-pager -b -o cat -u mote-agent",
    reload: "systemctl reload mote-agent",
};
const DROP_IN: &str = "/etc/systemd/system/mote-agent.service.d";
const HARDENED: &str = "/usr/share/doc/mote-agent/examples/hardened.conf";
/// Number of restarts. The fastest one counts, because the machine may be busy.
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
    contains(world.sh(SYSTEMD.log), &["Watchdog timeout (limit 10s)!"]);
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
    let best = restarts.into_iter().min().expect("one");
    measured("systemd: `systemctl restart`, until CONNECTED", &seconds(best));
    assert!(best < Duration::from_secs(1), "{best:?}");
    watchdog(&world);
    assert_eq!(world.sh("systemctl --failed --no-legend --plain"), "");
    hardened(&mut world);
    world.vm.power_button();
    world.stopped();
    noted(&SYSTEMD, &times, killed, "the power button");
}

/// The root contains nothing of mote except the extension.
#[test]
fn sysext() {
    whole_life(&System { name: "sysext", release: "trixie", way: "sysext", ..SYSTEMD });
}

// An image that contains mote and Debian's Go agent. The Go agent has its unit and udev rule but no
// package, as if a server's script had installed it from the config share.

const AGENT: &str = "/usr/libexec/incus/incus-agent";
/// Replaces the agent's set-up script, which looks for a different kind of disk.
const SETUP: &str = "#!/bin/sh\nset -eu\nmkdir -p /run/incus_agent /run/incus_disk\nmount -o ro \
                     /dev/disk/by-label/incus-agent /run/incus_disk\ncp -R /run/incus_disk/. /run/incus_agent\numount \
                     /run/incus_disk\n";
const LOG: &str = "journalctl --no-pager -b -o cat -u mote-agent";

fn left() -> Scratch {
    let agent =
        PathBuf::from(source::printed(Command::new("scripts/go-agent").arg("incus-agent")).trim());
    let tree = agent.ancestors().nth(4).expect("the package's tree");
    let scratch = Scratch::new();
    let add = |path: &str| scratch.0.join("add").join(path);
    for (from, to) in [
        ("usr/libexec/incus/incus-agent", "usr/libexec/incus/incus-agent"),
        ("lib/systemd/system/incus-agent.service", "usr/lib/systemd/system/incus-agent.service"),
        ("lib/udev/rules.d/60-incus-agent.rules", "usr/lib/udev/rules.d/60-incus-agent.rules"),
    ] {
        let from =
            [tree.join(from), tree.join("usr").join(from)].into_iter().find(|path| path.exists());
        put(add(to), fs::read(from.expect("a file of the package")).expect("a file"));
    }
    put(add("usr/libexec/incus/incus-agent-setup"), SETUP);
    source::printed(Command::new("chmod").args(["-R", "a+rX"]).arg(add("")));
    source::printed(Command::new("chmod").args(["-R", "755"]).arg(add("usr/libexec")));
    scratch
}

#[test]
fn reports_a_remaining_go_agent_and_works_next_to_it() {
    let files = left();
    let plan = Plan { incus: true, add: Some(&files.0), ..Plan::default() };
    let mut world = World::boot("systemd", "bookworm", &plan);
    let _times = world.connected();
    // Other units may have failed: a busy machine may exceed their start limits.
    world.sh("systemctl is-system-running --wait || true");
    let failed = world.sh("systemctl --failed --no-legend --plain");
    assert!(!failed.contains("agent"), "{failed}");
    // The udev rule requests the Go agent's unit, but systemd does not start it.
    let unit = "systemctl show --value -p Wants sys-subsystem-virtio\\\\x2dports-*.device dev-vport*.device \
                dev-virtio\\\\x2dports-*.device 2>/dev/null; systemctl show -p ActiveState,ConditionResult incus-agent";
    let unit = world.sh(unit);
    contains(&unit, &["ActiveState=inactive\n", "ConditionResult=no\n"]);
    let said = "incus-agent.service: another agent's unit; remove it";
    assert!(world.sh(LOG).contains(said), "{}", world.sh(LOG));
    let check = world.sh("mote-agent --check");
    assert!(check.contains(&format!("note     service: /lib/systemd/system/{said}\n")), "{check}");

    // A Go agent that is started by hand does not get the port, and mote continues.
    let pid = world.pid();
    let by_hand = format!(
        "{AGENT}-setup; cd /run/incus_agent; timeout -s KILL 60 {AGENT} 2>&1; echo code $?"
    );
    let output = world.sh(&by_hand);
    assert!(output.contains("address already in use") && output.ends_with("code 1\n"), "{output}");
    assert_eq!(world.pid(), pid);

    // A Go agent that started first serves the host. It opens the port only briefly, so mote cannot
    // name its process: it reports that the port is busy, and opens it once it is free.
    world.last_words(&format!(
        "systemd-run --quiet sh -c 'systemctl stop mote-agent; systemd-run --quiet --unit=go \
         --working-directory=/run/incus_agent {AGENT}; sleep 10; systemctl start mote-agent'"
    ));
    let theirs = || world.host.sh(&format!("{LOG} | tail -n 20; pidof incus-agent")).ok();
    let waits = "waiting for vsock: another agent listens on vsock port 8443 already";
    let (log, _) = wait("its wait", BOOT, || theirs().filter(|log| log.contains(waits)));
    let go = log.lines().last().expect("a process").to_owned();
    world.last_words(&format!("kill {go}"));
    world.another_than(&pid);
    world.vm.power_button();
    world.stopped();
}
