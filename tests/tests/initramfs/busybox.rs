//! A home-made initramfs of busybox, and its `switch_root` into a tmpfs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use mote_tests::proc::PID;
use mote_tests::vm::Spec;
use mote_tests::{Scratch, agent, put, tool, wait};

use crate::world::{BOOT, World, append};

/// Waits for /run/go, makes a root and goes there. With `next=agent` it has an agent.
const INIT: &str = r#"#!/bin/busybox sh
export PATH=/bin:/sbin
/bin/busybox mkdir -p /bin /sbin /root /etc
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mount -t tmpfs run /run
for module in virtio_pci virtio_console virtio_blk; do modprobe $module; done
echo old >/etc/hostname
head -c 40000000 /dev/urandom >/ballast
mote-agent --initramfs </dev/null >>/run/agent.log 2>&1 &
while [ ! -e /run/go ]; do sleep 0.1; done
mkdir /new
mount -t tmpfs new /new
cd /new
mkdir bin sbin etc root dev proc sys run tmp lib
cp /bin/busybox bin
chroot . /bin/busybox --install -s /bin
cp -a /lib/modules lib
echo new >etc/hostname
cp /next init
! grep -q next=agent /proc/cmdline || cp /sbin/mote-agent sbin
for place in dev proc sys run; do mount -o move /$place /new/$place; done
exec switch_root /new /init
"#;

/// Of the new root.
const NEXT: &str = r#"#!/bin/busybox sh
export PATH=/bin:/sbin
sleep 1
[ ! -e /sbin/mote-agent ] || mote-agent </dev/null >>/run/agent.log 2>&1 &
while [ ! -e /run/off ]; do sleep 0.2; done
kill -TERM "$(sed -n 's/.*"pid": *"\([0-9]*\)".*/\1/p' /run/mote/status)"
sleep 3
poweroff -f
"#;

fn program(path: std::path::PathBuf, text: &str) {
    put(&path, text);
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
}

fn boot(words: &str) -> World {
    let scratch = Scratch::new();
    let base = tool("MOTE_IMAGE", "target/image");
    let image = scratch.0.join("image");
    fs::create_dir(&image).expect("a directory");
    for file in ["vmlinuz", "initrd"] {
        fs::copy(base.join(file), image.join(file)).expect("the image");
    }
    let tree = scratch.0.join("tree");
    program(tree.join("init"), INIT);
    program(tree.join("next"), NEXT);
    fs::create_dir(tree.join("sbin")).expect("a directory");
    fs::copy(agent(), tree.join("sbin/mote-agent")).expect("the agent");
    append(&tree, &image.join("initrd"));
    World::boot(scratch, &Spec { image, words: words.into(), memory: 256, ..Spec::default() })
}

/// The agents' log, once an agent has become CONNECTED after this line.
fn connected_after(world: &World, line: &str) -> String {
    let look = || {
        // A host that never stops asking puts a new start off.
        std::thread::sleep(Duration::from_secs(2));
        let log = world.try_sh("cat /run/agent.log").ok()?;
        let is = log.split_once(line).is_some_and(|(_, after)| after.contains(": CONNECTED "));
        is.then_some(log)
    };
    wait(line, BOOT, look).0
}

/// What of the guest tells the roots apart.
fn name(world: &World) -> String {
    world.sh("cat /etc/hostname").trim().to_owned()
}

fn free(world: &World) -> u64 {
    let text = world.sh("sed -n 's/^MemFree: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    text.trim().parse().expect("a number")
}

#[test]
fn in_a_root_without_an_agent_the_first_goes_on() {
    let mut world = boot("");
    world.until("true");
    assert_eq!(name(&world), "old");
    world.sh("mote-agent ready");
    let before = free(&world);
    world.sh("touch /run/go");
    let log = connected_after(&world, "starting anew");
    assert!(log.contains("the initramfs is left: going on in the new root"), "{log}");
    assert_eq!(name(&world), "new");
    // Files, mounts, the socket and the reports are the new root's.
    world.push("/tmp/pushed");
    assert_eq!(
        world.sh("cat /tmp/pushed; ls /"),
        "pushedbin\ndev\netc\ninit\nlib\nproc\nroot\nrun\nsbin\nsys\ntmp\n"
    );
    assert!(world.sh("ls -l /dev/lxd/sock").starts_with('s'));
    // Its program is gone from the file system, and runs all the same.
    let pid = world.sh(PID);
    let pid = pid.trim();
    let look = format!("/proc/{pid}");
    assert_eq!(world.sh(&format!("{look}/exe get user.foo")), "bar\n");
    assert!(world.sh(&format!("{look}/exe status")).contains("Ready"));
    let open = world.sh(&format!("ls -l {look}/fd {look}/cwd {look}/root"));
    assert!(open.contains("root -> /\n") && !open.contains("(unreachable)"), "{open}");
    let line = world.sh(&format!("tr '\\0' ' ' <{look}/cmdline"));
    assert_eq!(line, "mote-agent --left-initramfs ");
    // The old root is gone: its files took memory.
    let after = free(&world);
    println!("free before and after: {before} and {after} kB");
    assert!(after > before + 20_000, "{before} {after}");
    world.assert_no_end();
    world.sh("touch /run/off");
    assert!(world.stopped());
}

#[test]
fn the_roots_own_agent_takes_over() {
    let mut world = boot("next=agent");
    world.until("true");
    assert_eq!(name(&world), "old");
    world.sh("mote-agent ready");
    world.sh("touch /run/go");
    let outage = world.outage();
    let log = connected_after(&world, "taking over from the initramfs' agent");
    assert!(log.contains("another agent takes over"), "{log}");
    let outage = outage.longest();
    println!("no answer for {:?} at most", outage.unanswered);
    assert!(outage.failed.is_empty(), "{:?}", outage.failed);
    assert_eq!(name(&world), "new");
    assert!(world.sh("mote-agent status").contains("Ready"));
    assert_eq!(world.sh("mote-agent get user.foo"), "bar\n");
    let left = || world.try_sh("ps | grep -c '[i]nitramfs'").unwrap_or_default();
    wait("the first's end", Duration::from_secs(60), || (left() != "1\n").then_some(()));
    world.assert_no_end();
    world.sh("touch /run/off");
    assert!(world.stopped());
}
