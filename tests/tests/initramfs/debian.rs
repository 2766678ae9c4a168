//! Debian 12 with initramfs-tools and with dracut, made by `image/hooks/disk`. The root's disk
//! appears while the initramfs waits for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use mote_tests::pages::ways::{Row, record};
use mote_tests::proc::PID;
use mote_tests::{NAME, Scratch, Spec};

use crate::World;

const LOG: &str = "/run/mote-agent-initramfs.log";

fn image(tool: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let made = Command::new("image/hooks/disk").arg(tool).current_dir(source).output();
    let made = made.expect("image/hooks/disk");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    String::from_utf8_lossy(&made.stdout).trim().into()
}

fn boot(image: &Path, disk: &str) -> World {
    let drive =
        format!("file={},if=none,id=root,format=raw,snapshot=on", image.join(disk).display());
    let spec = Spec {
        image: image.to_owned(),
        memory: 512,
        // Both tools would give up in seconds. initramfs-tools sleeps this long before it checks;
        // `come` wakes it.
        words: "root=LABEL=mote-root rw rootdelay=1000 rd.retry=1000".into(),
        extra: vec!["-drive".into(), drive],
        ..Spec::default()
    };
    World::boot(Scratch::new(), &spec)
}

/// Checks that commands run in an initramfs that cannot find its root.
fn waits(world: &World) {
    assert_eq!(world.host.sh("[ -e /usr/bin/dpkg ] || echo none").as_deref(), Ok("none\n"));
    assert_eq!(world.sh("ls /dev/disk/by-label | grep mote-root || echo missing"), "missing\n");
    world.sh("mote-agent ready");
    let line = world.sh(&format!("tr '\\0' ' ' </proc/$({PID})/cmdline"));
    assert!(line.starts_with("@/usr/sbin/mote-agent --initramfs"), "{line}");
}

/// Returns the time from the start of the agent to CONNECTED, and its memory.
fn pss(world: &World) -> u64 {
    let text =
        world.sh(&format!("sed -n 's/^Pss: *\\([0-9]*\\) kB/\\1/p' /proc/$({PID})/smaps_rollup"));
    text.trim().parse().expect("its size")
}

fn come(world: &World) {
    world.vm.attach("virtio-blk-pci,drive=root,id=rootdisk");
    world.sh("kill $(pidof sleep) || true");
}

fn taken_over(tool: &'static str) {
    let image = image(tool);
    let mut world = boot(&image, "disk");
    let power_on = world.connected();
    let agent_start = world.since_start(PID);
    let pss = pss(&world);
    waits(&world);
    let outage = world.outage();
    come(&world);
    world.until("[ -e /usr/bin/dpkg ] && systemctl is-active mote-agent && mote-agent status | grep -q CONNECTED");
    let outage = outage.longest();
    let log = world.sh(&format!("cat {LOG}"));
    println!("{log}{tool}: {outage:?}");
    // A handshake may exceed the agent's limit of 3 s while systemd starts everything on one
    // emulated CPU.
    assert!(
        !outage.failed.iter().any(|why| why.contains("connection refused")),
        "{:?}",
        outage.failed
    );
    assert!(world.sh("mote-agent status").contains("Ready"));
    assert!(world.sh(&format!("cat {LOG}")).contains("another agent takes over"));
    // The pattern must not match the shell's own arguments.
    world.until("! grep -lsa -- '-[-]initramfs' /proc/[0-9]*/cmdline");
    world.assert_no_end();
    let _cut = world.host.sh("poweroff");
    let clean_stop = world.stopped();
    assert!(clean_stop);
    let added = fs::read_to_string(image.join("added")).expect("its bytes");
    record(&Row {
        way: tool,
        booted: format!("Debian 12, kernel {}, QEMU (TCG)", "6.1"),
        agent_start,
        power_on,
        bytes: added.trim().parse().expect("bytes"),
        pss,
        clean_stop,
    });
}

fn goes_on(tool: &'static str) {
    let image = image(tool);
    let mut world = boot(&image, "bare");
    let _power_on = world.connected();
    waits(&world);
    come(&world);
    world.until(&format!("[ -e /usr/bin/dpkg ] && grep -c 'restarting in place' {LOG} && systemctl is-system-running --wait"));
    assert_eq!(
        world.sh("cat /etc/hostname; [ ! -e /usr/sbin/mote-agent ] || echo agent"),
        "real\n"
    );
    // It runs outside of units that systemd stops before the shutdown.
    let pid = world.sh(PID);
    let pid = pid.trim();
    assert_eq!(world.sh(&format!("cat /proc/{pid}/cgroup")), "0::/init.scope\n");
    world.push("/srv/pushed");
    assert_eq!(world.sh("cat /srv/pushed; stat -f -c %T /srv/pushed"), "pushedext2/ext3\n");
    assert_eq!(world.sh(&format!("/proc/{pid}/exe get user.foo")), "bar\n");
    assert!(world.sh(&format!("/proc/{pid}/exe status")).contains("Ready"));
    assert!(world.host.run(&["state", NAME]).contains("processes"));
    world.assert_no_end();
    let _cut = world.host.sh("poweroff");
    assert!(world.stopped());
}

#[test]
fn initramfs_tools_and_a_root_with_an_agent() {
    taken_over("initramfs-tools");
}

#[test]
fn initramfs_tools_and_a_root_without() {
    goes_on("initramfs-tools");
}

#[test]
fn dracut_and_a_root_with_an_agent() {
    taken_over("dracut");
}

#[test]
fn dracut_and_a_root_without() {
    goes_on("dracut");
}
