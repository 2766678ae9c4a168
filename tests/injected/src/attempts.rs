//! Calls that the agent's process must not make, with arguments that would work otherwise.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::libc::{self, c_int, c_long};

use crate::can::Around;
use crate::ptrace::word;
use crate::{Outcome, Probe};

#[derive(Clone, Debug)]
pub(crate) enum Argument {
    Number(u64),
    Bytes(Vec<u8>),
}
use Argument::{Bytes, Number};

pub(crate) fn number(number: c_int) -> Argument {
    Number(word(number))
}

pub(crate) fn path(path: impl AsRef<Path>) -> Argument {
    Bytes([path.as_ref().as_os_str().as_bytes(), b"\0"].concat())
}

impl Probe<'_> {
    /// Injects a call into the agent's process. Stores its arguments' bytes from offset 0 on.
    pub(crate) fn make(&self, call: c_long, arguments: &[Argument]) -> Result<u64, Errno> {
        let (mut words, mut offset) = ([0; 6], 0);
        for (word, argument) in words.iter_mut().zip(arguments) {
            *word = match argument {
                Number(number) => *number,
                Bytes(bytes) => {
                    let address = self.injected.write(offset, bytes)?;
                    offset += (bytes.len() as u64).next_multiple_of(16);
                    address
                }
            };
        }
        self.injected.call(call, words)
    }

    pub(crate) fn open(&self, at: &Path, flags: c_int) -> Result<u64, Errno> {
        let flags = flags | libc::O_NONBLOCK | libc::O_NOCTTY | libc::O_CLOEXEC;
        let arguments = [number(libc::AT_FDCWD), path(at), number(flags), number(0o600)];
        self.make(libc::SYS_openat, &arguments)
    }

    pub(crate) fn close(&self, descriptor: u64) {
        let _closed = self.make(libc::SYS_close, &[Number(descriptor)]);
    }
}

type Attempt = (String, c_long, Vec<Argument>, Outcome);

pub(crate) fn try_all(probe: &mut Probe<'_>) -> Result<(), Errno> {
    files(probe);
    let around = probe.around;
    let attempts = [names(around), processes(around), descriptors(), sockets(around)];
    for (name, call, arguments, outcome) in attempts.into_iter().flatten() {
        probe.compare(&name, probe.make(call, &arguments), outcome);
    }
    reopen(probe)?;
    signal_by_file(probe)?;
    change_network(probe)
}

fn files(probe: &mut Probe<'_>) {
    let around = probe.around;
    let (read, write, both) = (libc::O_RDONLY, libc::O_WRONLY, libc::O_RDWR);
    let new = libc::O_CREAT | libc::O_EXCL | write;
    let of_root = [
        ("run/mote/lock", both),
        ("run/mote/new", new),
        ("run/mote", libc::O_TMPFILE | both),
        ("run/new", new),
        ("dev/new", new),
    ];
    let of_root = of_root.map(|(path, flags)| (around.root.join(path), flags));
    let of_all = [("file", read), ("file", both), ("new", new), (".", libc::O_TMPFILE | both)];
    let of_all = of_all.map(|(path, flags)| (around.open.join(path), flags));
    let of_system = [
        (read, "/ /etc /etc/passwd /etc/shadow /root /proc/self/cwd/etc/passwd"),
        (read, "/proc/1/environ /proc/1/root /proc/kcore /proc/kmsg /dev/kmsg /dev/vsock"),
        (write, "/proc/self/oom_score_adj /proc/self/uid_map /proc/sys/kernel/core_pattern"),
        (write, "/proc/sysrq-trigger /sys/class/net/lo/mtu"),
        (both, "/proc/1/mem /proc/self/exe /proc/self/mem"),
        (both, "/dev/console /dev/mem /dev/null /dev/ptmx /dev/vda"),
    ];
    let of_system = of_system
        .iter()
        .flat_map(|(flags, paths)| paths.split(' ').map(|path| (PathBuf::from(path), *flags)));
    let guests = [(around.guests.join("new"), new)];
    for (path, flags) in of_root.into_iter().chain(of_all).chain(of_system).chain(guests) {
        // Some systems lack some of these files.
        if flags & libc::O_CREAT != 0 || path.symlink_metadata().is_ok() {
            let name = format!("open {} with {flags:#o}", path.display());
            probe.compare(&name, probe.open(&path, flags), Outcome::Denied);
        }
    }
}

fn names(around: &Around) -> Vec<Attempt> {
    let here = || number(libc::AT_FDCWD);
    let status = around.root.join("run/mote/status");
    let socket = around.guests.join("sock");
    let renames = [
        ("the status", &status, status.with_extension("new")),
        ("everybody's file", &around.open.join("file"), around.open.join("new")),
        ("devlxd's socket to another directory", &socket, around.open.join("new")),
    ];
    let renames = renames.map(|(what, from, to)| {
        let arguments = vec![here(), path(from), here(), path(to)];
        (format!("rename {what}"), libc::SYS_renameat, arguments, Outcome::Denied)
    });
    let removed = [
        status,
        around.root.join("run/mote/lock"),
        around.open.join("file"),
        around.open.join("everybody"),
    ];
    let removed = removed.map(|at| {
        let name = format!("remove {}", at.display());
        (name, libc::SYS_unlinkat, vec![here(), path(at), number(0)], Outcome::Denied)
    });
    // These files are not programs, so the agent continues even if the kernel allows the execution.
    let programs = ["file", "setuid"].map(|name| {
        let arguments = vec![path(around.open.join(name))];
        (format!("execute {name}"), libc::SYS_execve, arguments, Outcome::Denied)
    });
    renames.into_iter().chain(removed).chain(programs).collect()
}

fn processes(around: &Around) -> Vec<Attempt> {
    let other = || Number(around.other.id().into());
    let kill = || number(libc::SIGKILL);
    let limit = || Bytes(vec![0; 16]);
    let files = || Number(libc::RLIMIT_NOFILE.into());
    let mut all = vec![
        ("kill another", libc::SYS_kill, vec![other(), kill()], Outcome::Denied),
        ("signal process 1", libc::SYS_kill, vec![number(1), number(0)], Outcome::Denied),
        ("tkill another", libc::SYS_tkill, vec![other(), kill()], Outcome::Denied),
        ("tgkill another", libc::SYS_tgkill, vec![other(), other(), kill()], Outcome::Denied),
        ("limit another", libc::SYS_prlimit64, vec![other(), files(), limit()], Outcome::Refused),
    ];
    let prctl = [
        ("securebits", libc::PR_SET_SECUREBITS, [1, 0]),
        ("an ambient capability", libc::PR_CAP_AMBIENT, [libc::PR_CAP_AMBIENT_RAISE, 21]),
        ("another memory map", libc::PR_SET_MM, [libc::PR_SET_MM_BRK, 0]),
    ];
    all.extend(prctl.map(|(name, option, [one, two])| {
        let arguments = vec![number(option), number(one), number(two)];
        (name, libc::SYS_prctl, arguments, Outcome::Denied)
    }));
    let namespaces = [
        ("user", libc::CLONE_NEWUSER),
        ("mount", libc::CLONE_NEWNS),
        ("pid", libc::CLONE_NEWPID),
        ("network", libc::CLONE_NEWNET),
        ("ipc", libc::CLONE_NEWIPC),
        ("uts", libc::CLONE_NEWUTS),
        ("cgroup", libc::CLONE_NEWCGROUP),
    ];
    all.extend(namespaces.map(|(name, flag)| {
        (name, libc::SYS_clone, vec![number(flag | libc::SIGCHLD)], Outcome::Refused)
    }));
    all.into_iter()
        .map(|(name, call, arguments, outcome)| (name.to_owned(), call, arguments, outcome))
        .collect()
}

fn descriptors() -> Vec<Attempt> {
    let requests = [
        ("type into a terminal", libc::TIOCSTI),
        ("take a terminal", libc::TIOCSCTTY),
        ("paste on a console", libc::TIOCLINUX),
        ("become the console", libc::TIOCCONS),
        ("freeze a file system", libc::Ioctl::from(0xc004_5877_u32)),
        ("change an interface", 0x8914),
    ];
    let attempt = |(name, request): (&str, libc::Ioctl)| {
        let arguments = vec![number(0), Number(request), Bytes(vec![b'x'; 64])];
        (name.to_owned(), libc::SYS_ioctl, arguments, Outcome::Refused)
    };
    requests.map(attempt).into()
}

/// Families and protocols of sockets to try.
const FAMILIES: c_int = 50;

/// Tries sockets that the agent does not need, socket pairs, and sending to other addresses.
fn sockets(around: &Around) -> Vec<Attempt> {
    let mut all = Vec::new();
    let mut refused = |name: String, call, arguments: Vec<Argument>| {
        all.push((name, call, arguments, Outcome::Refused));
    };
    let mut needed = vec![(around.family(), libc::SOCK_STREAM), (libc::AF_NETLINK, libc::SOCK_RAW)];
    if around.forwards {
        needed.extend([libc::AF_INET, libc::AF_INET6].map(|family| (family, libc::SOCK_STREAM)));
    }
    for family in 1..FAMILIES {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM, libc::SOCK_RAW, libc::SOCK_SEQPACKET] {
            let arguments = vec![number(family), number(kind), number(0)];
            if !needed.contains(&(family, kind)) {
                let name = format!("socket of family {family}, type {kind}");
                refused(name, libc::SYS_socket, arguments.clone());
            }
            let name = format!("pair of family {family}, type {kind}");
            refused(name, libc::SYS_socketpair, [arguments, vec![Bytes(vec![0; 8])]].concat());
        }
    }
    for (family, kind) in needed {
        for protocol in 1..FAMILIES {
            let name = format!("socket of family {family}, protocol {protocol}");
            refused(name, libc::SYS_socket, [family, kind, protocol].map(number).into());
        }
    }
    let address = crate::can::ipv4(514);
    let length = Number(address.len() as u64);
    let data = vec![number(0), Bytes(vec![b'x']), Number(1), number(0), Bytes(address), length];
    refused("send a datagram elsewhere".to_owned(), libc::SYS_sendto, data);
    all
}

fn reopen(probe: &mut Probe<'_>) -> Result<(), Errno> {
    let named = probe.open(&probe.around.open, libc::O_PATH)?;
    let said = probe.open(Path::new(&format!("/proc/self/fd/{named}")), libc::O_RDONLY);
    probe.compare("read a directory by a descriptor that names it", said, Outcome::Denied);
    probe.close(named);
    Ok(())
}

/// `F_SETSIG` (`fcntl.h`).
const SET_SIGNAL: c_int = 10;

/// Sends a signal through a pipe that another process owns. The kernel only checks permission when
/// it sends the signal, so the caller must check whether the other process is still alive.
fn signal_by_file(probe: &mut Probe<'_>) -> Result<(), Errno> {
    probe.make(libc::SYS_pipe2, &[Bytes(vec![0; 8]), number(0)])?;
    let mut two = [0; 8];
    probe.injected.read(0, &mut two)?;
    let [near, far] = [&two[..4], &two[4..]]
        .map(|bytes| bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    for (command, value) in [
        (libc::F_SETOWN, u64::from(probe.around.other.id())),
        (SET_SIGNAL, word(libc::SIGKILL)),
        (libc::F_SETFL, word(libc::O_ASYNC)),
    ] {
        let said = probe.make(libc::SYS_fcntl, &[Number(near), number(command), Number(value)]);
        probe.compare("signals by a file", said, Outcome::Done);
    }
    let said = probe.make(libc::SYS_write, &[Number(far), Bytes(vec![b'x']), Number(1)]);
    probe.compare("signals by a file: write", said, Outcome::Done);
    probe.close(near);
    probe.close(far);
    Ok(())
}

/// `RTM_SETLINK` (`linux/rtnetlink.h`), and the type of an error answer (`linux/netlink.h`).
const SET_LINK: u16 = 19;
const ERROR: u8 = 2;

/// Brings the loopback interface up by netlink, although it is already up.
fn change_network(probe: &mut Probe<'_>) -> Result<(), Errno> {
    let arguments = [libc::AF_NETLINK, libc::SOCK_RAW, 0].map(number);
    let socket = probe.make(libc::SYS_socket, &arguments)?;
    // struct nlmsghdr: length, type, request with acknowledgement; ifinfomsg: index 1, flags, mask.
    let mut message = 32_u32.to_ne_bytes().to_vec();
    message.extend(SET_LINK.to_ne_bytes());
    message.extend([5, 0]);
    message.extend([0; 12]);
    message.extend(1_u32.to_ne_bytes());
    message.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    let length = Number(message.len() as u64);
    probe.make(libc::SYS_write, &[Number(socket), Bytes(message), length])?;
    let read = [Number(socket), Bytes(vec![0; 64]), Number(64)];
    probe.make(libc::SYS_read, &read)?;
    let mut answer = [0; 20];
    probe.injected.read(0, &mut answer)?;
    probe.close(socket);
    let [.., a, b, c, d] = answer;
    let error = i32::from_ne_bytes([a, b, c, d]);
    let said = match (answer[4], error) {
        (ERROR, 0) => Ok(0),
        (ERROR, error) => Err(Errno::from_raw(-error)),
        _other => Err(Errno::EBADMSG),
    };
    probe.compare("change an interface by netlink", said, Outcome::Denied);
    Ok(())
}
