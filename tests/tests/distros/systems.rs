//! Checks that are the same for each init system: the agent starts in time, serves the host, is
//! restarted after a kill, writes a log and reports STOPPED.

use std::time::Duration;

use mote_tests::pages::ways::{Row, record};
use mote_tests::{NAME, wait};

use crate::world::{BOOT, Plan, Times, World, measured};

#[derive(Clone, Copy, Debug)]
pub(crate) struct System {
    pub(crate) name: &'static str,
    /// Debian's.
    pub(crate) release: &'static str,
    /// Its row in the table of `docs/results/boots.md`.
    pub(crate) way: &'static str,
    /// Command that prints the agent's log.
    pub(crate) log: &'static str,
    pub(crate) reload: &'static str,
}

/// The log of the three systems without a journal.
const FILE: &str = "cat /var/log/mote-agent.log";

/// Boots the system and checks everything except the shutdown. Returns the times, and how long a
/// killed agent was absent.
pub(crate) fn serves(system: &System) -> (World, Times, Duration) {
    let mut world = World::boot(system.name, system.release, &Plan::default());
    let times = world.connected();
    let said =
        world.sh("cat /etc/debian_version; readlink -f /sbin/init; cat /proc/1/comm; uname -r");
    println!("{}: {}", system.name, said.replace('\n', " "));
    let path = |name: &str| world.scratch.0.join(name).display().to_string();
    let text = String::from_utf8(vec![b'm'; 300_000]).expect("text");
    std::fs::write(path("to"), &text).expect("a file");
    world.host.ok(&["file", "push", &path("to"), &format!("{NAME}/srv/file")]);
    world.host.ok(&["file", "pull", &format!("{NAME}/srv/file"), &path("from")]);
    assert_eq!(std::fs::read_to_string(path("from")).expect("a file"), text);
    assert_eq!(world.sh("mote-agent get user.foo"), "bar\n");
    let check = world.sh("mote-agent --check");
    assert!(check.contains("agent: running, CONNECTED"), "{check}");

    let killed = world.killed_and_back();
    println!("{}: killed: commands again after {killed:?}", system.name);
    let log = world.sh(system.log);
    for line in ["port /dev/v", "files from disk", "STARTED", ": CONNECTED ", "CONNECTED 2:"] {
        // The journal has priorities instead of the line's first words.
        let line = line.trim_start_matches(": ");
        assert!(log.matches(line).count() >= 2, "{line} of two agents: {log}");
    }
    let pid = world.pid();
    world.sh(system.reload);
    let restarted = || {
        // The agent waits for the host's commands, and keeps their results for 5 s.
        std::thread::sleep(Duration::from_secs(7));
        let log = world.sh(system.log);
        let (_, after) = log.split_once("restarting in place")?;
        after.contains("CONNECTED 2:").then_some(())
    };
    wait("a new start", BOOT, restarted);
    assert_eq!(world.pid(), pid, "the same process");
    (world, times, killed)
}

pub(crate) fn noted(system: &System, added: u64, times: &Times, killed: Duration, stop: &str) {
    record(&Row {
        way: system.way,
        booted: format!(
            "Debian {}, kernel 6.1, x86_64",
            if system.release == "trixie" { 13 } else { 12 }
        ),
        agent_start: times.agent_start,
        power_on: times.power_on,
        bytes: added,
        pss: times.pss,
        clean_stop: true,
    });
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
    noted(system, world.added, &times, killed, "`poweroff`");
}

/// The same on Debian 12, for a system without a journal.
fn on_debian_12(name: &'static str, way: &'static str, reload: &'static str) {
    whole_life(&System { name, release: "bookworm", way, log: FILE, reload });
}

#[test]
fn sysvinit() {
    on_debian_12("sysvinit", "deb+sysvinit", "service mote-agent reload");
}

#[test]
fn openrc() {
    on_debian_12("openrc", "deb+OpenRC", "rc-service mote-agent reload");
}

#[test]
fn runit() {
    on_debian_12("runit", "deb+runit", "sv hup mote-agent");
}

#[test]
fn s6() {
    on_debian_12("s6", "deb+s6", "s6-svc -h /etc/s6/mote-agent");
}

/// tiny-cloud looks for Incus' socket once, in the runlevel `boot`, and asks once, in the next
/// runlevel.
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
    assert_eq!(bodies[0].1, data, "no chunks, nothing beside it");
    assert!(bodies[1].1.contains(&format!("local-hostname: {NAME}\n")), "{answers}");
    assert_eq!(world.sh("cat /srv/cloud"), "incus\n");
    let levels = world.sh("rc-update show boot");
    assert!(levels.contains("mote-agent") && levels.contains("tiny-cloud-boot"), "{levels}");
    world.last_words("poweroff");
    world.stopped();
}
