//! CPUs and memory that the host hot-plugs. QEMU supports this here only for PCs.

use std::time::Duration;

use mote_tests::vm::is_pc;
use mote_tests::{Guest, MOTE_BOOT, Spec, World, patient, skipped, wait};

const SOON: Duration = Duration::from_secs(1);
/// A resource that must stay offline is checked after this time.
const LATER: Duration = Duration::from_secs(3);
/// One memory block of a guest of this size, MiB.
const ADDED: u64 = 128;

/// Boots a VM with one CPU and room for three more, and for more memory.
fn boot(words: &str) -> Option<World> {
    if !is_pc() {
        skipped("a CPU cannot be added to this machine");
        return None;
    }
    // The description of memory that may be added takes memory.
    let memory: u32 = 256;
    let room = format!("{memory}M,slots=1,maxmem={}M", 4 * memory);
    let mut extra = ["-smp", "1,maxcpus=4", "-m", &room].map(str::to_owned).to_vec();
    if !std::env::var("MOTE_ACCEL").is_ok_and(|accel| accel.starts_with("kvm")) {
        // Linux 6.12 brings hot-plugged CPUs online only in a VM. It does not detect QEMU without
        // KVM, but with these two it detects VMware, whose port QEMU has.
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
    let Some(mut world) = boot("mote.agent=later") else { return };
    let mut guest = world.vm.guest();
    // Hot-plugged before the agent starts.
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

    // Neither a restart nor an event such as udev's trigger undoes an administrator's change.
    let off = "echo 0 >online; echo add >uevent; kill -HUP $(cat /run/agent.pid)";
    guest.ok(&format!("cd /sys/devices/system/cpu/cpu1; {off}; cd"));
    std::thread::sleep(LATER);
    assert_eq!(cpus(&mut guest), "0,2");
    // More events than the kernel queues, so it drops some.
    let many = "i=0; while [ $i -lt 6000 ]; do echo add; i=$((i + 1)); done";
    guest.ok(&format!(
        "kill -STOP $(cat /run/agent.pid); {many} >/sys/devices/system/cpu/cpu0/uevent"
    ));
    world.vm.add_cpu(3);
    wait("the last CPU", patient(LATER), || {
        (guest.ok("cat /sys/devices/system/cpu/present").trim() == "0-3").then_some(())
    });
    // For NETLINK_KOBJECT_UEVENT, the ninth column counts dropped messages.
    guest.ok("awk '$2 == 15 && $9 > 0' /proc/net/netlink | grep .");
    guest.ok("kill -CONT $(cat /run/agent.pid)");
    wait("a CPU without an event", patient(SOON), || (cpus(&mut guest) == "0,2-3").then_some(()));
    let times = "grep -c 'brought online: 1 CPUs' /run/agent.log";
    wait("three log lines", patient(SOON), || (guest.ok(times).trim() == "3").then_some(()));
    world.power_off(&mut guest);
}

#[test]
fn does_not_change_denied_resources() {
    let Some(mut world) = boot("mote.args=--deny,resources") else { return };
    let mut guest = world.shell();
    world.vm.add_cpu(1);
    std::thread::sleep(LATER);
    assert_eq!(guest.ok("cat /sys/devices/system/cpu/present"), "0-1\n");
    assert_eq!(cpus(&mut guest), "0");
    world.power_off(&mut guest);
}
