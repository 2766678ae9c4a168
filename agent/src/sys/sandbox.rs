//! Gives up rights for good, for an agent that nobody may ask for what needs them: capabilities, the file system
//! but for a few paths (Landlock), and most system calls (seccomp). Workers inherit all of it.
//!
//! Each is a wall of its own: without Landlock, root without capabilities still owns its files.

#![expect(clippy::cast_possible_truncation, reason = "numbers of system calls are below 500")]

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};

/// What the agent needs of the file system, and what is below it.
const EXECUTE: u64 = 1;
const TRUNCATE: u64 = 1 << 14;
const WRITE: u64 = 1 << 1 | TRUNCATE;
const READ: u64 = 1 << 2;
const LIST: u64 = 1 << 3;
const REMOVE: u64 = 1 << 5;
const DIRECTORY: u64 = 1 << 7;
const FILE: u64 = 1 << 8;
const SOCKET: u64 = 1 << 9;
const LINK: u64 = 1 << 12;
/// All rights of Landlock's first version, and from its third on that to truncate.
const ALL: u64 = (1 << 13) - 1;
const TRUNCATES: i64 = 3;

/// `linux/capability.h`: the third version, of two words.
const CAPABILITIES: u32 = 0x2008_0522;
/// Highest capability that a kernel may have.
const LAST: libc::c_ulong = 63;

/// `AUDIT_ARCH_*` of this target (`linux/audit.h`).
const ARCHITECTURE: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
/// Flags of clone(2) that make namespaces; in a user namespace of its own a process has all capabilities.
const NAMESPACES: u32 = 0x7e02_0000;
const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;
const KILL: u32 = 0x8000_0000;
const ALLOW: u32 = 0x7fff_0000;
/// Any other call fails, and the kernel's audit says which. It does not kill: the list is measured, and an agent
/// in the field is not to die of a call that no test made.
const REFUSE: u32 = 0x0005_0000 | libc::EPERM.unsigned_abs();
const LOGGED: libc::c_ulong = 2;

/// The system calls of the agent and its reports once it has started: what the tests make, and what the C library
/// may make in their place.
const CALLS: &[u16] = &[
    libc::SYS_accept4 as u16,
    libc::SYS_bind as u16,
    libc::SYS_brk as u16,
    libc::SYS_chdir as u16,
    libc::SYS_clock_gettime as u16,
    libc::SYS_close as u16,
    libc::SYS_close_range as u16,
    libc::SYS_connect as u16,
    libc::SYS_dup as u16,
    libc::SYS_dup3 as u16,
    libc::SYS_epoll_create1 as u16,
    libc::SYS_epoll_ctl as u16,
    libc::SYS_epoll_pwait as u16,
    libc::SYS_eventfd2 as u16,
    libc::SYS_execve as u16,
    libc::SYS_exit as u16,
    libc::SYS_exit_group as u16,
    libc::SYS_faccessat as u16,
    libc::SYS_faccessat2 as u16,
    libc::SYS_fchmod as u16,
    libc::SYS_fchmodat as u16,
    libc::SYS_fcntl as u16,
    libc::SYS_fstat as u16,
    libc::SYS_futex as u16,
    libc::SYS_getdents64 as u16,
    libc::SYS_geteuid as u16,
    libc::SYS_getpeername as u16,
    libc::SYS_getpid as u16,
    libc::SYS_getppid as u16,
    libc::SYS_getrandom as u16,
    libc::SYS_getsockname as u16,
    libc::SYS_getsockopt as u16,
    libc::SYS_getuid as u16,
    libc::SYS_ioctl as u16,
    libc::SYS_kill as u16,
    libc::SYS_listen as u16,
    libc::SYS_lseek as u16,
    libc::SYS_madvise as u16,
    libc::SYS_mkdirat as u16,
    libc::SYS_mmap as u16,
    libc::SYS_mprotect as u16,
    libc::SYS_mremap as u16,
    libc::SYS_munmap as u16,
    libc::SYS_nanosleep as u16,
    libc::SYS_newfstatat as u16,
    libc::SYS_openat as u16,
    libc::SYS_pipe2 as u16,
    libc::SYS_ppoll as u16,
    libc::SYS_prctl as u16,
    libc::SYS_prlimit64 as u16,
    libc::SYS_read as u16,
    libc::SYS_readlinkat as u16,
    libc::SYS_readv as u16,
    libc::SYS_recvfrom as u16,
    libc::SYS_recvmsg as u16,
    libc::SYS_renameat as u16,
    libc::SYS_renameat2 as u16,
    libc::SYS_restart_syscall as u16,
    libc::SYS_rt_sigaction as u16,
    libc::SYS_rt_sigprocmask as u16,
    libc::SYS_rt_sigreturn as u16,
    libc::SYS_sched_yield as u16,
    libc::SYS_sendmsg as u16,
    libc::SYS_sendto as u16,
    libc::SYS_set_tid_address as u16,
    libc::SYS_setsid as u16,
    libc::SYS_setsockopt as u16,
    libc::SYS_shutdown as u16,
    libc::SYS_sigaltstack as u16,
    libc::SYS_signalfd4 as u16,
    libc::SYS_socket as u16,
    libc::SYS_socketpair as u16,
    libc::SYS_statfs as u16,
    libc::SYS_statx as u16,
    libc::SYS_symlinkat as u16,
    libc::SYS_sysinfo as u16,
    libc::SYS_tgkill as u16,
    libc::SYS_timerfd_create as u16,
    libc::SYS_timerfd_settime as u16,
    libc::SYS_tkill as u16,
    libc::SYS_umask as u16,
    libc::SYS_uname as u16,
    libc::SYS_unlinkat as u16,
    libc::SYS_wait4 as u16,
    libc::SYS_write as u16,
    libc::SYS_writev as u16,
];
/// Those that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[u16] = &[
    libc::SYS_access as u16,
    libc::SYS_arch_prctl as u16,
    libc::SYS_chmod as u16,
    libc::SYS_dup2 as u16,
    libc::SYS_epoll_create as u16,
    libc::SYS_fork as u16,
    libc::SYS_lstat as u16,
    libc::SYS_mkdir as u16,
    libc::SYS_open as u16,
    libc::SYS_poll as u16,
    libc::SYS_readlink as u16,
    libc::SYS_rename as u16,
    libc::SYS_stat as u16,
    libc::SYS_symlink as u16,
    libc::SYS_unlink as u16,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[u16] = &[];

/// Steps of the filter: four before the list, two for each call, four for clone(2), and the last.
const LENGTH: usize = 4 + 2 * (CALLS.len() + OLD_CALLS.len()) + 4 + 1;

/// `struct landlock_path_beneath_attr` (`linux/landlock.h`).
#[repr(C, packed)]
struct Rule {
    rights: u64,
    below: i32,
}

/// Whether this process is in the sandbox.
static ENTERED: AtomicBool = AtomicBool::new(false);

/// Whether this process is in the sandbox.
pub(crate) fn is_entered() -> bool {
    ENTERED.load(Ordering::Relaxed)
}

/// Enters the sandbox; `ports` are the paths of the status port and of the dummy beside it. False if this kernel
/// lacks a part of it; the others hold. To be called while the process has one thread.
pub(crate) fn enter(root: &Path, ports: [Option<&Path>; 2]) -> bool {
    ENTERED.store(true, Ordering::Relaxed);
    // SAFETY: neither call takes a pointer.
    unsafe {
        for capability in 0..=LAST {
            libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
        }
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    }
    let fenced = landlock(root, ports);
    let dropped = keep_capabilities(0);
    filter() && fenced && dropped
}

/// Leaves this process, of the capabilities that it has, those of this set; false if that fails.
#[inline(never)] // its size
pub(crate) fn keep_capabilities(kept: u32) -> bool {
    let (mut header, mut data) = ([CAPABILITIES, 0], [0u32; 6]);
    // SAFETY: a header of two words, and two times three of data: effective, permitted, inheritable.
    unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, &raw mut data);
        let kept = data[1] & kept;
        data = [kept, kept, 0, 0, 0, 0];
        libc::syscall(libc::SYS_capset, &raw const header, &raw const data) == 0
    }
}

/// Leaves the paths that the agent uses; false without Landlock.
fn landlock(root: &Path, ports: [Option<&Path>; 2]) -> bool {
    let no_attributes = std::ptr::null::<u64>();
    // SAFETY: with the last argument 1 the version is returned, and nothing is read.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, no_attributes, 0, 1) };
    let handled = if version < TRUNCATES { ALL } else { ALL | TRUNCATE };
    // SAFETY: one word is read.
    let rules = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const handled,
            size_of_val(&handled),
            0,
        )
    };
    let Ok(rules @ 0..) = i32::try_from(rules) else { return false };
    // SAFETY: a new descriptor that nobody else owns.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    for (path, rights) in [
        // Absolute paths stay as they are.
        ("/proc", READ | LIST),
        ("/proc/self/exe", READ | EXECUTE),
        ("proc", READ | LIST),
        ("sys", READ | LIST),
        ("run/mote", READ | LIST | WRITE | FILE | REMOVE),
        // Nodes can be made and removed, but no disk opened.
        ("dev", LIST | DIRECTORY | SOCKET | LINK | REMOVE),
        ("dev/vsock", READ),
    ] {
        allow(&rules, &root.join(path), rights & handled);
    }
    for port in ports.iter().flatten() {
        allow(&rules, port, (READ | WRITE) & handled);
    }
    // SAFETY: no pointers.
    unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) == 0 }
}

/// Adds a rule for a path and what is below it.
#[inline(never)] // its size
fn allow(rules: &OwnedFd, path: &Path, rights: u64) {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // What is not there needs no rights.
    let Ok(below) = rustix::fs::open(path, flags, Mode::empty()) else { return };
    let rule = Rule { rights, below: below.as_raw_fd() };
    // SAFETY: twelve bytes are read; both descriptors are open.
    unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), 1, &raw const rule, 0);
    }
}

/// Allows [`CALLS`] alone; false without seccomp.
fn filter() -> bool {
    let step = |code, when, otherwise, k| libc::sock_filter { code, jt: when, jf: otherwise, k };
    let mut program = [step(RETURN, 0, 0, REFUSE); LENGTH];
    let mut slots = program.iter_mut();
    let mut put = |next| slots.next().into_iter().for_each(|slot| *slot = next);
    // Offsets in `struct seccomp_data`: the number 0, the architecture 4, the first argument 16.
    put(step(LOAD, 0, 0, 4));
    put(step(EQUAL, 1, 0, ARCHITECTURE));
    put(step(RETURN, 0, 0, KILL));
    put(step(LOAD, 0, 0, 0));
    for call in CALLS.iter().chain(OLD_CALLS) {
        put(step(EQUAL, 0, 1, u32::from(*call)));
        put(step(RETURN, 0, 0, ALLOW));
    }
    put(step(EQUAL, 0, 3, libc::SYS_clone as u32));
    put(step(LOAD, 0, 0, 16));
    put(step(ANY_BIT, 1, 0, NAMESPACES));
    put(step(RETURN, 0, 0, ALLOW));
    let program = libc::sock_fprog { len: LENGTH as u16, filter: program.as_mut_ptr() };
    // SAFETY: the program lives until the call returns, which copies it.
    unsafe { libc::syscall(libc::SYS_seccomp, 1, LOGGED, &raw const program) == 0 }
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions, create_dir_all};
    use std::time::Duration;

    use super::*;
    use crate::sys::apart;

    /// Longest time for a child.
    const LIMIT: Duration = Duration::from_secs(10);

    fn opens(path: &Path) -> bool {
        File::open(path).is_ok()
    }

    #[test]
    fn in_it_the_agents_own_files_are_there_and_no_others() {
        let root = crate::runtime::scratch::scratch("sandbox");
        for path in ["run/mote", "dev", "etc"] {
            create_dir_all(root.join(path)).unwrap();
        }
        let at = |path: &str| root.join(path);
        for path in ["dev/port", "dev/disk", "etc/shadow", "run/mote/status"] {
            std::fs::write(at(path), "x").unwrap();
        }
        let port = at("dev/port");
        if !apart(LIMIT, &|| enter(&root, [Some(&port), None])) {
            return mote_machine::skipped("a kernel with Landlock and seccomp");
        }
        let inside =
            |work: &dyn Fn() -> bool| apart(LIMIT, &|| enter(&root, [Some(&port), None]) && work());
        let write =
            |path: &str| OpenOptions::new().write(true).truncate(true).open(at(path)).is_ok();
        assert!(inside(&|| write("dev/port") && opens(&port) && write("run/mote/status")));
        assert!(inside(&|| std::fs::write(at("run/mote/new"), "x").is_ok()));
        assert!(inside(&|| std::os::unix::net::UnixListener::bind(at("dev/sock")).is_ok()));
        assert!(inside(&|| opens(Path::new("/proc/self/stat"))));
        assert!(inside(&|| !opens(&at("dev/disk")) && !write("dev/disk")));
        assert!(inside(&|| !opens(&at("etc/shadow")) && !opens(Path::new("/etc/passwd"))));
        assert!(inside(&|| std::fs::write(at("etc/new"), "x").is_err()));
        assert!(inside(&|| std::fs::write(at("dev/new"), "x").is_err()));
        assert_eq!(std::fs::read(at("etc/shadow")).unwrap(), b"x");
    }

    #[test]
    fn in_it_most_system_calls_fail() {
        let root = Path::new("/nowhere");
        if !apart(LIMIT, &|| enter(root, [None; 2])) {
            return mote_machine::skipped("a kernel with Landlock and seccomp");
        }
        let refused = |call: &dyn Fn() -> i64| {
            let errno = || std::io::Error::last_os_error().raw_os_error();
            apart(LIMIT, &|| enter(root, [None; 2]) && call() == -1 && errno() == Some(libc::EPERM))
        };
        // SAFETY: each call fails before it reads anything, and the child of fork ends at once.
        unsafe {
            assert!(refused(&|| libc::unshare(libc::CLONE_NEWUSER).into()));
            assert!(refused(&|| libc::syscall(libc::SYS_clone, libc::CLONE_NEWUSER, 0, 0, 0, 0)));
            assert!(refused(&|| libc::syscall(libc::SYS_bpf, 0, 0, 0)));
            assert!(refused(&|| libc::syscall(libc::SYS_ptrace, 0, 0, 0, 0)));
            assert!(refused(&|| libc::syscall(libc::SYS_finit_module, 0, 0, 0)));
            assert!(refused(
                &|| libc::mount(null(), c"/".as_ptr(), null(), 0, null().cast()).into()
            ));
            assert!(!refused(&|| libc::getpid().into()));
            let child = || {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(0);
                }
                child > 0
            };
            assert!(apart(LIMIT, &|| enter(root, [None; 2]) && child()));
        }
    }

    #[test]
    fn there_is_no_core_of_it_and_only_root_may_trace_it() {
        // SAFETY: this takes no pointers.
        let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
        let kept = || {
            crate::sys::keep_secrets();
            dumpable() == 0
        };
        assert!(apart(LIMIT, &kept) && dumpable() == 1);
    }

    fn null() -> *const libc::c_char {
        std::ptr::null()
    }
}
