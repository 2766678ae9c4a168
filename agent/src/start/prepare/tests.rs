use std::fs;

use crate::config::policy;
use crate::runtime::{Scratch, scratch, scratch::put};

use super::*;

/// A defect of a guest, and the expected message: the cause, what to do, and the details.
type Row = (&'static str, fn(&Path), [&'static str; 3]);

fn gone(root: &Path, path: &str) {
    fs::remove_dir_all(root.join(path)).unwrap();
}

/// A guest with a status port and no files.
fn guest(name: &str) -> Scratch {
    let root = scratch(name);
    put(&root, "dev/null", "");
    put(&root, "sys/bus/virtio/devices/virtio0/device", "0x0003\n");
    put(&root, "sys/bus/virtio/devices/virtio0/driver/x", "");
    put(&root, "sys/class/virtio-ports/vport0p1/name", "com.canonical.lxd\n");
    std::os::unix::fs::symlink("/dev/null", root.join("dev/vport0p1")).unwrap();
    root
}

const NO_FILES: &str = "this VM has no disk \"incus-agent\" and no share \"config\" (virtiofs, 9p)";
const ADD: &str = "add one, or name a directory with --config-dir";
const NAMES: &str =
    "com.canonical.lxd, org.linuxcontainers.incus or (LXD 5.0) org.linuxcontainers.lxd";

const ROWS: &[Row] = &[
    ("nothing", |_| {}, [NO_FILES, ADD, ""]),
    ("sys", |root| gone(root, "sys"), ["/sys is not mounted", "mount -t sysfs sysfs /sys", ""]),
    (
        "dev",
        |root| gone(root, "dev"),
        [
            "/dev is empty",
            "mount -t devtmpfs devtmpfs /dev",
            "; no status port either: {root}/dev/vport0p1: the kernel has the port, but no node for it: mount \
             devtmpfs on /dev",
        ],
    ),
    (
        "both",
        |root| {
            gone(root, "sys");
            gone(root, "dev");
        },
        ["/sys is not mounted", "mount -t sysfs sysfs /sys", ""],
    ),
    (
        "key",
        |root| put(root, "run/incus_agent/agent.crt", ""),
        [
            "{root}/run/incus_agent: agent.key: No such file or directory (os error 2)",
            "copy all three files from one share",
            "",
        ],
    ),
    (
        "disk",
        |root| put(root, "sys/bus/virtio/devices/virtio1/device", "0x0002\n"),
        [
            "a disk has no driver (virtio_blk): module virtio_blk is missing",
            "put it into the image",
            " ({lib}/modules.dep: No such file or directory (os error 2))",
        ],
    ),
    (
        "share",
        |root| put(root, "sys/bus/virtio/devices/virtio1/device", "0x0009\n"),
        [
            "9p share \"config\": module 9pnet_virtio is missing",
            "put it into the image",
            " ({lib}/modules.dep: No such file or directory (os error 2))",
        ],
    ),
    (
        "port",
        |root| put(root, "sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n"),
        [
            NO_FILES,
            ADD,
            "; no status port either: no port has a server's name: name one {names}; there is only \
             org.qemu.guest_agent.0 (vport0p1)",
        ],
    ),
];

/// Longest cause, characters: with the words before it, one line of a console.
const CAUSE: usize = 120;

#[test]
fn messages_give_the_cause_first_and_then_what_to_do() {
    for (name, breaks, [cause, advice, details]) in ROWS {
        let root = guest(name);
        breaks(&root);
        let mut options = crate::options::parse([].into_iter()).unwrap();
        options.root = root.to_path_buf();
        let policy = policy::read(&options).policy;
        let why = prepare(&options, &policy, &mut None).err().unwrap().to_string();
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let expected = format!("{cause}: {advice}{details}")
            .replace("{lib}", &format!("{{root}}/lib/modules/{release}"))
            .replace("{root}", root.to_str().unwrap())
            .replace("{names}", NAMES);
        // The kernel of this machine may have no 9p, or a module of it loaded.
        if *name == "share" && !why.contains("module") {
            continue;
        }
        assert_eq!(why, expected, "{name}");
        assert!(cause.len() <= CAUSE && advice.len() <= CAUSE, "{name}");
    }
}
