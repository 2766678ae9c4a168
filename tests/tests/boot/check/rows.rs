//! Problems of a guest, and the line that reports each.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::world::{Boot, fifo, mount};

fn namespace(kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/self/ns/{kind}")).expect("a namespace")
}

/// A problem, the command's arguments, and the line that reports it. `{root}` is the guest's root,
/// `{lib}` the directory of its kernel modules, and `{none}` the error for a missing file.
pub(super) type Row = (fn(&Boot), &'static [&'static str], &'static str);

const fn row(breaks: fn(&Boot), line: &'static str) -> Row {
    (breaks, &[], line)
}

fn gone(boot: &Boot, paths: &str) {
    paths.split(' ').for_each(|path| fs::remove_dir_all(boot.root(path)).expect("the guest"));
}

pub(super) fn two_servers(boot: &Boot) {
    boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.incus\n");
    fifo(&boot.root("dev/vport0p2"));
}

pub(super) const PORTS: &[Row] = &[
    row(
        |boot| {
            boot.put("sys/class/virtio-ports/vport0p1/name", "com.canonical.lxdd\n");
            boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.lxd\n");
            fifo(&boot.root("dev/vport0p2"));
        },
        "missing  port: there is a port named com.canonical.lxdd: should that be \
         com.canonical.lxd? As it is, org.linuxcontainers.lxd is used, the port of LXD before \
         5.20, and a newer host does not read it",
    ),
    row(|_| {}, "ok       port: {root}/dev/vport0p1 (lxd)"),
    row(
        |boot| gone(boot, "proc"),
        "missing  proc: /proc is not mounted: no files, state or metrics for the host: mount -t \
         proc proc /proc",
    ),
    row(|boot| gone(boot, "sys"), "missing  port: /sys is not mounted: mount -t sysfs sysfs /sys"),
    row(
        |boot| gone(boot, "sys/bus/virtio/devices/virtio0 sys/class"),
        "missing  port: this VM has no virtio-serial device: add one with a port named \
         com.canonical.lxd, org.linuxcontainers.incus or (LXD 5.0) org.linuxcontainers.lxd",
    ),
    row(
        |boot| {
            gone(boot, "sys/bus/virtio/devices/virtio0 sys/class");
            boot.put("sys/bus/pci/devices/0000:00:03.0/vendor", "0x1af4\n");
            boot.put("sys/bus/pci/devices/0000:00:03.0/device", "0x1043\n");
        },
        "missing  port: a virtio-serial device has no driver (virtio_console): module virtio_pci \
         is missing: put it into the image ({lib}/modules.dep: {none})",
    ),
    row(
        |boot| gone(boot, "sys/bus/virtio/devices/virtio0/driver sys/class"),
        "missing  port: a virtio-serial device has no driver (virtio_console): module \
         virtio_console is missing: put it into the image ({lib}/modules.dep: {none})",
    ),
    row(
        |boot| gone(boot, "sys/class"),
        "missing  port: the virtio-serial device has no port: add one named com.canonical.lxd, \
         org.linuxcontainers.incus or (LXD 5.0) org.linuxcontainers.lxd",
    ),
    row(
        |boot| boot.put("sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n"),
        "missing  port: no port has a server's name: name one com.canonical.lxd, \
         org.linuxcontainers.incus or (LXD 5.0) org.linuxcontainers.lxd; there is only \
         org.qemu.guest_agent.0 (vport0p1)",
    ),
    row(
        |boot| gone(boot, "dev"),
        "missing  port: {root}/dev/vport0p1: the kernel has the port, but no node for it: mount \
         devtmpfs on /dev",
    ),
    (
        |_| {},
        &["--port", "/nowhere/port"],
        "missing  port: /nowhere/port: --port names no device; without it the port is found by its \
         name",
    ),
    (
        |_| {},
        &["--port", "/etc/passwd"],
        "missing  port: /etc/passwd: a file or directory is not a port: remove it, or name another \
         with --port",
    ),
    row(
        |boot| {
            // The first belongs to a user who has a file of this name in a private namespace.
            for (pid, mounts, user) in [(76, "mnt:[1]".into(), 1000), (77, namespace("mnt"), 0)] {
                let of = |name: &str| format!("proc/{pid}/{name}");
                boot.put(&of("status"), &format!("Name:\tcat\nUid:\t{user}\t{user}\t{user}\n"));
                boot.put(&of("comm"), "cat\n");
                for (name, to) in [
                    // Its standard input, as of a shell's command.
                    ("fd/0", "/dev/vport0p1".into()),
                    ("ns/mnt", mounts),
                    ("ns/user", namespace("user")),
                ] {
                    let place = boot.root(&of(name));
                    fs::create_dir_all(place.parent().expect("the guest")).expect("the guest");
                    symlink(to, place).expect("the guest");
                }
            }
        },
        "missing  port: {root}/dev/vport0p1 is busy: another process has it open, and only one \
         process can; end process 77 (cat)",
    ),
    // udev's link to the same port.
    row(
        |boot| {
            fs::create_dir_all(boot.root("dev/virtio-ports")).expect("the guest");
            symlink("../vport0p1", boot.root("dev/virtio-ports/com.canonical.lxd"))
                .expect("the guest");
            gone(boot, "sys");
        },
        "ok       port: {root}/dev/vport0p1 (lxd)",
    ),
    row(two_servers, "ok       port: {root}/dev/vport0p1 (lxd)"),
];

pub(super) const FILES: &[Row] = &[
    row(
        |boot| fs::remove_file(boot.host.share.join("agent.key")).expect("the guest"),
        "missing  files: {share}: agent.key: {none}: copy all three files from one share",
    ),
    row(
        |boot| fs::remove_file(boot.host.share.join("server.crt")).expect("the guest"),
        "missing  files: {share}: server.crt: {none}: copy all three files from one share",
    ),
    row(
        |boot| boot.share("agent.crt", "nonsense"),
        "missing  certificates: agent.crt: no PEM block of that kind",
    ),
    row(
        |boot| {
            fs::copy(boot.host.share.join("server.crt"), boot.host.share.join("agent.crt"))
                .expect("the guest");
        },
        "missing  certificates: agent.key does not belong to agent.crt",
    ),
    row(|boot| boot.share("agent.conf", "{"), "note     agent.conf: JSON ends too early"),
    row(
        |boot| fs::remove_file(boot.host.share.join("agent.conf")).expect("the guest"),
        "note     agent.conf: none; devlxd waits for the host's call",
    ),
    row(|_| {}, "note     agent: not running"),
    // The server's own port, the most likely one to be given by hand.
    row(
        |boot| {
            let conf = fs::read_to_string(boot.host.share.join("agent.conf")).expect("the guest");
            let conf: serde_json::Value = serde_json::from_str(&conf).expect("the guest");
            boot.share("server.crt", conf["certificate"].as_str().expect("the guest"));
        },
        "missing  certificates: server.crt is the server's own: copy the instance's \
         agent-client.crt",
    ),
    row(
        |boot| boot.put("etc/mote-agent.yml", "features: {guestapi: true, files: {below: [/etc]}}"),
        "note     policy: denied: exec mounts port-forward metrics state templates network \
         first-boot resources clock; limited: files; root may run programs below /etc",
    ),
    (|_| {}, &["--deny", "guestapi"], "note     devlxd: off: the policy denies guestapi"),
];

/// Without `--config-dir`, in an empty directory; without unix sockets instead of vsock, and
/// without `--flavour`.
pub(super) const BARE: &[Row] = &[
    (
        |_| {},
        &["--config-dir", "/nowhere"],
        "missing  files: /nowhere has none of agent.crt, agent.key, server.crt: copy them there",
    ),
    row(
        two_servers,
        "missing  port: ports of two servers: using Incus'; if the server is \
         LXD, use --flavour lxd",
    ),
    row(
        |boot| gone(boot, "sys/class"),
        "note     devlxd: at /dev/lxd/sock or /dev/incus/sock, depending on the status port's name",
    ),
    row(
        |_| {},
        "missing  files: this VM has no disk \"incus-agent\" and no share \"config\" (virtiofs, \
         9p): add one, or name a directory with --config-dir",
    ),
    row(
        |boot| gone(boot, "sys dev"),
        "missing  files: /sys is not mounted: mount -t sysfs sysfs /sys",
    ),
    row(
        |boot| boot.put("run/incus_agent/agent.crt", ""),
        "missing  files: {root}/run/incus_agent: agent.key: {none}: copy all three files from one \
         share",
    ),
    row(
        |_| {},
        "missing  vsock: no vsock device in this VM: add one (QEMU's vhost-vsock-pci); its driver \
         is missing, too: module vmw_vsock_virtio_transport is missing: put it into the image \
         ({lib}/modules.dep: {none})",
    ),
    row(
        |boot| boot.put("sys/bus/virtio/devices/virtio1/device", "0x0013\n"),
        "missing  vsock: a vsock device has no driver (vmw_vsock_virtio_transport): module \
         vmw_vsock_virtio_transport is missing: put it into the image ({lib}/modules.dep: {none})",
    ),
    row(
        |boot| {
            boot.put("sys/bus/virtio/devices/virtio1/device", "0x0013\n");
            fs::create_dir_all(boot.root("sys/module/vmw_vsock_virtio_transport"))
                .expect("the guest");
        },
        "missing  vsock: the vsock driver is loaded, but {root}/dev/vsock is missing: mount \
         devtmpfs on /dev",
    ),
    (
        |_| {},
        &["--flavour", "incus"],
        "missing  vsock: no vsock device in this VM: add one (QEMU's vhost-vsock-pci); its driver \
         is missing, too: module vmw_vsock_virtio_transport is missing: put it into the image \
         ({lib}/modules.dep: {none}); the host sees this agent only through the status port",
    ),
];

/// Problems that need mounts; also without `--config-dir`.
pub(super) const MOUNTS: &[Row] = &[
    row(
        |boot| {
            mount(&["-t", "tmpfs", "-o", "size=4k", "tmpfs"], &boot.root("run"));
            fs::create_dir(boot.root("run/mote")).expect("the guest");
            boot.put("run/full", &"x".repeat(4096));
        },
        "note     run: no space left in {root}/run/mote: free some, or 'status' may be stale, and \
         Ready lost when the agent ends",
    ),
    row(
        |boot| mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &boot.root("run")),
        "missing  run: cannot write {root}/run: Read-only file system (os error 30); mount a tmpfs \
         on /run",
    ),
    // The running agent has no lock there.
    row(
        |boot| mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &boot.root("run")),
        "note     agent: /run is read-only: mount a tmpfs there",
    ),
];
