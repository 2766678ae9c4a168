use super::memory::Memory;
use super::mounts::{Mount, kind, unescape};
use super::release;
use super::stat::{Cpu, Disk, Interface};
use crate::flavour::Flavour;
use crate::netlink::Traffic;
use crate::report::metrics::Filesystems;

#[test]
fn reads_the_counters_of_interfaces() {
    let line = b"  eth0:18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
    let Interface { name, counters } = Interface::parse(line).unwrap();
    let of = |traffic: Traffic| [traffic.bytes, traffic.packets, traffic.errors, traffic.dropped];
    assert_eq!((name, of(counters.received)), (&b"eth0"[..], [u64::MAX, 2, 3, 4]));
    assert_eq!(of(counters.sent), [9, 10, 11, 12]);
    for head in
        [&b"Inter-|   Receive  |  Transmit"[..], b" face |bytes packets", b"", b"eth0: 1 2 3"]
    {
        assert_eq!(Interface::parse(head), None);
    }
}

#[test]
fn recognises_mounts_that_may_hang() {
    let may_hang = |line: &str| Mount::parse(line.as_bytes()).unwrap().may_hang();
    for line in [
        "/dev/vda1 / ext4 rw 0 0",
        "rootfs / rootfs rw 0 0",
        "proc /proc proc rw 0 0",
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
        // systemd mounts it everywhere.
        "systemd-1 /proc/sys/fs/binfmt_misc autofs rw,fd=29 0 0",
    ] {
        assert!(!may_hang(line), "{line}");
    }
    for kind in "9p nfs4 cifs virtiofs fuse.sshfs ceph zfs overlay autofs new".split(' ') {
        assert!(may_hang(&["x /mnt ", kind, " rw 0 0"].concat()), "{kind}");
    }
}

#[test]
fn recognises_cpu_lines() {
    let cpu = Cpu::parse(b"cpu12 1 2 3 4 5 6 7 8 9 10").unwrap();
    assert_eq!((cpu.name, cpu.ticks), (&b"cpu12"[..], [1, 2, 3, 4, 5, 6, 7, 8]));
    assert_eq!(cpu.busy(), (1 + 2 + 3 + 6 + 7) * 10_000_000);
    // Linux 2.4 has four.
    assert_eq!(Cpu::parse(b"cpu0 1 2 3 4").unwrap().ticks, [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(Cpu::parse(b"cpu0").unwrap().ticks, [0; 8]);
    for other in [&b"cpufreq 1"[..], b"intr 1 2", b"", b"cpu0 1 x"] {
        assert_eq!(Cpu::parse(other), None);
    }
    let most = Cpu::parse(b"cpu 18446744073709551615 9").unwrap();
    assert_eq!(most.busy(), u64::MAX);
}

#[test]
fn reads_disks_and_ignores_further_fields() {
    let disk = Disk::parse(b" 254 0 vda 1197359 12 56423578 7171 154919 99 56822168 99 0").unwrap();
    assert_eq!((disk.name, disk.reads, disk.writes), (&b"vda"[..], 1_197_359, 154_919));
    assert_eq!((disk.read, disk.written), (56_423_578 * 512, 56_822_168 * 512));
    // Up to Linux 2.6.24, partitions have four numbers with another meaning.
    assert_eq!(Disk::parse(b" 254 1 vda1 1 2 3 4"), None);
}

#[test]
fn reads_memory_in_bytes_and_missing_lines_as_none() {
    let mut memory = Memory::default();
    for line in [
        &b"MemTotal:  24684092 kB"[..],
        b"HugePages_Total:  5",
        b"SwapTotal: 9 kB",
        b"Active(anon): x kB",
        b"SwapFree:",
        b":",
        b"Mlocked: 1 kB",
    ] {
        memory.line(line);
    }
    assert_eq!(memory.get("MemTotal"), 24_684_092 * 1024);
    assert_eq!((memory.get("HugePages_Total"), memory.get("Active(anon)")), (5, 0));
    assert_eq!((memory.swap(), memory.get("Mlocked")), (9 * 1024, 0));
    memory.line(b"SwapFree: 18446744073709551615 kB");
    assert_eq!((memory.get("SwapFree"), memory.swap()), (u64::MAX, 0));
}

#[test]
fn unescapes_only_the_kernels_escapes() {
    assert!(unescape(b"/a\\040b\\011\\012\\134\\043").eq(*b"/a b\t\n\\#"));
    for same in [&b"\\"[..], b"\\0", b"\\04", b"\\048", b"\\400", b"\\x40"] {
        assert!(unescape(same).eq(same.iter().copied()), "{}", same.escape_ascii());
    }
}

#[test]
fn selects_mounts_by_type_and_path() {
    let counts = |flavour, kind: &str, point: &str| {
        let line = format!("dev {point} {kind} rw 0 0");
        Mount::parse(line.as_bytes()).unwrap().counts(flavour, point.as_bytes())
    };
    let counted = "ext4 /; tmpfs /device; xfs /var/lib/docker; fuse.sshfs /home/x/dev";
    let skipped = "tmpfs /dev; tmpfs /sys/fs/cgroup; ext4 /proc/x; ext4 /var/lib/docker/volumes; \
                   overlay /; squashfs /snap/x";
    for (all, expected) in [(counted, true), (skipped, false)] {
        for (kind, point) in all.split("; ").filter_map(|one| one.split_once(' ')) {
            let found = [Flavour::Lxd, Flavour::Incus].map(|flavour| counts(flavour, kind, point));
            assert_eq!(found, [expected; 2], "{kind} {point}");
        }
    }
    assert!(counts(Flavour::Incus, "fuse.lxcfs", "/var/lib/lxcfs"));
    assert!(!counts(Flavour::LxdOld, "fuse.lxcfs", "/var/lib/lxcfs"));
}

#[test]
fn a_bind_mount_does_not_hide_the_root_in_a_map() {
    let mounts = "rootfs / rootfs rw 0 0\n/dev/vda1 / ext4 rw 0 0\n/dev/vda1 /a ext4 rw 0 0\n\
                  /dev/vdb1 /b xfs rw 0 0\n/dev/vdb1 /c xfs rw 0 0\n/dev/vda1 /d\\040d ext4 rw 0 0\n";
    let points = |flavour| {
        let mut filesystems = Filesystems::new(flavour);
        let wanted = mounts.as_bytes().split(|byte| *byte == b'\n');
        let wanted = wanted.filter_map(|line| filesystems.wanted(&Mount::parse(line)?));
        wanted.map(|(_, point)| String::from_utf8(point).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(points(Flavour::Lxd), ["/", "/", "/b", "/c"]);
    assert_eq!(points(Flavour::LxdOld), points(Flavour::Lxd));
    assert_eq!(points(Flavour::Incus), ["/", "/", "/a", "/b", "/c", "/d d"]);
}

#[test]
fn reads_mounts_without_device_and_rejects_partial_lines() {
    let mount = Mount::parse(b" /x tmpfs rw 0 0").unwrap();
    assert_eq!((mount.device, mount.point, mount.kind), (&b""[..], &b"/x"[..], &b"tmpfs"[..]));
    for half in [&b""[..], b"dev", b"dev /x", b"dev /x ext"] {
        assert_eq!(Mount::parse(half), None);
    }
}

#[test]
fn uses_the_servers_file_system_names() {
    assert_eq!([0xef53, 0x9123_683e, 0x6573_5546].map(kind), [Some("ext4"), Some("btrfs"), None]);
}

#[test]
fn reads_variables_like_a_shell() {
    let read = |line: &str| {
        release::variable(line.as_bytes(), "NAME").map(|text| String::from_utf8(text).unwrap())
    };
    for (line, value) in [
        ("NAME=Fedora", "Fedora"),
        ("NAME=\"a \\\"b\\\" \\$c\"", "a \"b\" $c"),
        ("NAME='a \\b'", "a \\b"),
        ("NAME=", ""),
        ("NAME=\"open", "\"open"),
        ("NAME=x\\", "x"),
    ] {
        assert_eq!(read(line).as_deref(), Some(value), "{line}");
    }
    assert_eq!(read("PRETTY_NAME=x"), None);
    assert_eq!(read("NAMES=x"), None);
}

#[test]
fn reads_the_first_name_of_the_hosts_line() {
    let name = |line: &'static str| release::full_name(line.as_bytes(), b"vm");
    assert_eq!(name("127.0.1.1\tvm.example.net vm # us"), Some(&b"vm.example.net"[..]));
    assert_eq!(name("::1 vm"), Some(&b"vm"[..]));
    for other in
        ["127.0.0.1 localhost", "# 127.0.1.1 vm.x vm", "127.0.1.1", "10.0.0.1 x # vm", "", "vm"]
    {
        assert_eq!(name(other), None, "{other}");
    }
}
