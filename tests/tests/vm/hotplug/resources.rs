//! CPUs and memory that the host adds to a running VM. Only a PC can be given them here.

use std::time::Duration;

use mote_tests::guest::Guest;
use mote_tests::vm::{Spec, is_pc};
use mote_tests::{patient, skipped, wait};

use mote_tests::world::{MOTE_BOOT, World};

/// What is added is in use so soon.
const SOON: Duration = Duration::from_secs(1);
/// What is not to be used is looked at after so long.
const LATER: Duration = Duration::from_secs(3);
/// Memory that is added, MiB: one block of a guest of this size.
const ADDED: u64 = 128;

/// A VM with one CPU and room for three more, and for more memory.
fn boot(words: &str) -> Option<World> {
    if !is_pc() {
        skipped("a CPU cannot be added to this machine");
        return None;
    }
    // What is described of memory that can be added takes room.
    let memory: u32 = 256;
    let room = format!("{memory}M,slots=1,maxmem={}M", 4 * memory);
    let mut extra = ["-smp", "1,maxcpus=4", "-m", &room].map(str::to_owned).to_vec();
    if !std::env::var("MOTE_ACCEL").is_ok_and(|accel| accel.starts_with("kvm")) {
        // Linux 6.12 believes in CPUs that come later in a VM only, and does not take QEMU without KVM for one, but for one of
        // VMware, whose port QEMU has, by these two.
        let model = std::env::var("MOTE_CPU").unwrap_or_else(|_| "qemu64".into());
        extra.extend(["-cpu".into(), format!("{model},-hypervisor")]);
        extra.extend(["-smbios", "type=1,serial=VMware-1"].map(str::to_owned));
    }
    Some(World::of("lxd", &Spec { memory, words: words.to_owned(), extra, ..Spec::default() }, &[]))
}

fn cpus(guest: &mut Guest) -> String {
    guest.ok("cat /sys/devices/system/cpu/online").trim().to_owned()
}

/// kB of memory that the guest's kernel uses.
fn memory(guest: &mut Guest) -> u64 {
    let line = guest.ok("grep MemTotal /proc/meminfo");
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse().ok()).expect("kB")
}

#[test]
fn brings_new_resources_online_and_keeps_others_offline() {
    let Some(mut world) = boot("mote.agent=later") else { return };
    let mut guest = world.vm.guest();
    // Added before there is an agent.
    world.vm.add_cpu(1);
    wait("the CPU", patient(LATER), || {
        (guest.ok("cat /sys/devices/system/cpu/present").trim() == "0-1").then_some(())
    });
    assert_eq!(cpus(&mut guest), "0", "the kernel uses it by itself");
    guest.ok("start-stop-daemon -S -b -x /run/agent.start");
    world.host.connected(MOTE_BOOT);
    wait("a CPU from before", patient(SOON), || (cpus(&mut guest) == "0-1").then_some(()));

    world.vm.add_cpu(2);
    let (_, took) = wait("a CPU", patient(SOON), || (cpus(&mut guest) == "0-2").then_some(()));
    println!("a CPU is in use {took:?} after it was added");

    let before = memory(&mut guest);
    world.vm.add_memory(ADDED);
    let enough = before + ADDED * 1024 * 9 / 10;
    let more = |guest: &mut Guest| (memory(guest) >= enough).then_some(());
    let (_, took) = wait("more memory", patient(SOON), || more(&mut guest));
    println!("memory is in use {took:?} after it was added");

    // Neither a restarted agent nor an event such as udev's at start undoes what the administrator did.
    let off = "echo 0 >online; echo add >uevent; kill -HUP $(cat /run/agent.pid)";
    guest.ok(&format!("cd /sys/devices/system/cpu/cpu1; {off}; cd"));
    std::thread::sleep(LATER);
    assert_eq!(cpus(&mut guest), "0,2");
    // More events than the kernel keeps for an agent, and one that it drops.
    let many = "i=0; while [ $i -lt 6000 ]; do echo add; i=$((i + 1)); done";
    guest.ok(&format!(
        "kill -STOP $(cat /run/agent.pid); {many} >/sys/devices/system/cpu/cpu0/uevent"
    ));
    world.vm.add_cpu(3);
    wait("the last CPU", patient(LATER), || {
        (guest.ok("cat /sys/devices/system/cpu/present").trim() == "0-3").then_some(())
    });
    // Of NETLINK_KOBJECT_UEVENT, the ninth column counts them.
    guest.ok("awk '$2 == 15 && $9 > 0' /proc/net/netlink | grep .");
    guest.ok("kill -CONT $(cat /run/agent.pid)");
    wait("a CPU without an event", patient(SOON), || (cpus(&mut guest) == "0,2-3").then_some(()));
    let log = guest.ok("cat /run/agent.log");
    assert!(log.matches("brought online: 1 CPUs").count() == 3, "{log}");
    world.power_off(&mut guest);
}

#[test]
fn what_the_policy_denies_is_left_alone() {
    let Some(mut world) = boot("mote.args=--deny,resources") else { return };
    let mut guest = world.shell();
    world.vm.add_cpu(1);
    std::thread::sleep(LATER);
    assert_eq!(guest.ok("cat /sys/devices/system/cpu/present"), "0-1\n");
    assert_eq!(cpus(&mut guest), "0");
    world.power_off(&mut guest);
}
