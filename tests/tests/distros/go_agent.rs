//! Debian's Go agent in an image next to mote: with its unit and udev rule, but without its
//! package, as a server's script installs it from the config share.

use std::path::{Path, PathBuf};
use std::process::Command;

use mote_tests::{Scratch, put, wait};

use crate::world::{BOOT, Plan, World};

const AGENT: &str = "/usr/libexec/incus/incus-agent";
/// Replaces the agent's set-up script, which looks for a different kind of disk.
const SETUP: &str = "#!/bin/sh\nset -eu\nmkdir -p /run/incus_agent /run/incus_disk\nmount -o ro \
                     /dev/disk/by-label/incus-agent /run/incus_disk\ncp -R /run/incus_disk/. /run/incus_agent\numount \
                     /run/incus_disk\n";
const LOG: &str = "journalctl --no-pager -b -o cat -u mote-agent";

fn left() -> Scratch {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let fetched = Command::new("scripts/go-agent").arg("incus-agent").current_dir(source).output();
    let fetched = fetched.expect("scripts/go-agent").stdout;
    let agent = PathBuf::from(String::from_utf8_lossy(&fetched).trim());
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
        put(add(to), std::fs::read(from.expect("a file of the package")).expect("a file"));
    }
    put(add("usr/libexec/incus/incus-agent-setup"), SETUP);
    let mut chmod = Command::new("chmod");
    chmod.arg("-R").arg("a+rX").arg(scratch.0.join("add"));
    assert!(chmod.status().expect("chmod").success());
    let mut chmod = Command::new("chmod");
    chmod.arg("-R").arg("755").arg(add("usr/libexec"));
    assert!(chmod.status().expect("chmod").success());
    scratch
}

#[test]
fn reports_a_remaining_go_agent_and_works_next_to_it() {
    let files = left();
    let plan = Plan { incus: true, add: Some(&files.0), ..Plan::default() };
    let mut world = World::boot("systemd", "bookworm", &plan);
    let _times = world.connected();
    // On a busy machine another unit may have missed its start limit.
    world.sh("systemctl is-system-running --wait || true");
    let failed = world.sh("systemctl --failed --no-legend --plain");
    assert!(!failed.contains("agent"), "{failed}");
    // The udev rule requests it, but systemd does not start it.
    let unit = "systemctl show --value -p Wants sys-subsystem-virtio\\\\x2dports-*.device dev-vport*.device \
                dev-virtio\\\\x2dports-*.device 2>/dev/null; systemctl show -p ActiveState,ConditionResult incus-agent";
    let unit = world.sh(unit);
    assert!(
        unit.contains("ActiveState=inactive\n") && unit.contains("ConditionResult=no\n"),
        "{unit}"
    );
    let said = "incus-agent.service: unit of another agent; remove it";
    assert!(world.sh(LOG).contains(said), "{}", world.sh(LOG));
    let check = world.sh("mote-agent --check");
    assert!(check.contains(&format!("note     service: /lib/systemd/system/{said}\n")), "{check}");

    // A Go agent that is started by hand does not get the port, and mote continues.
    let pid = world.pid();
    let by_hand = format!(
        "{AGENT}-setup; cd /run/incus_agent; timeout -s KILL 60 {AGENT} 2>&1; echo code $?"
    );
    let output = world.sh(&by_hand);
    println!("a Go agent beside mote: {output}");
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
    let took = world.another_than(&pid);
    println!("mote serves {took:?} after the Go agent's end");
    world.vm.power_button();
    world.stopped();
}
