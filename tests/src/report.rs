//! An artificial `/proc` with distinct numbers, and the agent's report about it.
#![allow(clippy::missing_panics_doc, clippy::unwrap_used)] // every caller is a test

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::agent;

const STAT: &str = "\
cpu  324156 5683 79583 1894614 3761 7 548 477 0 0
cpu0 146321 2975 37713 966231 850 0 87 226 0 0
cpu1 177834 2707 41869 928382 2910 7 460 251 5 0
intr 3994436 0 0 0
ctxt 9873698
btime 1795234963
processes 846311
";
const MEMINFO: &str = "\
MemTotal:       24684092 kB
MemFree:        22369264 kB
MemAvailable:   23934964 kB
Buffers:          184736 kB
Cached:          1295440 kB
SwapCached:           11 kB
Active:           739592 kB
Inactive:         741508 kB
Active(anon):       1584 kB
Inactive(anon):     8080 kB
Active(file):     738008 kB
Inactive(file):   733428 kB
Unevictable:       18880 kB
SwapTotal:          1000 kB
SwapFree:            900 kB
Dirty:            364740 kB
Writeback:            12 kB
AnonPages:         19760 kB
Mapped:            10812 kB
Shmem:              8856 kB
SReclaimable:     400988 kB
HugePages_Total:       5
HugePages_Free:        3
Hugepagesize:       2048 kB
";
const DISKSTATS: &str = "\
   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 1197359 12 56423578 7171 154919 99 56822168 99 0 100 101 1 2 3 4 5 6
";
const NETWORK: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:   21504     219    0    0    0     0          0         0    21504     219    0    0    0     0       0          0
enp5s0:18446744073709551615 4711    3    4    5     6          7         8     9000      90    1    2    3     4       5          6
";
const MOUNTS: &str = "\
/dev/vda1 / ext4 rw,relatime 0 0
proc /proc proc rw 0 0
udev /dev devtmpfs rw 0 0
shm /dev/shm tmpfs rw 0 0
lxcfs /var/lib/lxcfs fuse.lxcfs rw 0 0
none /run/user\\0401000 tmpfs rw 0 0
/dev/vda1 /srv ext4 rw 0 0
gone /not/there xfs rw 0 0
overlay /var/lib/docker/overlay2/x/merged overlay rw 0 0
tmpfs /var/lib/docker/x tmpfs rw 0 0
";

/// Creates a root in which these processes run: (pid, whether it has a program).
pub fn root(root: &Path, processes: impl Iterator<Item = (u32, bool)>) {
    let at = |path: &str| root.join(path);
    for directory in
        ["proc/net", "sys/fs/cgroup/memory", "etc", "run/user 1000", "srv", "var/lib/lxcfs"]
    {
        fs::create_dir_all(at(directory)).unwrap();
    }
    for (path, text) in [
        ("proc/stat", STAT),
        ("proc/meminfo", MEMINFO),
        ("proc/diskstats", DISKSTATS),
        ("proc/mounts", MOUNTS),
        ("proc/vmstat", "nr_free_pages 5592316\noom_kill 3\n"),
        ("proc/net/dev", NETWORK),
        ("proc/uptime", "1.0 2.0\n"),
        ("sys/fs/cgroup/cpu.stat", "usage_usec 123456\nuser_usec 1\n"),
        ("sys/fs/cgroup/memory/memory.max_usage_in_bytes", "777\n"),
        ("etc/os-release", "ID=debian\nNAME=\"Debian \\\"GNU/Linux\\\"\"\nVERSION_ID='12'\n"),
    ] {
        fs::write(at(path), text).unwrap();
    }
    for (pid, program) in processes {
        fs::create_dir(at(&format!("proc/{pid}"))).unwrap();
        if program {
            symlink("/bin/true", at(&format!("proc/{pid}/exe"))).unwrap();
        }
    }
}

pub fn report(root: &Path, flavour: &str, what: &str) -> Value {
    let mut command = Command::new(agent());
    command.args(["report", what, "--flavour", flavour, "--root"]).arg(root);
    let out = command.stderr(Stdio::inherit()).output().unwrap();
    assert!(out.status.success(), "{}", out.status);
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(text.find('\n'), Some(text.len() - 1), "one line: {text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
