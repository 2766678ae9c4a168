//! NICs that the host plugs in while the VM runs.

use std::time::Duration;

use mote_tests::guest::Guest;
use mote_tests::vm::{Share, Spec};
use mote_tests::world::{MOTE_BOOT, World};
use mote_tests::{put, wait};

/// It has its name so soon.
const SOON: Duration = Duration::from_secs(1);
/// What is not to be named is looked at after so long.
const LATER: Duration = Duration::from_secs(3);

/// A VM with one NIC, and another one whose other end is there.
fn boot(words: &str) -> World {
    let extra = ["-netdev", "hubport,id=late,hubid=0"].map(str::to_owned).into();
    let nic = Some("00:16:3e:aa:bb:cc");
    let words = words.to_owned();
    let spec = Spec { share: Share::Virtiofs, nic, words, extra, ..Spec::default() };
    World::prepare("lxd", &spec, &[], |host| {
        put(host.share.join("nics/eth0.json"), file("lan0", "cc", 1400));
    })
}

/// The file of a NIC, as a server writes it.
fn file(name: &str, end: &str, mtu: u32) -> String {
    format!(
        r#"{{"device_name":"x","nic_name":"{name}","mac_address":"00:16:3e:aa:bb:{end}","mtu":{mtu}}}"#
    )
}

/// Plugs in the other one, whose file is written just before.
fn plug(world: &World) {
    put(world.host.share.join("nics/eth1.json"), file("dmz0", "dd", 1300));
    world.vm.attach("virtio-net-pci,id=late1,netdev=late,mac=00:16:3e:aa:bb:dd,romfile=");
}

/// Waits until it has its name; how long that took.
fn named(guest: &mut Guest) -> Duration {
    wait("its name", SOON, || (guest.sh("cat /sys/class/net/dmz0/mtu").1 == "1300\n").then_some(()))
        .1
}

#[test]
fn one_that_is_plugged_in_gets_its_name_and_no_other_one_is_touched() {
    let mut world = boot("");
    let mut guest = world.shell();
    assert_eq!(guest.ok("cat /sys/class/net/lan0/mtu"), "1400\n");
    // An administrator's name.
    guest.ok("ip link set lan0 down; ip link set lan0 name wan");
    // The start is over.
    std::thread::sleep(SOON);
    plug(&world);
    let took = named(&mut guest);
    println!("a NIC has its name {took:?} after it was plugged in");
    let log = guest.ok("cat /run/agent.log");
    assert!(log.contains(" is now dmz0, MTU 1300"), "{log}");
    // It is up, and stays what it is.
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
fn one_that_is_plugged_in_while_the_agent_starts_gets_its_name() {
    let mut world = boot("");
    // Events are kept from then on; they are read half a second later.
    wait("STARTED to be read", MOTE_BOOT, || (world.host.state()["started"] == true).then_some(()));
    plug(&world);
    let mut guest = world.shell();
    named(&mut guest);
    world.power_off(&mut guest);
}

#[test]
fn none_is_named_that_the_policy_denies() {
    let mut world = boot("mote.args=--deny,network");
    let mut guest = world.shell();
    guest.ok("modprobe virtio_net");
    plug(&world);
    std::thread::sleep(LATER);
    assert_eq!(guest.ok("ls /sys/class/net | wc -l").trim(), "3");
    assert_ne!(guest.sh("test -e /sys/class/net/dmz0").0, 0);
    world.power_off(&mut guest);
}
