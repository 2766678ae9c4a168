//! What docs/how-to/snapshots.md says: `mote-snapshot` copies clean file systems.

use super::devices::unplug;
use super::life::agents_pid;
use crate::prelude::*;
use crate::run::Run;

group! { "snapshot": instance, volume, without_agent }

/// Mounts the disk with the label `$0`, writes to it without a sync, and adds a hook that writes to
/// it and records its calls.
const BEGIN: &str = r#"mkdir -p /mnt/disk /etc/mote/freeze.d; rm -f /run/hook
printf '#!/bin/sh\necho $1 | tee -a /run/hook >>/mnt/disk/hook\n' >/etc/mote/freeze.d/hook
chmod 755 /etc/mote/freeze.d/hook; modprobe crc32c_generic; modprobe ext4
until disk=$(findfs LABEL=$0); do sleep 0.3; done
mount -t ext4 $disk /mnt/disk && echo unsynced >/mnt/disk/file"#;
const AFTER: &str = "mote-agent freeze --status; echo more >>/mnt/disk/file && sync; cat /run/hook";
const END: &str = "rm /etc/mote/freeze.d/hook; umount /mnt/disk";

fn mote_snapshot(world: &World, words: &[&str]) -> Try<Run> {
    let program = "/usr/local/bin/mote-snapshot";
    put(program, include_bytes!("../../../../image/packages/mote-snapshot"))?;
    world.run(&["chmod", "755", program]).code(0)?;
    Ok(world.run(&[&["mote-snapshot"], words].concat()))
}

/// Returns the path of a file in the pool.
fn pool(world: &World, file: &str) -> String {
    format!("/var/lib/{}/storage-pools/default/{file}", world.server.service())
}

fn debugfs(world: &World, disk: &str, request: &str) -> Try<String> {
    world.run(&["debugfs", "-R", request, disk]).text()
}

/// Returns whether the file system's journal must be replayed, as after a power cut.
fn is_dirty(world: &World, disk: &str) -> Try<bool> {
    Ok(debugfs(world, disk, "stats -h")?.contains("needs_recovery"))
}

/// Runs `mote-snapshot`, and checks that the copy of the disk is complete and clean, unlike the
/// mounted disk before and after it.
fn consistent(world: &World, label: &str, disks: [&str; 2], options: &[&str], name: &str) -> Seen {
    let [live, copy] = disks.map(|disk| pool(world, disk));
    let look = || -> Seen {
        let before = is_dirty(world, &live)?;
        let said = mote_snapshot(world, &[options, &[VM, name]].concat())?.code(0)?.said();
        has(&said, " /mnt/disk")?;
        same("afterwards", world.sh(AFTER)?, "not frozen\nfreeze\nthaw\n")?;
        let dirty = [before, is_dirty(world, &copy)?, is_dirty(world, &live)?];
        same("journals are needed before, in the copy and after", dirty, [true, false, true])?;
        same("a file", debugfs(world, &copy, "cat file")?, "unsynced\n")?;
        same("a hook's file", debugfs(world, &copy, "cat hook")?, "freeze\n")?;
        Ok(said)
    };
    world.exec(&["sh", "-c", BEGIN, label]).code(0)?;
    let seen = look();
    world.sh(END)?;
    let seen = seen?;
    let snapshot = format!("/1.0/instances/{VM}/snapshots/{name}");
    world.ok(&["query", "-X", "DELETE", "--wait", &snapshot])?;
    Ok(seen)
}

fn instance(world: &World) -> Seen {
    // This disk has a partition.
    let disks = [
        "virtual-machines/vm1/root.img?offset=1048576",
        "virtual-machines-snapshots/vm1/before-upgrade/root.img?offset=1048576",
    ];
    consistent(world, "root-disk", disks, &[], "before-upgrade")
}

fn volume(world: &World) -> Seen {
    let volume = |words: &[&str]| world.ok(&[&["storage", "volume"], words].concat());
    volume(&["create", "default", "data", "--type=block", "size=32MiB"])?;
    let file = pool(world, "custom/default_data/root.img");
    world.run(&["mke2fs", "-q", "-t", "ext4", "-L", "data-disk", &file]).code(0)?;
    world.ok(&["config", "device", "add", VM, "data", "disk", "pool=default", "source=data"])?;
    let disks = ["custom/default_data/root.img", "custom-snapshots/default_data/s1/root.img"];
    let options = ["--for", "5m", "--volume", "default/data"];
    let seen = consistent(world, "data-disk", disks, &options, "s1");
    unplug(world, "data")?;
    world.until("no other disk", 30, || Ok(!world.sh("ls /sys/block")?.contains("sdb")))?;
    volume(&["delete", "default", "data"])?;
    seen
}

/// The agent and its program are absent for 10 s.
fn without_agent(world: &World) -> Seen {
    let was = agents_pid(world)?;
    let script = "mv /sbin/mote-agent /sbin/away
        (sleep 10; mv /sbin/away /sbin/mote-agent) >/dev/null 2>&1 </dev/null &
        kill $(cat /run/agent.pid)";
    // The answer may be lost with the agent.
    let _answer = world.exec(&["sh", "-c", script]).run()?;
    let refused = mote_snapshot(world, &[VM, "never"])?.code(1)?.said();
    world.until("another agent", 60, || Ok(agents_pid(world)? != was))?;
    has(&refused, "cannot freeze vm1, so no snapshot was taken")?;
    let never = world.query(&format!("/1.0/instances/{VM}/snapshots/never"));
    same("there is no snapshot", never.is_err(), true)?;
    Ok(refused)
}
