use super::mounts::{Mount, kind, unescape};
use super::stat::Cpu;
use crate::flavour::Flavour;

#[test]
fn recognises_mounts_that_may_hang() {
    let may_hang = |line: &str| Mount::parse(line.as_bytes()).unwrap().may_hang();
    for line in [
        "/dev/vda1 / ext4 rw 0 0",
        "rootfs / rootfs rw 0 0",
        "proc /proc proc rw 0 0",
        "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0",
        // systemd mounts this one everywhere.
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
    // Linux 2.4 has four numbers.
    assert_eq!(Cpu::parse(b"cpu0 1 2 3 4").unwrap().ticks, [1, 2, 3, 4, 0, 0, 0, 0]);
    assert_eq!(Cpu::parse(b"cpu0").unwrap().ticks, [0; 8]);
    for other in [&b"cpufreq 1"[..], b"intr 1 2", b"", b"cpu0 1 x"] {
        assert_eq!(Cpu::parse(other), None);
    }
    let most = Cpu::parse(b"cpu 18446744073709551615 9").unwrap();
    assert_eq!(most.busy(), u64::MAX);
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
fn reads_mounts_without_device_and_rejects_partial_lines() {
    let mount = Mount::parse(b" /x tmpfs rw 0 0").unwrap();
    assert_eq!((mount.device, mount.point, mount.kind), (&b""[..], &b"/x"[..], &b"tmpfs"[..]));
    for half in [&b""[..], b"dev", b"dev /x", b"dev /x ext"] {
        assert_eq!(Mount::parse(half), None);
    }
    // The servers' names of file systems.
    assert_eq!([0xef53, 0x9123_683e, 0x6573_5546].map(kind), [Some("ext4"), Some("btrfs"), None]);
}
