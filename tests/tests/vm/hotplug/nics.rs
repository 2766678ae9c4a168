//! Hot-plugged NICs.

use std::time::Duration;

use mote_tests::{Guest, Host, MOTE_BOOT, NAME, Share, Spec, World, wait};

const SOON: Duration = Duration::from_secs(1);
/// A NIC that must keep its name is checked after this time.
const LATER: Duration = Duration::from_secs(3);

/// A hot-plugged NIC, as QEMU's device.
const LATE: &str = "virtio-net-pci,id=late1,netdev=late,mac=00:16:3e:aa:bb:dd,romfile=";

/// Boots a VM with one NIC, and with QEMU's end of another.
fn boot(flavour: &str, words: &str) -> World {
    let extra = ["-netdev", "hubport,id=late,hubid=0"].map(str::to_owned).into();
    let nic = Some("00:16:3e:aa:bb:cc");
    let words = words.to_owned();
    let spec = Spec { share: Share::Virtiofs, nic, words, extra, ..Spec::default() };
    World::prepare(flavour, &spec, &["--config", "agent.nic_config=true"], |host| {
        tell(host, "eth0", ["name=lan0", "hwaddr=00:16:3e:aa:bb:cc", "mtu=1400"]);
    })
}

/// Describes a NIC to the guest: LXD's host writes its file, also while the VM runs.
fn tell(host: &Host, device: &str, keys: [&str; 3]) {
    host.ok(&[&["device-add", NAME, device, "type=nic"][..], &keys].concat());
}

fn tell_of_late(world: &World) {
    tell(&world.host, "eth1", ["name=dmz0", "hwaddr=00:16:3e:aa:bb:dd", "mtu=1300"]);
}

/// Hot-plugs the other NIC. As in LXD, its file is written just before.
fn plug(world: &World) {
    tell_of_late(world);
    assert!(world.host.share.join("nics/eth1.json").exists());
    world.vm.attach(LATE);
}

fn is_there(guest: &mut Guest) {
    wait("a link", SOON, || (guest.sh("ls /sys/class/net | wc -l").1 == "3\n").then_some(()));
}

/// Waits until the NIC has its name. Returns the time.
fn named(guest: &mut Guest) -> Duration {
    wait("its name", SOON, || (guest.sh("cat /sys/class/net/dmz0/mtu").1 == "1300\n").then_some(()))
        .1
}

#[test]
fn names_only_the_hot_plugged_nic() {
    let mut world = boot("lxd", "");
    let mut guest = world.shell();
    assert_eq!(guest.ok("cat /sys/class/net/lan0/mtu"), "1400\n");
    // A name that an administrator chose.
    guest.ok("ip link set lan0 down; ip link set lan0 name wan");
    std::thread::sleep(SOON);
    plug(&world);
    let took = named(&mut guest);
    println!("a NIC has its name {took:?} after it was plugged in");
    let log = guest.ok("cat /run/agent.log");
    assert!(log.contains(" is now dmz0, MTU 1300"), "{log}");
    // It is up and keeps its name.
    std::thread::sleep(LATER);
    assert_eq!(
        guest.ok("ls /sys/class/net").split_whitespace().collect::<Vec<_>>(),
        ["dmz0", "lo", "wan"]
    );
    let flags = guest.ok("cat /sys/class/net/dmz0/flags");
    assert!(flags.trim().ends_with(['1', '3']), "down: {flags}");
    world.power_off(&mut guest);
}

#[test]
fn names_a_nic_plugged_in_during_the_start() {
    let mut world = boot("lxd", "");
    // From now on the kernel queues events; the agent reads them half a second later.
    wait("STARTED to be read", MOTE_BOOT, || (world.host.state()["started"] == true).then_some(()));
    plug(&world);
    let mut guest = world.shell();
    named(&mut guest);
    world.power_off(&mut guest);
}

#[test]
fn names_a_nic_after_a_thousand_events() {
    let mut world = boot("lxd", "");
    let mut guest = world.shell();
    std::thread::sleep(SOON);
    // A stopped agent simulates a busy one during `udevadm trigger`.
    guest.ok("kill -STOP $(cat /run/agent.pid)");
    guest.ok("for i in $(seq 1000); do echo add > /sys/class/mem/null/uevent; done");
    plug(&world);
    is_there(&mut guest);
    guest.ok("kill -CONT $(cat /run/agent.pid)");
    named(&mut guest);
    world.power_off(&mut guest);
}

/// Incus writes no file. It lists the NIC once its database has it: after the hot-plug, which a
/// slow guest may see later.
#[test]
fn names_a_nic_that_only_the_devices_list() {
    for is_told_first in [false, true] {
        let mut world = boot("incus", "");
        let mut guest = world.shell();
        std::thread::sleep(SOON);
        if is_told_first {
            tell_of_late(&world);
        }
        world.vm.attach(LATE);
        is_there(&mut guest);
        if !is_told_first {
            tell_of_late(&world);
        }
        named(&mut guest);
        assert!(!world.host.share.join("nics/eth1.json").exists(), "Incus writes none");
        world.power_off(&mut guest);
    }
}

#[test]
fn names_no_nic_that_the_policy_denies() {
    let mut world = boot("lxd", "mote.args=--deny,network");
    let mut guest = world.shell();
    guest.ok("modprobe virtio_net");
    plug(&world);
    std::thread::sleep(LATER);
    assert_eq!(guest.ok("ls /sys/class/net | wc -l").trim(), "3");
    assert_ne!(guest.sh("test -e /sys/class/net/dmz0").0, 0);
    world.power_off(&mut guest);
}
