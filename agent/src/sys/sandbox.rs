//! Permanently gives up root's user, capabilities, the file system except for a few paths
//! (Landlock), and most system calls (seccomp), if the agent's features do not need them. Workers
//! inherit the sandbox.
//!
//! Each part protects on its own: even without Landlock, this user owns no files and its group few.

#![expect(clippy::cast_possible_truncation, reason = "numbers of system calls are below 500")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(target_arch = "riscv64"))]
use libc::SYS_renameat as RENAMEAT;
// Newer architectures have only this call.
#[cfg(target_arch = "riscv64")]
use libc::SYS_renameat2 as RENAMEAT;
use rustix::fs::OFlags;

/// User and group of an agent in the sandbox. 65520 to 65533 are unassigned: Debian's policy
/// (9.2.2) reserves them, and systemd gives none to services (<https://systemd.io/UIDS-GIDS/>).
/// 65534 is shared by many programs.
pub(crate) const USER: u32 = 65_530;

/// Landlock rights for a path and everything below it.
const EXECUTE: u64 = 1;
const TRUNCATE: u64 = 1 << 14;
const WRITE: u64 = 1 << 1 | TRUNCATE;
const READ: u64 = 1 << 2;
const LIST: u64 = 1 << 3;
const REMOVE: u64 = 1 << 5;
const SOCKET: u64 = 1 << 9;
/// All rights of Landlock's first version; the third adds truncation.
const ALL: u64 = (1 << 13) - 1;
const TRUNCATES: i64 = 3;
/// Since version 6, Landlock denies signals and abstract sockets to processes outside.
const SCOPES: [u64; 2] = [6, 1 | 1 << 1];

/// `linux/capability.h`: the third version, of two words.
const CAPABILITIES: u32 = 0x2008_0522;
/// Highest capability that a kernel may have.
const LAST: libc::c_ulong = 63;

/// `AUDIT_ARCH_*` of this target (`linux/audit.h`).
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") {
    0xc000_003e
} else if cfg!(target_arch = "aarch64") {
    0xc000_00b7
} else {
    0xc000_00f3 // riscv64
};
/// Flags of clone(2) that make namespaces.
const NAMESPACES: u32 = 0x7e02_0000;
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const ANY_BIT: u16 = 0x45;
/// [`ANY_BIT`] negated; this code is not the kernel's.
const NO_BIT: u16 = 0x8000 | ANY_BIT;
const RETURN: u16 = 0x06;
const AND: u16 = 0x54;
const SHIFT: u16 = 0x64;
const OR_INDEX: u16 = 0x4c;
const TO_INDEX: u16 = 0x07;
const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
/// Any other call fails, and the kernel's audit log names it. It does not kill: the list was
/// measured, and an agent in production must not die from a call that no test makes.
const REFUSE: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();
/// Apply to all threads, and log refused calls.
const FLAGS: libc::c_ulong = 1 | 2;

macro_rules! calls {
    ($($libc:ident)*; $($own:ident)*) => { &[$(libc::$libc as u16,)* $($own as u16,)*] };
}

/// System calls that the agent and its reports make after the start: those seen in the tests, and
/// alternatives that the C library may use.
const CALLS: &[u16] = calls! {
    SYS_accept4 SYS_brk SYS_chdir SYS_clock_gettime SYS_close SYS_close_range SYS_connect SYS_dup
    SYS_dup3 SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_eventfd2 SYS_execve SYS_exit
    SYS_exit_group SYS_faccessat SYS_faccessat2 SYS_fcntl SYS_fstat SYS_futex SYS_getdents64
    SYS_geteuid SYS_getpeername SYS_getpid SYS_getppid SYS_getrandom SYS_getsockname SYS_getsockopt
    SYS_getuid SYS_kill SYS_lseek SYS_madvise SYS_mmap SYS_mprotect SYS_mremap SYS_munmap
    SYS_nanosleep SYS_newfstatat SYS_openat SYS_pipe2 SYS_ppoll SYS_prctl SYS_read SYS_readlinkat
    SYS_readv SYS_recvfrom SYS_recvmsg SYS_renameat2 SYS_restart_syscall SYS_rt_sigaction
    SYS_rt_sigprocmask SYS_rt_sigreturn SYS_sched_yield SYS_set_tid_address SYS_setsid
    SYS_setsockopt SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_statfs SYS_statx SYS_sysinfo
    SYS_tgkill SYS_timerfd_create SYS_timerfd_settime SYS_tkill SYS_umask SYS_uname SYS_unlinkat
    SYS_wait4 SYS_write SYS_writev; RENAMEAT
};
/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[u16] = calls! {
    SYS_access SYS_arch_prctl SYS_dup2 SYS_epoll_create SYS_fork SYS_lstat SYS_open SYS_poll
    SYS_readlink SYS_rename SYS_stat SYS_unlink;
};
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[u16] = &[];

/// A call allowed by a test of an argument: number, offset (`struct seccomp_data`), test, value.
type Limited = (u16, u32, u16, u32);
/// clone(2) creates no namespaces, because a process has all capabilities in a user namespace.
/// ioctl(2) cannot type into the agent's terminal. Datagrams go only to the connected peer, and
/// limits apply to this process only.
const LIMITED: [Limited; 6] = [
    (libc::SYS_clone as u16, argument(0), NO_BIT, NAMESPACES),
    (libc::SYS_ioctl as u16, argument(1), EQUAL, libc::FIONBIO as u32),
    (libc::SYS_ioctl as u16, argument(1), EQUAL, libc::TIOCOUTQ as u32),
    (libc::SYS_ioctl as u16, argument(1), EQUAL, super::GET_LOCAL_CID as u32),
    (libc::SYS_sendto as u16, argument(5), EQUAL, 0),
    (libc::SYS_prlimit64 as u16, argument(0), EQUAL, 0),
];

/// Offset in `struct seccomp_data` of an argument's lower half.
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

/// Maximum number of kinds of sockets that an agent needs.
pub(crate) const KINDS: usize = 4;
/// Added to a socket family, these give the kind of its stream or raw sockets.
pub(crate) const STREAM: u16 = 1 << KIND;
pub(crate) const RAW: u16 = 3 << KIND;
/// Shift of the type in a kind, and mask of the type in socket(2)'s argument, which also has flags.
const KIND: u32 = 8;
const TYPE: u32 = 0xf;

/// Steps after the comparison with socket(2)'s number: eight, and two for each kind.
const SOCKET_STEPS: usize = 8 + 2 * KINDS;
/// All steps: four before the list, two per call, five per limited call, the sockets', the last.
const LENGTH: usize =
    4 + 2 * (CALLS.len() + OLD_CALLS.len()) + 5 * LIMITED.len() + 1 + SOCKET_STEPS + 1;

/// What an agent in the sandbox needs in addition to its own files.
#[derive(Debug, Default)]
pub(crate) struct Needs<'a> {
    /// The status port and its dummy.
    pub(crate) ports: [Option<&'a Path>; 2],
    /// The directory of devlxd's socket.
    pub(crate) guests: Option<&'a Path>,
    /// Kinds of the sockets that the agent creates ([`STREAM`], [`RAW`]), 0 for none.
    pub(crate) sockets: [u16; KINDS],
}

/// `struct landlock_path_beneath_attr` (`linux/landlock.h`).
#[repr(C, packed)]
struct Rule {
    rights: u64,
    below: i32,
}

static ENTERED: AtomicBool = AtomicBool::new(false);

pub(crate) fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// Enters the sandbox. Returns false if the kernel lacks a part or the process cannot change its
/// user; the other parts still apply. Call it while the process has one thread.
pub(crate) fn enter(root: &Path, needs: &Needs<'_>) -> bool {
    ENTERED.store(true, Ordering::Relaxed);
    // SAFETY: neither call takes a pointer.
    unsafe {
        for capability in 0..=LAST {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    let fenced = landlock(root, needs);
    let left = leave_user();
    let dropped = keep_capabilities(0);
    filter(needs.sockets) && fenced && left && dropped
}

/// Reduces this process's capabilities to this set; returns false if that fails.
pub(crate) fn keep_capabilities(kept: u32) -> bool {
    let (mut header, mut data) = ([CAPABILITIES, 0], [0u32; 6]);
    // SAFETY: the header is two words, the data two sets of three: effective, permitted,
    // inheritable.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, &raw mut data);
        let kept = data[1] & kept;
        data = [kept, kept, 0, 0, 0, 0];
        libc::syscall(libc::SYS_capset, &raw const header, &raw const data) == 0
    }
}

/// Becomes [`USER`]; returns false if not permitted. Raw system calls, because the C library would
/// look for other threads.
fn leave_user() -> bool {
    let none = std::ptr::null::<libc::gid_t>();
    // SAFETY: the list of groups is empty, so the null pointer is not read; the rest are numbers.
    unsafe {
        libc::syscall(libc::SYS_setgroups, 0, none) == 0
            && libc::syscall(libc::SYS_setresgid, USER, USER, USER) == 0
            && libc::syscall(libc::SYS_setresuid, USER, USER, USER) == 0
    }
}

/// Restricts the process to the agent's paths; returns false without Landlock.
fn landlock(root: &Path, needs: &Needs<'_>) -> bool {
    let no_attributes = std::ptr::null::<u64>();
    // SAFETY: with the last argument 1 the call returns the version and reads nothing.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0, 1) };
    let handled = if version < TRUNCATES { ALL } else { ALL | TRUNCATE };
    let [scoped, scopes] = SCOPES;
    // Rights to files, to the network, and scopes (`struct landlock_ruleset_attr`).
    let attributes = [handled, 0, scopes];
    let length = if version.cast_unsigned() < scoped { 1 } else { 3 } * size_of::<u64>();
    // SAFETY: the kernel reads `length` bytes: the first word or all three.
    let rules =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, attributes.as_ptr(), length, 0) };
    let Ok(rules @ 0..) = i32::try_from(rules) else { return false };
    // SAFETY: a new descriptor, which has no other owner.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    for (path, rights) in [
        ("/proc", READ | LIST),
        ("/proc/self/exe", READ | EXECUTE),
        ("proc", READ | LIST),
        ("sys", READ | LIST),
        ("run/mote", READ | LIST | WRITE),
        ("dev", LIST),
    ] {
        allow(&rules, &root.join(path), rights & handled);
    }
    // The agent renames its socket there.
    if let Some(guests) = needs.guests {
        allow(&rules, guests, SOCKET | REMOVE);
    }
    for port in needs.ports.iter().flatten() {
        allow(&rules, port, (READ | WRITE) & handled);
    }
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) == 0 }
}

/// Adds a rule for a path and everything below.
fn allow(rules: &OwnedFd, path: &Path, rights: u64) {
    // A missing path needs no rule.
    let Ok(below) = super::file::open(path, OFlags::PATH) else { return };
    let rule = Rule { rights, below: below.as_raw_fd() };
    // SAFETY: the kernel reads twelve bytes; both descriptors are open.
    unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), 1, &raw const rule, 0);
    }
}

/// Allows only [`CALLS`], [`LIMITED`] and sockets of these kinds; returns false without seccomp.
fn filter(sockets: [u16; KINDS]) -> bool {
    let step = |code, when, otherwise, k| libc::sock_filter { code, jt: when, jf: otherwise, k };
    let mut program = Vec::with_capacity(LENGTH);
    program.extend([
        // Offsets in `struct seccomp_data`: the number 0, the architecture 4.
        step(LOAD, 0, 0, 4),
        step(EQUAL, 1, 0, ARCHITECTURE),
        step(RETURN, 0, 0, KILL),
        step(LOAD, 0, 0, 0),
    ]);
    for call in CALLS.iter().chain(OLD_CALLS) {
        program.extend([step(EQUAL, 0, 1, u32::from(*call)), step(RETURN, 0, 0, ALLOW)]);
    }
    for (call, offset, test, value) in LIMITED {
        let (when, otherwise) = if test == NO_BIT { (1, 0) } else { (0, 1) };
        program.extend([
            step(EQUAL, 0, 4, call.into()),
            step(LOAD, 0, 0, offset),
            step(test & 0x7fff, when, otherwise, value),
            step(RETURN, 0, 0, ALLOW),
            step(LOAD, 0, 0, 0),
        ]);
    }
    // The protocol must be 0; the filter combines family and type.
    program.extend([
        step(EQUAL, 0, SOCKET_STEPS as u8, libc::SYS_socket as u32),
        step(LOAD, 0, 0, argument(2)),
        step(EQUAL, 0, SOCKET_STEPS as u8 - 2, 0),
        step(LOAD, 0, 0, argument(1)),
        step(AND, 0, 0, TYPE),
        step(SHIFT, 0, 0, KIND),
        step(TO_INDEX, 0, 0, 0),
        step(LOAD, 0, 0, argument(0)),
        step(OR_INDEX, 0, 0, 0),
    ]);
    // A kind of 0 cannot be requested: the kernel rejects AF_UNSPEC.
    for kind in sockets {
        program.extend([step(EQUAL, 0, 1, kind.into()), step(RETURN, 0, 0, ALLOW)]);
    }
    program.push(step(RETURN, 0, 0, REFUSE));
    let program = libc::sock_fprog { len: LENGTH as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program has that length and outlives the call, which copies it.
    unsafe { libc::syscall(libc::SYS_seccomp, 1, FLAGS, &raw const program) == 0 }
}
