//! `--check` beside what can be wrong with a guest, one thing a time: whoever has to mend it reads what was
//! expected, what was found and what to do, and the exit code says whether the host will see the agent.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mote_tests::{agent, wait};

use crate::world::{Boot, LIMIT, NOBODY, fifo, in_private_mounts, is_root, mount, whole};

/// What is broken, the line that says so and the exit code. `{root}` and `{lib}` stand for where the
/// guest's root and its kernel's modules are.
struct Row {
    breaks: fn(&Boot),
    args: &'static [&'static str],
    line: &'static str,
    code: i32,
}

const fn row(breaks: fn(&Boot), line: &'static str, code: i32) -> Row {
    Row { breaks, args: &[], line, code }
}

fn gone(boot: &Boot, path: &str) {
    fs::remove_dir_all(boot.root(path))
        .or_else(|_| fs::remove_file(boot.root(path)))
        .expect("the guest");
}

const PORTS: [Row; 14] = [
    row(
        |boot| {
            boot.put("sys/class/virtio-ports/vport0p1/name", "com.canonical.lxdd\n");
            boot.put("sys/class/virtio-ports/vport0p2/name", "org.linuxcontainers.lxd\n");
            fifo(&boot.root("dev/vport0p2"));
        },
        "missing  port: there is a port named com.canonical.lxdd: should that be com.canonical.lxd? As it \
         is, org.linuxcontainers.lxd is taken, the port of LXD before 5.20, and a newer host does not read \
         it",
        1,
    ),
    row(|_| {}, "ok       port: {root}/dev/vport0p1 (lxd)", 0),
    row(
        |boot| gone(boot, "proc"),
        "absent   /proc: not mounted; the host gets no commands, files or reports: mount -t proc proc \
         /proc",
        0,
    ),
    row(
        |boot| gone(boot, "sys"),
        "missing  port: /sys is not mounted, where ports have their names: mount -t sysfs sysfs /sys, or \
         name the device with --port",
        1,
    ),
    row(
        |boot| {
            gone(boot, "sys/bus/virtio/devices/virtio0");
            gone(boot, "sys/class");
        },
        "missing  port: this VM has no virtio-serial device; expected a port named \
         org.linuxcontainers.incus, com.canonical.lxd or org.linuxcontainers.lxd on one",
        1,
    ),
    row(
        |boot| {
            gone(boot, "sys/bus/virtio/devices/virtio0");
            gone(boot, "sys/class");
            boot.put("sys/bus/pci/devices/0000:00:03.0/vendor", "0x1af4\n");
            boot.put("sys/bus/pci/devices/0000:00:03.0/device", "0x1043\n");
        },
        "missing  port: there is a virtio-serial device, but no driver (virtio_console) has it: module \
         virtio_pci: {lib}/modules.dep: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| {
            gone(boot, "sys/bus/virtio/devices/virtio0/driver");
            gone(boot, "sys/class");
        },
        "missing  port: there is a virtio-serial device, but no driver (virtio_console) has it: module \
         virtio_console: {lib}/modules.dep: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| gone(boot, "sys/class"),
        "missing  port: the virtio-serial device has no port; expected a port named \
         org.linuxcontainers.incus, com.canonical.lxd or org.linuxcontainers.lxd on it",
        1,
    ),
    row(
        |boot| boot.put("sys/class/virtio-ports/vport0p1/name", "org.qemu.guest_agent.0\n"),
        "missing  port: expected a port named org.linuxcontainers.incus, com.canonical.lxd or \
         org.linuxcontainers.lxd, found only org.qemu.guest_agent.0 (vport0p1): name one in the VM's \
         configuration so",
        1,
    ),
    row(
        |boot| gone(boot, "dev"),
        "missing  port: {root}/dev/vport0p1: the kernel has the port, but no node for it: mount devtmpfs \
         on /dev",
        1,
    ),
    Row {
        args: &["--port", "/nowhere/port"],
        ..row(
            |_| {},
            "missing  port: /nowhere/port: --port names no device; without it the port is found by its \
             name",
            1,
        )
    },
    Row {
        args: &["--port", "/etc/passwd"],
        ..row(
            |_| {},
            "missing  port: /etc/passwd: a file or directory is no port: remove it, or name another \
             with --port",
            1,
        )
    },
    row(
        |boot| {
            // The first is a user's, who has a file of this name in a namespace of his own.
            for (pid, mounts, user) in [(76, "mnt:[1]".into(), 1000), (77, namespace("mnt"), 0)] {
                let of = |name: &str| format!("proc/{pid}/{name}");
                boot.put(&of("status"), &format!("Name:\tcat\nUid:\t{user}\t{user}\t{user}\n"));
                boot.put(&of("comm"), "cat\n");
                for (name, to) in [
                    ("fd/3", "/dev/vport0p1".into()),
                    ("ns/mnt", mounts),
                    ("ns/user", namespace("user")),
                ] {
                    let place = boot.root(&of(name));
                    fs::create_dir_all(place.parent().expect("the guest")).expect("the guest");
                    symlink(to, place).expect("the guest");
                }
            }
        },
        "missing  port: {root}/dev/vport0p1 is busy: another process has it open, and a port has one \
         opener at a time; end process 77 (cat)",
        1,
    ),
    // udev's link to the same.
    row(
        |boot| {
            fs::create_dir_all(boot.root("dev/virtio-ports")).expect("the guest");
            symlink("../vport0p1", boot.root("dev/virtio-ports/com.canonical.lxd"))
                .expect("the guest");
            gone(boot, "sys");
        },
        "ok       port: {root}/dev/virtio-ports/com.canonical.lxd (lxd)",
        0,
    ),
];

const FILES: [Row; 8] = [
    Row {
        args: &["--config-dir", "/nowhere"],
        ..row(
            |_| {},
            "missing  no config files: agent.crt, agent.key, server.crt are not in /nowhere, given by option",
            1,
        )
    },
    row(
        |boot| fs::remove_file(boot.host.share.join("agent.key")).expect("the guest"),
        "missing  config files: {share}: agent.key: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| fs::remove_file(boot.host.share.join("server.crt")).expect("the guest"),
        "missing  config files: {share}: server.crt: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| boot.share("agent.crt", "nonsense"),
        "missing  certificates: agent.crt: no PEM block of that kind",
        1,
    ),
    row(
        |boot| {
            fs::copy(boot.host.share.join("server.crt"), boot.host.share.join("agent.crt"))
                .expect("the guest");
        },
        "missing  certificates: agent.key: does not belong to agent.crt",
        1,
    ),
    row(|boot| boot.share("agent.conf", "{"), "absent   agent.conf: JSON ends too early", 0),
    row(
        |boot| fs::remove_file(boot.host.share.join("agent.conf")).expect("the guest"),
        "absent   agent.conf: none; devlxd waits for the host's call",
        0,
    ),
    row(|_| {}, "absent   agent: not running", 0),
];

/// Without `--config-dir`, from a directory where nothing is; without unix sockets in place of vsock.
const BARE: [Row; 8] = [
    row(
        |boot| gone(boot, "sys/class"),
        "absent   devlxd: at /dev/lxd/sock or /dev/incus/sock, as the status port's name says",
        1,
    ),
    row(
        |_| {},
        "missing  no config files (agent.crt, agent.key, server.crt): not in the working directory; not \
         in {root}/run/lxd_agent; not in {root}/run/incus_agent; disk \"incus-agent\": no such disk; \
         virtiofs share \"config\": no such device; 9p share \"config\": no such device",
        1,
    ),
    row(
        |boot| {
            gone(boot, "sys");
            gone(boot, "dev");
        },
        "missing  no config files (agent.crt, agent.key, server.crt): not in the working directory; not \
         in {root}/run/lxd_agent; not in {root}/run/incus_agent; virtiofs share \"config\": no such \
         device; 9p share \"config\": no such device; disk \"incus-agent\": no such disk; neither /sys \
         (sysfs) nor /dev (devtmpfs) is mounted",
        1,
    ),
    row(
        |boot| boot.put("run/incus_agent/agent.crt", ""),
        "missing  no config files (agent.crt, agent.key, server.crt): not in the working directory; not \
         in {root}/run/lxd_agent; {root}/run/incus_agent: agent.key: No such file or directory (os error \
         2); disk \"incus-agent\": no such disk; virtiofs share \"config\": no such device; 9p share \
         \"config\": no such device",
        1,
    ),
    row(
        |_| {},
        "missing  vsock: no vsock device in this VM, and no vsock driver: module \
         vmw_vsock_virtio_transport: {lib}/modules.dep: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| boot.put("sys/bus/virtio/devices/virtio1/device", "0x0013\n"),
        "missing  vsock: there is a vsock device, but no driver (vmw_vsock_virtio_transport) has it: module \
         vmw_vsock_virtio_transport: {lib}/modules.dep: No such file or directory (os error 2)",
        1,
    ),
    row(
        |boot| {
            boot.put("sys/bus/virtio/devices/virtio1/device", "0x0013\n");
            fs::create_dir_all(boot.root("sys/module/vmw_vsock_virtio_transport"))
                .expect("the guest");
        },
        "missing  vsock: the vsock driver is loaded, but {root}/dev/vsock is not there: mount devtmpfs \
         on /dev",
        1,
    ),
    Row {
        args: &["--flavour", "incus"],
        ..row(
            |_| {},
            "missing  vsock: no vsock device in this VM, and no vsock driver: module \
             vmw_vsock_virtio_transport: {lib}/modules.dep: No such file or directory (os error 2); the \
             host sees this agent by the status port alone, and cannot call it",
            1,
        )
    },
];

/// What only mounts can break; also without `--config-dir`.
const MOUNTS: [Row; 3] = [
    row(
        |boot| {
            mount(&["-t", "tmpfs", "-o", "size=4k", "tmpfs"], &boot.root("run"));
            fs::create_dir(boot.root("run/mote")).expect("the guest");
            boot.put("run/full", &"x".repeat(4096));
        },
        "absent   {root}/run/mote: no space left: 'status' may be old, and Ready is forgotten when the \
         agent ends; free some",
        1,
    ),
    row(
        |boot| mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &boot.root("run")),
        "missing  cannot write {root}/run: Read-only file system (os error 30); mount a tmpfs on /run",
        1,
    ),
    row(
        |boot| mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &boot.root("run")),
        "missing  the config share: cannot make {root}/run/mote/check: Read-only file system (os error \
         30); mount a tmpfs on /run",
        1,
    ),
];

/// This process's own.
fn namespace(kind: &str) -> PathBuf {
    fs::read_link(format!("/proc/self/ns/{kind}")).expect("a namespace")
}

/// Checks a guest that is whole but for this; the command is the agent's.
fn hold(row: &Row, command: impl Fn(&Boot) -> Command) {
    let boot = Boot::new("lxd");
    whole(&boot);
    (row.breaks)(&boot);
    let mut command = command(&boot);
    let output =
        command.args(row.args).arg("--check").stdin(Stdio::null()).output().expect("the guest");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("the guest");
    let line = row
        .line
        .replace("{lib}", &format!("{{root}}/lib/modules/{}", release.trim()))
        .replace("{root}", boot.root("").to_str().expect("the guest").trim_end_matches('/'))
        .replace("{share}", boot.host.share.to_str().expect("the guest"));
    assert!(text.lines().any(|other| other == line), "no {line:?} in:\n{text}");
    assert_eq!(output.status.code(), Some(row.code), "{line}:\n{text}");
    let _mounted = Command::new("umount").arg(boot.root("run")).stderr(Stdio::null()).status();
}

/// The agent in a guest whose config share is still to be found, started where nothing is.
fn bare(boot: &Boot) -> Command {
    let mut command = Command::new(agent());
    command.arg("--root").arg(boot.root("")).current_dir(boot.root("etc"));
    command
}

#[test]
fn what_hides_the_agent_from_its_host_is_named() {
    PORTS.iter().chain(&FILES).for_each(|row| hold(row, |boot| boot.command(&[])));
    BARE.iter().for_each(|row| hold(row, bare));
}

#[test]
fn a_run_that_is_full_or_read_only_is_blamed_and_nothing_else() {
    if in_private_mounts("check::a_run_that_is_full_or_read_only_is_blamed_and_nothing_else") {
        MOUNTS.iter().for_each(|row| hold(row, bare));
    }
}

#[test]
fn who_may_not_look_is_told_so() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let secret = |path: &str, mode| {
        fs::set_permissions(boot.root(path), fs::Permissions::from_mode(mode)).unwrap();
    };
    secret("run/mote", 0o000);
    secret("dev/vport0p1", 0o000);
    // The agent is where everybody may read: a home directory need not be, root's own is none.
    let copy = boot.scratch.0.join("agent-of-all");
    fs::copy(agent(), &copy).unwrap();
    let ask = |args: &[&str]| {
        let mut command = Command::new(&copy);
        command.args(boot.command(args).get_args()).stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY);
        }
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = ask(&["--check"]);
    let root = boot.root("");
    let root = root.to_str().unwrap().trim_end_matches('/');
    for line in [
        format!(
            "missing  port: {root}/dev/vport0p1: Permission denied (os error 13): the agent needs to be root"
        ),
        format!(
            "missing  cannot write {root}/run/mote: Permission denied (os error 13); the agent needs to \
             be root"
        ),
        format!(
            "absent   agent: cannot open {root}/run/mote/lock: Permission denied (os error 13); ask as \
             root"
        ),
    ] {
        assert!(text.lines().any(|other| other == line), "no {line:?} in:\n{text}");
    }
    assert_eq!(code, Some(1), "{text}");
    let (code, text) = ask(&["status"]);
    assert!(
        code == Some(3) && text.contains("ask as root") && !text.contains("running: no"),
        "{text}"
    );
    secret("run/mote", 0o700);
}

#[test]
fn beside_a_running_agent_its_own_view_counts() {
    let boot = Boot::new("lxd");
    whole(&boot);
    let check = |expected: &str, code: i32| {
        let output =
            bare(&boot).arg("--check").arg("--vsock-unix").arg(boot.root("vs")).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.lines().any(|line| line == expected), "no {expected:?} in:\n{text}");
        assert_eq!(output.status.code(), Some(code), "{text}");
    };
    let mut running = boot.start(&["--deny", "guestapi"]);
    boot.logged("STARTED");
    wait("the view", LIMIT, || boot.root("run/mote/status").exists().then_some(()));
    let share = boot.host.share.display().to_string();
    check(&format!("ok       files: read by the running agent: {share}"), 0);
    running.kill();
    // One that waits for its files.
    let nowhere = boot.root("nowhere").display().to_string();
    let mut command = Command::new(agent());
    command.args(["--config-dir", &nowhere, "--root"]).arg(boot.root("")).stderr(Stdio::null());
    let _waiting = mote_tests::Process::start(&mut command);
    wait("the view", LIMIT, || boot.text("run/mote/status").contains("waiting").then_some(()));
    check(&format!("ok       agent: running, waiting for the config files in {nowhere}"), 1);
}

#[test]
fn every_command_has_its_help() {
    let help = Command::new(agent()).arg("--help").output().unwrap().stdout;
    for command in ["status", "ready", "get", "events", "report", "sftp-server", "--check"] {
        let output = Command::new(agent()).args([command, "--help"]).output().unwrap();
        assert!(output.status.success() && output.stdout == help, "{command}");
    }
    assert!(Path::new(&agent()).exists() && help.len() > 1000);
}
