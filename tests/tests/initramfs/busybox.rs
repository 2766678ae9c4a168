//! A home-made busybox initramfs and its `switch_root` to a disk: the example of
//! docs/how-to/initramfs.md, as written there.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mote_tests::proc::PID;
use mote_tests::{Scratch, Spec, agent, program, put, tool, wait};

use crate::{BOOT, World, append};

/// `/sbin/init` of the root on the disk, which has the directories that the page requires.
const NEXT: &str = r#"#!/bin/busybox sh
export PATH=/bin:/sbin
mount -o remount,rw /
sleep 1
[ ! -e /sbin/mote-agent ] || mote-agent </dev/null >>/run/mote-agent-initramfs.log 2>&1 &
while [ ! -e /run/off ]; do sleep 0.2; done
kill -TERM "$(sed -n 's/.*"pid": *\([0-9]*\).*/\1/p' /run/mote/status)"
sleep 3
poweroff -f
"#;

/// Creates the root's disk, and adds the modules for it to the initramfs. `$1` is the root, `$2`
/// the disk, `$3` the tree.
const DISK: &str = r#"
. image/parts
mkdir -p "$1/dev" "$1/proc" "$1/sys" "$1/run" "$1/bin" "$1/tmp" "$1/root"
cp /bin/busybox "$1/bin/"
for name in $(busybox --list); do [ -e "$1/bin/$name" ] || ln -s busybox "$1/bin/$name"; done
truncate -s 32M "$2"
PATH="$PATH:/sbin:/usr/sbin"
mke2fs -q -t ext4 -L root -d "$1" "$2"
modules_into "$3" "${XDG_CACHE_HOME:-$HOME/.cache}/mote/kernel" "$(image/initramfs --kernel)" \
    $(grep -v '^#' image/modules) ext4 crc32c_generic
"#;

/// Returns `/init` from docs/how-to/initramfs.md.
fn init() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/how-to/initramfs.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, example) =
        page.split_once("\n## Continue in a root file system\n").expect("the example");
    let (_, text) = example.split_once("```sh\n").expect("its text");
    text.split_once("```").expect("its end").0.to_owned()
}

/// Boots it without the root's disk.
fn boot(has_agent: bool) -> World {
    let scratch = Scratch::new();
    let base = tool("MOTE_IMAGE", "target/image");
    let image = scratch.0.join("image");
    fs::create_dir(&image).expect("a directory");
    for file in ["vmlinuz", "initrd"] {
        fs::copy(base.join(file), image.join(file)).expect("the image");
    }
    let [tree, root, disk] = ["tree", "root", "disk"].map(|name| scratch.0.join(name));
    for (top, name) in [(&tree, "old"), (&root, "new")] {
        put(top.join("etc/hostname"), name);
        fs::create_dir_all(top.join("sbin")).expect("a directory");
    }
    program(tree.join("init"), init());
    program(root.join("sbin/init"), NEXT);
    fs::copy(agent(), tree.join("sbin/mote-agent")).expect("the agent");
    if has_agent {
        fs::copy(agent(), root.join("sbin/mote-agent")).expect("the agent");
    }
    fs::create_dir_all(tree.join("lib/modules").join(kernel())).expect("a directory");
    let mut make = Command::new("bash");
    make.args(["-euc", DISK, "-"]).args([&root, &disk, &tree]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    assert!(make.current_dir(source).status().expect("bash").success());
    append(&tree, &image.join("initrd"));
    let drive = format!("file={},if=none,id=root,format=raw", disk.display());
    let extra = vec!["-drive".into(), drive];
    let world = World::boot(scratch, &Spec { image, memory: 256, extra, ..Spec::default() });
    world.until("true");
    assert_eq!(name(&world), "old");
    world.sh("mote-agent ready");
    world
}

fn kernel() -> String {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let said = Command::new("image/initramfs").arg("--kernel").current_dir(source).output();
    String::from_utf8(said.expect("image/initramfs").stdout).expect("a version").trim().to_owned()
}

fn come(world: &World) {
    world.vm.attach("virtio-blk-pci,drive=root,id=rootdisk");
}

/// Waits for a CONNECTED after this line, and returns the agents' log.
fn connected_after(world: &World, line: &str) -> String {
    let look = || {
        // The agent delays the re-exec while the host keeps asking.
        std::thread::sleep(Duration::from_secs(2));
        let log = world.host.sh("cat /run/mote-agent-initramfs.log").ok()?;
        let is = log.split_once(line).is_some_and(|(_, after)| after.contains(": CONNECTED "));
        is.then_some(log)
    };
    wait(line, BOOT, look).0
}

fn name(world: &World) -> String {
    world.sh("cat /etc/hostname").trim().to_owned()
}

fn free(world: &World) -> u64 {
    let text = world.sh("sed -n 's/^MemFree: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo");
    text.trim().parse().expect("a number")
}

#[test]
fn the_first_agent_continues_in_a_root_without_one() {
    let mut world = boot(false);
    world.sh("head -c 40000000 /dev/urandom >/ballast");
    let before = free(&world);
    come(&world);
    let log = connected_after(&world, "restarting in place");
    assert!(log.contains("left the initramfs; continuing in the new root"), "{log}");
    assert_eq!(name(&world), "new");
    // Files, mounts, the socket and the reports are those of the new root.
    world.push("/tmp/pushed");
    assert_eq!(
        world.sh("cat /tmp/pushed; ls /"),
        "pushedbin\ndev\netc\nlost+found\nproc\nroot\nrun\nsbin\nsys\ntmp\n"
    );
    assert!(world.sh("ls -l /dev/lxd/sock").starts_with('s'));
    // Its program no longer exists in the file system, but continues to run.
    let pid = world.sh(PID);
    let pid = pid.trim();
    let look = format!("/proc/{pid}");
    assert_eq!(world.sh(&format!("{look}/exe get user.foo")), "bar\n");
    assert!(world.sh(&format!("{look}/exe status")).contains("Ready"));
    let open = world.sh(&format!("ls -l {look}/fd {look}/cwd {look}/root"));
    assert!(open.contains("root -> /\n") && !open.contains("(unreachable)"), "{open}");
    let line = world.sh(&format!("tr '\\0' ' ' <{look}/cmdline"));
    assert_eq!(line, "mote-agent --left-initramfs ");
    // The files of the initramfs are deleted, which frees memory.
    let after = free(&world);
    println!("free before and after: {before} and {after} kB");
    assert!(after > before + 20_000, "{before} {after}");
    world.assert_no_end();
    world.sh("touch /run/off");
    assert!(world.stopped());
}

#[test]
fn the_roots_own_agent_takes_over() {
    let mut world = boot(true);
    come(&world);
    let outage = world.outage();
    let log = connected_after(&world, "taking over from the initramfs' agent");
    assert!(log.contains("another agent takes over"), "{log}");
    let outage = outage.longest();
    println!("no answer for {:?} at most", outage.unanswered);
    assert!(outage.failed.is_empty(), "{:?}", outage.failed);
    assert_eq!(name(&world), "new");
    assert!(world.sh("mote-agent status").contains("Ready"));
    assert_eq!(world.sh("mote-agent get user.foo"), "bar\n");
    let left = || world.host.sh("ps | grep -c '[i]nitramfs'").unwrap_or_default();
    wait("the first's end", Duration::from_secs(60), || (left() != "1\n").then_some(()));
    world.assert_no_end();
    world.sh("touch /run/off");
    assert!(world.stopped());
}
