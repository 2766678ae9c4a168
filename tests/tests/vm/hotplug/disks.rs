//! Disks that the host enlarges while the VM runs: partition and file system follow. The core's
//! tests cut the power at each write of the table.

use mote_tests::prelude::*;

/// Limit from the host's request to the larger file system.
const SOON: Duration = Duration::from_secs(1);
/// Time after which a disk must still not have grown.
const LATER: Duration = Duration::from_secs(3);
const MIB: u64 = 1 << 20;
const OLD: u64 = 64;
const NEW: u64 = 200;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Table {
    Gpt,
    Dos,
    /// A file system on the whole disk.
    None,
    /// The last partition is of another type.
    Foreign,
    /// A file system that is smaller than its partition.
    Small,
}

fn disk(directory: &Path, name: &str, table: Table) -> PathBuf {
    let path = directory.join(name);
    File::create(&path).and_then(|file| file.set_len(OLD * MIB)).expect("a disk");
    let shown = path.to_str().expect("a path");
    let script = match table {
        Table::Gpt | Table::Small => "label: gpt\nstart=2048, type=linux\n",
        Table::Dos => "label: dos\nstart=2048, type=83\n",
        Table::Foreign => "label: gpt\nstart=2048, size=65536, type=linux\ntype=swap\n",
        Table::None => "",
    };
    let (offset, length) = match table {
        Table::Gpt => ("offset=1048576", "62m"),
        Table::Small => ("offset=1048576", "32m"),
        Table::Dos => ("offset=1048576", "63m"),
        Table::Foreign => ("offset=1048576", "32m"),
        Table::None => ("offset=0", "64m"),
    };
    if table != Table::None {
        exits(fed("sfdisk", &["-q", shown], script), Some(0), &[]);
    }
    exits(fed("mkfs.ext4", &["-q", "-F", "-E", offset, shown, length], ""), Some(0), &[]);
    path
}

fn has_tools() -> bool {
    let has = has_programs(&["sfdisk", "mkfs.ext4", "e2fsck"]);
    if !has {
        skipped("sfdisk and e2fsprogs make and check the disks");
    }
    has
}

/// Boots a VM with these disks, `/dev/vdb` and so on. Its agent waits for [`start`].
fn boot(disks: &[PathBuf]) -> World {
    let extra = disks.iter().enumerate().flat_map(|(index, path)| {
        let drive = format!("if=none,id=disk{index},format=raw,file={}", path.display());
        ["-drive".into(), drive, "-device".into(), format!("virtio-blk-pci,drive=disk{index}")]
    });
    let (words, extra) = ("mote.agent=later".to_owned(), extra.collect());
    World::of("lxd", &Spec { words, extra, ..Spec::default() }, &[])
}

fn start(world: &World, guest: &mut Guest, resources: &str) {
    let policy = format!("features: {{resources: {resources}, exec: true}}");
    guest.ok(&format!(
        "echo '{policy}' >/etc/mote-agent.yml; start-stop-daemon -S -b -x /run/agent.start"
    ));
    world.host.connected(MOTE_BOOT);
}

const GROWS: &str = "{disks: true}";

fn mount(guest: &mut Guest, device: &str) {
    guest.ok(&format!("mkdir -p /{device} && mount -t ext4 /dev/{device} /{device}"));
}

/// Waits for the writer's last command, and for the agent to close the disk.
fn unmount(guest: &mut Guest, paths: &str) {
    let each = format!(
        "for path in {paths}; do umount $path 2>&1; ! grep \" $path \" /proc/mounts || exit 1; done"
    );
    until("unmounted disks", patient(SOON), || guest.sh(&each).0 == 0);
}

fn size(guest: &mut Guest, device: &str) -> u64 {
    let said = guest.ok(&format!("df -m /{device} | tail -1"));
    said.split_whitespace().nth(1).and_then(|size| size.parse().ok()).expect("MiB")
}

/// Checks the table and file system of an unused disk, after a replay of the journal.
fn check(path: &Path, table: Table) {
    let shown = path.to_str().expect("a path");
    if table != Table::None {
        exits(fed("sfdisk", &["--verify", shown], ""), Some(0), &[]);
        exits(fed("sfdisk", &["-d", shown], ""), Some(0), &["start="]);
    }
    let start = if table == Table::None { 0 } else { 1 << 20 };
    let part = path.with_extension("part");
    fs::write(&part, &fs::read(path).expect("a disk")[start..]).expect("a part");
    let filesystem = part.to_str().expect("a path");
    let (code, said) = fed("e2fsck", &["-p", filesystem], "");
    assert!(matches!(code, Some(0 | 1)), "{said}");
    exits(fed("e2fsck", &["-fn", filesystem], ""), Some(0), &[]);
}

const WRITER: &str = "printf '#!/bin/sh\\nwhile :; do dd if=/dev/zero of=/$1/f bs=64k count=40 \
                      conv=fsync; done\\n' >/run/writer; chmod 755 /run/writer; \
                      start-stop-daemon -S -b -x /run/writer --";

#[test]
fn grows_partition_and_file_system_in_use_within_a_second() {
    let true = has_tools() else { return };
    let scratch = Scratch::new();
    let tables = [Table::Gpt, Table::Dos, Table::None, Table::Foreign];
    let disks: Vec<_> = ["gpt", "dos", "none", "foreign"]
        .iter()
        .zip(tables)
        .map(|(name, table)| disk(&scratch.0, name, table))
        .collect();
    let mut world = boot(&disks);
    let mut guest = world.vm.guest();
    start(&world, &mut guest, GROWS);
    let devices = ["vdb1", "vdc1", "vdd", "vde1"];
    for device in devices {
        mount(&mut guest, device);
    }
    guest.ok(&format!("{WRITER} vdb1"));
    for (index, device) in devices.into_iter().enumerate().take(3) {
        let before = size(&mut guest, device);
        assert!(before < OLD, "{before}");
        world.vm.resize(&format!("disk{index}"), NEW * MIB);
        until("a larger file system", patient(SOON), || size(&mut guest, device) > NEW * 8 / 10);
        // The disks grow once more, from the new size.
        world.vm.resize(&format!("disk{index}"), 2 * NEW * MIB);
        until("a file system larger still", patient(SOON), || {
            size(&mut guest, device) > 2 * NEW * 8 / 10
        });
    }
    world.vm.resize("disk3", NEW * MIB);
    thread::sleep(LATER);
    assert!(size(&mut guest, "vde1") < OLD);
    let log = guest.ok("cat /run/agent.log");
    assert!(log.contains("vdb1 and its file system grew to 198 MiB"), "{log}");
    let advice = "disk vde is not grown: no ext4, xfs or btrfs is mounted on its last partition; run: growpart /dev/vde 2; ";
    assert!(log.contains(advice), "{log}");
    guest.ok("killall writer");
    unmount(&mut guest, "/vdb1 /vdc1 /vdd /vde1");
    world.power_off(&mut guest);
    for (path, table) in disks.iter().zip(tables) {
        check(path, table);
    }
}

#[test]
fn keeps_a_smaller_file_system_without_blocking() {
    let true = has_tools() else { return };
    let scratch = Scratch::new();
    let path = disk(&scratch.0, "small", Table::Small);
    // A disk without partitions that is enlarged while the VM is off.
    let whole = disk(&scratch.0, "whole", Table::None);
    OpenOptions::new().write(true).open(&whole).unwrap().set_len(NEW * MIB).expect("a larger disk");
    let mut world = boot(&[path.clone(), whole]);
    let mut guest = world.vm.guest();
    mount(&mut guest, "vdb1");
    mount(&mut guest, "vdc");
    start(&world, &mut guest, GROWS);
    until("a file system as large as its disk", patient(SOON), || {
        size(&mut guest, "vdc") > NEW * 8 / 10
    });
    thread::sleep(LATER);
    assert!(size(&mut guest, "vdb1") < OLD / 2);
    // The frozen file system grows once it is thawed.
    guest.ok("fsfreeze --freeze /vdb1");
    world.vm.resize("disk0", NEW * MIB);
    let length = (NEW - 2) * MIB / 512;
    until("a larger partition", patient(SOON), || {
        let there = guest.ok("cat /sys/class/block/vdb1/size");
        there.trim().parse::<u64>().is_ok_and(|there| there >= length)
    });
    until("an unlocked disk", patient(SOON), || {
        guest.sh("grep FLOCK /proc/locks | grep \":$(stat -c %i /dev/vdb) \"").0 != 0
    });
    guest.ok("fsfreeze --unfreeze /vdb1");
    until("a larger file system", patient(SOON), || size(&mut guest, "vdb1") > NEW * 8 / 10);
    unmount(&mut guest, "/vdb1");
    world.power_off(&mut guest);
    check(&path, Table::Small);
}

#[test]
fn grows_a_disk_only_by_policy_or_on_request() {
    let true = has_tools() else { return };
    let scratch = Scratch::new();
    let mut world = boot(&[disk(&scratch.0, "gpt", Table::Gpt)]);
    let mut guest = world.vm.guest();
    mount(&mut guest, "vdb1");
    start(&world, &mut guest, "true");
    world.vm.resize("disk0", NEW * MIB);
    thread::sleep(LATER);
    assert!(size(&mut guest, "vdb1") < OLD);
    // The disk does not grow either if the policy says that another program grows disks.
    guest.ok("sed -i 's/resources: true/resources: {disks: true}/' /etc/mote-agent.yml");
    guest.ok("mkdir -p /usr/bin; touch /usr/bin/growpart; killall -HUP mote-agent");
    world.host.connected(MOTE_BOOT);
    for size_of in [NEW + 1, NEW + 2] {
        world.vm.resize("disk0", size_of * MIB);
        thread::sleep(LATER);
    }
    assert!(size(&mut guest, "vdb1") < OLD);
    let told = "disks are not grown automatically: /usr/bin/growpart exists";
    let count = |guest: &mut Guest| guest.ok("cat /run/agent.log").matches(told).count();
    until("one line", patient(SOON), || count(&mut guest) == 1);
    let said = guest.ok("mote-agent grow --dry-run 2>&1");
    assert!(said.contains("vdb1 and its file system would grow to 200 MiB"), "{said}");
    assert!(said.contains("note: /usr/bin/growpart exists"), "{said}");
    assert!(size(&mut guest, "vdb1") < OLD);
    contains(guest.ok("mote-agent grow /dev/vdb"), &["vdb1 and its file system grew to 200 MiB"]);
    assert!(size(&mut guest, "vdb1") > NEW * 8 / 10);
    world.power_off(&mut guest);
}
