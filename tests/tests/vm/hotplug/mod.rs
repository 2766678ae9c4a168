//! Changes that the host makes while the VM runs take effect in the guest.

use mote_tests::prelude::*;

mod disks;

const SOON: Duration = Duration::from_secs(1);
/// Time after which a NIC must still have its name.
const LATER: Duration = Duration::from_secs(3);

/// QEMU's arguments for a hot-plugged NIC.
const LATE: &str = "virtio-net-pci,id=late1,netdev=late,mac=00:16:3e:aa:bb:dd,romfile=";

/// Boots a VM with one NIC, and with the backend in QEMU for another one.
fn boot(flavour: &str, words: &str) -> World {
    let extra = ["-netdev", "hubport,id=late,hubid=0"].map(str::to_owned).into();
    let nic = Some("00:16:3e:aa:bb:cc");
    let words = words.to_owned();
    let spec = Spec { share: Share::Virtiofs, nic, words, extra, ..Spec::default() };
    World::prepare(flavour, &spec, &["--config", "agent.nic_config=true"], |host| {
        tell(host, "eth0", ["name=lan0", "hwaddr=00:16:3e:aa:bb:cc", "mtu=1400"]);
    })
}

/// Adds a NIC to the instance. LXD writes the NIC's file into the share even while the VM runs.
fn tell(host: &Host, device: &str, keys: [&str; 3]) {
    host.ok(&[&["device-add", NAME, device, "type=nic"][..], &keys].concat());
}

fn tell_of_late(world: &World) {
    tell(&world.host, "eth1", ["name=dmz0", "hwaddr=00:16:3e:aa:bb:dd", "mtu=1300"]);
}

/// Hot-plugs the other NIC. As with LXD, the NIC's file is written just before.
fn plug(world: &World) {
    tell_of_late(world);
    assert!(world.host.share.join("nics/eth1.json").exists());
    world.vm.attach(LATE);
}

fn is_there(guest: &mut Guest) {
    until("a link", SOON, || guest.sh("ls /sys/class/net | wc -l").1 == "3\n");
}

fn named(guest: &mut Guest) {
    until("its name", SOON, || guest.sh("cat /sys/class/net/dmz0/mtu").1 == "1300\n");
}

#[test]
fn names_only_the_hot_plugged_nic() {
    let mut world = boot("lxd", "");
    let mut guest = world.shell();
    assert_eq!(guest.ok("cat /sys/class/net/lan0/mtu"), "1400\n");
    // Simulates an administrator who renames the NIC.
    guest.ok("ip link set lan0 down; ip link set lan0 name wan");
    thread::sleep(SOON);
    plug(&world);
    named(&mut guest);
    until("its line", SOON, || guest.ok("cat /run/agent.log").contains(" is now dmz0, MTU 1300"));
    // The hot-plugged NIC is up and keeps its name.
    thread::sleep(LATER);
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
    // From now on, the kernel queues events. The agent reads them only half a second later.
    until("STARTED to be read", MOTE_BOOT, || world.host.state()["started"] == true);
    plug(&world);
    let mut guest = world.shell();
    named(&mut guest);
    world.power_off(&mut guest);
}

#[test]
fn names_a_nic_after_a_thousand_events() {
    let mut world = boot("lxd", "");
    let mut guest = world.shell();
    thread::sleep(SOON);
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
        thread::sleep(SOON);
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
    thread::sleep(LATER);
    assert_eq!(guest.ok("ls /sys/class/net | wc -l").trim(), "3");
    assert_ne!(guest.sh("test -e /sys/class/net/dmz0").0, 0);
    world.power_off(&mut guest);
}

// CPUs and memory that the host hot-plugs. QEMU supports this here only for PCs.

/// Size of a memory block in a guest of this size, MiB.
const ADDED: u64 = 128;

/// Boots a VM with one CPU and room for three more, and for more memory.
fn booted(words: &str) -> Option<World> {
    if !vm::is_pc() {
        skipped("a CPU cannot be added to this machine");
        return None;
    }
    // More than the default: the kernel's description of memory that may be added takes memory.
    let memory: u32 = 256;
    let room = format!("{memory}M,slots=1,maxmem={}M", 4 * memory);
    let mut extra = ["-smp", "1,maxcpus=4", "-m", &room].map(str::to_owned).to_vec();
    if !std::env::var("MOTE_ACCEL").is_ok_and(|accel| accel.starts_with("kvm")) {
        // Linux 6.12 brings hot-plugged CPUs online only in a VM. It does not recognise QEMU
        // without KVM. With these two options it recognises VMware, whose port QEMU emulates.
        let model = std::env::var("MOTE_CPU").unwrap_or_else(|_| "qemu64".into());
        extra.extend(["-cpu".into(), format!("{model},-hypervisor")]);
        extra.extend(["-smbios", "type=1,serial=VMware-1"].map(str::to_owned));
    }
    Some(World::of("lxd", &Spec { memory, words: words.to_owned(), extra, ..Spec::default() }, &[]))
}

fn cpus(guest: &mut Guest) -> String {
    guest.ok("cat /sys/devices/system/cpu/online").trim().to_owned()
}

fn memory(guest: &mut Guest) -> u64 {
    let line = guest.ok("grep MemTotal /proc/meminfo");
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse().ok()).expect("kB")
}

#[test]
fn brings_new_resources_online_and_keeps_others_offline() {
    let Some(mut world) = booted("mote.agent=later") else { return };
    let mut guest = world.vm.guest();
    // Hot-plug a CPU before the agent starts.
    world.vm.add_cpu(1);
    until("the CPU", patient(LATER), || {
        guest.ok("cat /sys/devices/system/cpu/present").trim() == "0-1"
    });
    assert_eq!(cpus(&mut guest), "0", "the kernel uses it by itself");
    guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    world.host.connected(MOTE_BOOT);
    until("a CPU from before", patient(SOON), || cpus(&mut guest) == "0-1");

    world.vm.add_cpu(2);
    until("a CPU", patient(SOON), || cpus(&mut guest) == "0-2");

    let before = memory(&mut guest);
    world.vm.add_memory(ADDED);
    let enough = before + ADDED * 1024 * 9 / 10;
    until("more memory", patient(SOON), || memory(&mut guest) >= enough);

    // Neither a restart nor an event such as udev's trigger undoes an administrator's change.
    let off = "echo 0 >online; echo add >uevent; kill -HUP $(cat /run/agent.pid)";
    guest.ok(&format!("cd /sys/devices/system/cpu/cpu1; {off}; cd"));
    thread::sleep(LATER);
    assert_eq!(cpus(&mut guest), "0,2");
    // These are more events than the kernel queues, so it drops some.
    let many = "i=0; while [ $i -lt 6000 ]; do echo add; i=$((i + 1)); done";
    guest.ok(&format!(
        "kill -STOP $(cat /run/agent.pid); {many} >/sys/devices/system/cpu/cpu0/uevent"
    ));
    world.vm.add_cpu(3);
    until("the last CPU", patient(LATER), || {
        guest.ok("cat /sys/devices/system/cpu/present").trim() == "0-3"
    });
    // In the line of NETLINK_KOBJECT_UEVENT, the ninth column counts dropped messages.
    guest.ok("awk '$2 == 15 && $9 > 0' /proc/net/netlink | grep .");
    guest.ok("kill -CONT $(cat /run/agent.pid)");
    until("a CPU without an event", patient(SOON), || cpus(&mut guest) == "0,2-3");
    let times = "grep -c 'brought online: 1 CPUs' /run/agent.log";
    until("three log lines", patient(SOON), || guest.ok(times).trim() == "3");
    world.power_off(&mut guest);
}

#[test]
fn does_not_change_denied_resources() {
    let Some(mut world) = booted("mote.args=--deny,resources") else { return };
    let mut guest = world.shell();
    world.vm.add_cpu(1);
    thread::sleep(LATER);
    assert_eq!(guest.ok("cat /sys/devices/system/cpu/present"), "0-1\n");
    assert_eq!(cpus(&mut guest), "0");
    world.power_off(&mut guest);
}
