//! Agents that start before their devices, drivers and files, as in an initramfs.

use mote_tests::prelude::*;

use super::logged_at;

/// Limit from plugging a device to its effect: mostly PCI hot-plug in an emulated guest.
const PLUGGED: Duration = Duration::from_secs(40);

/// Limit in guest time from a disk's appearance until its files are read. In software emulation
/// that takes 1.2 to 2.8 s, including 0.25 s for the mount.
const REACTION: Duration = Duration::from_secs(5);

/// Path of the port's driver, which exists if the driver is loaded or, as in Debian 13, built in.
const DRIVER: &str = "/sys/bus/virtio/drivers/virtio_console";

fn logged(guest: &mut Guest, line: &str) {
    let find = format!("grep -q '{line}' /run/agent.log");
    if found(PLUGGED, || (guest.sh(&find).0 == 0).then_some(())).is_none() {
        panic!("no {line:?}: {}", guest.sh("cat /run/agent.log").1);
    }
}

#[test]
fn an_agent_started_before_run_survives_a_second_one() {
    let (world, mut guest) = World::with_shell("incus", &Spec::default(), &[]);
    let pid = guest.ok("cat /run/agent.pid").trim().to_owned();
    let status = guest.ok("mote-agent status");
    let vport = status.lines().find_map(|line| line.strip_prefix("port: ")).unwrap().to_owned();
    // A stopped agent does not notice the mount.
    guest.ok(&format!("kill -STOP {pid} && mount -t tmpfs run /run"));
    let hidden =
        format!("process {pid} runs, but /run/mote was mounted over or removed after its start");
    let check = guest.sh("mote-agent --check").1;
    assert!(check.contains(&hidden) && !check.contains("end process"), "{check}");
    exits(guest.sh("mote-agent 2>&1"), 1, &[&format!("is running: {hidden}")]);
    // A second agent that cannot see the first one gets a lock of its own. It must report the busy
    // vsock port, not a missing vsock.
    guest.ok("mkdir -p /srv/other /srv/files && ln -s /dev /proc /srv/other && \
         mount -t iso9660 -o ro /dev/vda /srv/files");
    let other = "mote-agent --root /srv/other --config-dir /srv/files --flavour incus --no-wait";
    let taken = "error: another agent listens on vsock port 8443 already: end process";
    let taken = format!("{taken} {pid} (mote-agent)\n");
    exits(guest.sh(&format!("{other} --port {vport} 2>&1")), 1, &[&taken]);
    guest.ok(&format!("kill -CONT {pid}"));
    // The first agent notices the new /run at its next line to the host.
    until("its status", MOTE_BOOT, || {
        guest.sh("mote-agent status").1.contains("state: CONNECTED\n")
    });
    world.power_off(&mut guest);
}

#[test]
fn connects_once_late_devices_appear() {
    for (flavour, order) in [
        ("lxd", [Late::Disk, Late::Vsock, Late::Port]),
        ("incus", [Late::Port, Late::Disk, Late::Vsock]),
    ] {
        // The agent logs to the kernel's log, whose lines have the guest's own time.
        let words = "mote.modules=no mote.log=kernel".into();
        let spec = Spec { words, late: order.to_vec(), ..Spec::default() };
        let mut world = World::of(flavour, &spec, &[]);
        let mut guest = world.vm.guest();
        logged(&mut guest, "waiting for the config share: this VM has no disk");
        let status = guest.ok("mote-agent status");
        assert!(status.contains("state: waiting for the config share\n"), "{status}");
        let waits = "agent: running, waiting for the config share";
        exits(guest.sh("mote-agent --check"), 1, &[waits]);
        thread::sleep(Duration::from_secs(3));
        for device in order {
            world.vm.plug_late(device);
            match device {
                Late::Disk => {
                    logged(&mut guest, "files from disk");
                    let lines = ["virtio_blk virtio", "mote: info: files from disk"];
                    let [came, used] = lines.map(|line| logged_at(&mut guest, line));
                    assert!(in_time(used - came, REACTION), "{came:?} {used:?}");
                }
                // Without its files, the agent does not look for a port.
                Late::Port if order[0] != Late::Port => logged(&mut guest, "port /dev/vport"),
                // LXD's agent listens before the device exists.
                Late::Vsock if flavour != "lxd" => logged(&mut guest, "vsock is available"),
                Late::Port | Late::Vsock => {}
            }
        }
        world.host.connected(MOTE_BOOT);
        contains(guest.ok("mote-agent status"), &[&format!("flavour: {flavour}\n")]);
        world.power_off(&mut guest);
    }
}

#[test]
fn uses_late_drivers_immediately() {
    let spec = Spec { words: "mote.modules=no mote.agent=later".into(), ..Spec::default() };
    let mut world = World::of("lxd", &spec, &[]);
    let mut guest = world.vm.guest();
    guest.ok("mv /lib/modules /lib/away; start-stop-daemon -S -b -x /run/agent.start");
    logged(&mut guest, "waiting for the config share: ");
    // The first missing driver: the port's may be built in, but vsock's is always a module.
    let line = if guest.sh(&format!("test -e {DRIVER}")).0 == 0 {
        "module vmw_vsock_virtio_transport is missing: put it into the image (/lib/modules/"
    } else {
        "missing  port: a virtio-serial device has no driver (virtio_console): module \
         virtio_pci is missing: put it into the image (/lib/modules/"
    };
    exits(guest.sh("mote-agent --check"), 1, &[line]);
    thread::sleep(Duration::from_secs(2));
    guest.ok("mv /lib/away /lib/modules");
    logged(&mut guest, "port /dev");
    world.host.connected(MOTE_BOOT);
    world.power_off(&mut guest);
}

#[test]
fn reports_who_has_the_port_open_and_takes_it_when_free() {
    let (world, mut guest) = World::with_shell("lxd", &Spec::default(), &[]);
    guest.ok("kill -9 $(cat /run/agent.pid)");
    guest.ok("p=$(ls /dev/vport*p1); start-stop-daemon -S -b -m -p /run/holder -x /bin/sh -- -c \"exec sleep 999 <>$p\"");
    until("the holder", BACK, || {
        guest.sh("ls -l /proc/$(cat /run/holder)/fd | grep -q vport").0 == 0
    });
    let holder = guest.ok("cat /run/holder");
    let end = format!("end process {} (sleep)", holder.trim());
    exits(guest.sh("mote-agent --check"), 1, &["is busy", &end]);
    guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    let end = end.replace(['(', ')'], ".");
    logged(&mut guest, &format!("is busy: another process has it open.*{end}"));
    guest.ok(": >/run/agent.log; kill $(cat /run/holder)");
    logged(&mut guest, "port /dev/vport");
    world.host.connected(MOTE_BOOT);
    world.power_off(&mut guest);
}

// Images with something missing or broken: each reports it on its console and provides what still
// works. `early` covers late drivers and a second mote agent, `distros` a Go agent.

const START: &str = "start-stop-daemon -S -b -x /run/agent.start";

fn without_agent(words: &str) -> (World, Guest) {
    let words = format!("mote.agent=later {words}");
    let mut world = World::of("lxd", &Spec { words, ..Spec::default() }, &[]);
    let guest = world.vm.guest();
    (world, guest)
}

fn said(world: &World, line: &str) {
    until(&format!("{line:?} on the console"), MOTE_BOOT, || world.vm.console().contains(line));
}

/// Checks that the host reports why the config share was not read.
fn unread(world: &World, told: &str) {
    let is_told = || {
        let why = &world.host.state()["why"];
        let says_so = why["text"].as_str().is_some_and(|text| text.contains(told));
        why["cause"] == "share-unread" && says_so
    };
    until("why nothing is heard", MOTE_BOOT, is_told);
}

/// Removes a driver's file, as in an image without it; `None` if the driver is built in.
fn without(guest: &mut Guest, module: &str) -> Option<()> {
    guest.ok(&format!("rm -f $(find /lib/modules -name '{module}.ko*')"));
    (guest.sh(&format!("test -e /sys/module/{module}/initstate")).0 != 0
        && guest.sh(&format!("grep -q {module} /lib/modules/*/modules.builtin")).0 != 0)
        .then_some(())
}

#[test]
fn serves_devlxd_without_the_ports_driver() {
    let (world, mut guest) = without_agent("mote.modules=no");
    unread(&world, "not even a byte of the disk");
    let Some(()) = without(&mut guest, "virtio_console") else {
        return world.power_off_unseen(&mut guest);
    };
    guest.ok(START);
    said(
        &world,
        "waiting for the status port: a virtio-serial device has no driver (virtio_console)",
    );
    // The agent knows the host's address from the config share: the host has not called.
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    assert_eq!(world.host.state()["started"], false);
    let line = "missing  port: a virtio-serial device has no driver";
    exits(guest.sh("mote-agent --check"), 1, &[line]);
    world.power_off_unseen(&mut guest);
}

#[test]
fn the_host_sees_an_agent_without_vsocks_driver() {
    let (world, mut guest) = without_agent("");
    if without(&mut guest, "vmw_vsock_virtio_transport").is_some() {
        guest.ok(START);
        said(&world, "warn: a vsock device has no driver (vmw_vsock_virtio_transport)");
        said(&world, "warn: cannot reach host 2:");
        // The host sees the agent but cannot call it.
        until("STARTED", MOTE_BOOT, || world.host.state()["started"] == true);
        let why = "the host cannot call this agent";
        exits(guest.sh("mote-agent status"), 4, &[why]);
        let (code, text) = guest.sh("mote-agent --check");
        let first = "missing  agent: a vsock device has no driver";
        assert!(code == 1 && text.starts_with(first) && text.contains(why), "{text}");
    }
    world.power_off_unseen(&mut guest);
}

#[test]
fn works_on_a_read_only_root() {
    let (world, mut guest) = without_agent("");
    unread(&world, "nothing has mounted it");
    guest.ok("mount -o remount,ro /");
    assert_ne!(guest.sh("touch /file").0, 0, "it can be written");
    guest.ok(START);
    let _took = world.host.connected(MOTE_BOOT);
    assert_eq!(world.host.exec(&["echo", "served"]).as_deref(), Ok("served\n"));
    assert_eq!(guest.ok("mote-agent get user.foo"), "bar\n");
    let file = world.scratch.0.join("file");
    fs::write(&file, "text").unwrap();
    let push = |to: &str| {
        world.host.try_run(&["file", "push", file.to_str().unwrap(), &format!("{NAME}{to}")])
    };
    assert_eq!(push("/run/file").map(|_| ()), Ok(()));
    contains(push("/file").unwrap_err(), &["Read-only file system"]);
    world.power_off(&mut guest);
}

#[test]
fn waits_for_a_missing_dev_and_reports_it() {
    let (world, mut guest) = without_agent("");
    // The shell itself needs /dev/null.
    contains(guest.ok(
        "umount -l /dev/pts; umount -l /dev; mote-agent >>/run/agent.log 2>&1 3>&- & echo $! >/run/agent.pid; sleep 6; \
         cat /run/agent.log; mount -t devtmpfs dev /dev; mkdir -p /dev/pts; mount -t devpts dev /dev/pts",
    ), &["mote: info: waiting for ", "/dev"]);
    let _took = world.host.connected(MOTE_BOOT);
    assert_eq!(world.host.exec(&["echo", "served"]).as_deref(), Ok("served\n"));
    world.power_off(&mut guest);
}
