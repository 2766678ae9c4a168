//! What code that was injected into a sandboxed agent can and cannot do: as root, a debugger stops
//! the agent and makes its process call the kernel. x86-64 only, because of the registers.
#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![allow(missing_debug_implementations, reason = "no test prints these")]
#![cfg(target_arch = "x86_64")]

use std::ops::RangeInclusive;
use std::path::Path;

use nix::errno::Errno;
use nix::libc::{self, c_long};

pub use can::{Around, Way};
pub use ptrace::Injected;

mod attempts;
mod can;
mod ptrace;

pub(crate) struct Probe<'a> {
    pub(crate) injected: &'a Injected,
    pub(crate) around: &'a Around,
    report: Report,
}

pub fn try_all(injected: &Injected, around: &Around) -> Result<Report, Errno> {
    let mut probe = Probe { injected, around, report: Report::default() };
    probe.try_refused();
    attempts::try_all(&mut probe)?;
    can::try_all(&mut probe)?;
    Ok(probe.report)
}

pub fn reads(injected: &Injected, around: &Around, file: &Path) -> bool {
    let probe = Probe { injected, around, report: Report::default() };
    probe.open(file, 0).inspect(|opened| probe.close(*opened)).is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Refused,
    /// Landlock or the kernel denies it: the owner is another user, or a capability is missing.
    Denied,
    Done,
}

impl Outcome {
    pub(crate) fn is(self, said: Result<u64, Errno>) -> bool {
        match self {
            Self::Refused => said == Err(Errno::EPERM),
            // With EXDEV, Landlock denies a new name in another directory.
            Self::Denied => {
                matches!(said, Err(Errno::EPERM | Errno::EACCES | Errno::EXDEV))
            }
            Self::Done => said.is_ok(),
        }
    }
}

/// Attempts, and results that differ from docs/explanation/security.md.
#[derive(Debug, Default)]
pub struct Report {
    pub calls: usize,
    /// A line for each attempt whose result contradicts that page.
    pub wrong: Vec<String>,
}

macro_rules! named {
    ($($call:ident)*) => { &[$((stringify!($call), libc::$call)),*] };
}

const WANTED: &[(&str, c_long)] = named! {
    SYS_acct SYS_add_key SYS_adjtimex SYS_alarm SYS_bind SYS_bpf SYS_capset SYS_chmod SYS_chown
    SYS_chroot SYS_clock_adjtime SYS_clock_settime SYS_clone3 SYS_copy_file_range SYS_creat
    SYS_delete_module SYS_execveat SYS_fallocate SYS_fanotify_init SYS_fanotify_mark SYS_fchdir
    SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown SYS_fchownat SYS_finit_module SYS_flock
    SYS_fremovexattr SYS_fsconfig SYS_fsetxattr SYS_fsmount SYS_fsopen SYS_fspick SYS_ftruncate
    SYS_futimesat SYS_get_mempolicy SYS_getpriority SYS_init_module SYS_inotify_add_watch
    SYS_inotify_init1 SYS_io_setup SYS_io_submit SYS_io_uring_enter SYS_io_uring_register
    SYS_io_uring_setup SYS_ioperm SYS_iopl SYS_ioprio_set SYS_kcmp SYS_kexec_file_load
    SYS_kexec_load SYS_keyctl SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lchown
    SYS_link SYS_linkat SYS_listen SYS_lookup_dcookie SYS_lsetxattr SYS_memfd_create
    SYS_memfd_secret SYS_migrate_pages SYS_mkdir SYS_mkdirat SYS_mknod SYS_mknodat SYS_mlockall
    SYS_modify_ldt SYS_mount SYS_mount_setattr SYS_move_mount SYS_move_pages SYS_mq_open
    SYS_msgctl SYS_msgget SYS_msgsnd SYS_name_to_handle_at SYS_nfsservctl SYS_open_by_handle_at
    SYS_open_tree SYS_openat2 SYS_perf_event_open SYS_personality SYS_pidfd_getfd SYS_pidfd_open
    SYS_pidfd_send_signal SYS_pivot_root SYS_pkey_alloc SYS_pread64 SYS_preadv2
    SYS_process_madvise SYS_process_mrelease SYS_process_vm_readv SYS_process_vm_writev
    SYS_ptrace SYS_pwrite64 SYS_pwritev2 SYS_quotactl SYS_quotactl_fd SYS_readahead SYS_reboot
    SYS_remap_file_pages SYS_removexattr SYS_request_key SYS_rmdir SYS_rt_sigqueueinfo
    SYS_rt_tgsigqueueinfo SYS_sched_setaffinity SYS_sched_setattr SYS_sched_setparam
    SYS_sched_setscheduler SYS_seccomp SYS_semctl SYS_semget SYS_sendfile SYS_sendmmsg
    SYS_sendmsg SYS_set_mempolicy SYS_setdomainname SYS_setfsgid SYS_setfsuid SYS_setgid
    SYS_setgroups SYS_sethostname SYS_setitimer SYS_setns SYS_setpgid SYS_setpriority
    SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_settimeofday
    SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmget SYS_splice SYS_swapoff SYS_swapon
    SYS_symlink SYS_symlinkat SYS_sync SYS_sync_file_range SYS_sysfs SYS_syslog SYS_tee
    SYS_timer_create SYS_truncate SYS_umount2 SYS_unshare SYS_uselib SYS_userfaultfd SYS_ustat
    SYS_utime SYS_utimensat SYS_utimes SYS_vhangup SYS_vmsplice
};

/// Numbers without a system call when this was written. The kernel uses 335 and 336 for probes.
const UNKNOWN: [RangeInclusive<c_long>; 2] = [340..=423, 475..=1023];
/// Marks calls of programs with short addresses (x32).
const X32: c_long = 0x4000_0000;

impl Probe<'_> {
    pub(crate) fn compare(&mut self, name: &str, said: Result<u64, Errno>, outcome: Outcome) {
        self.report.calls += 1;
        if !outcome.is(said) {
            self.report.wrong.push(format!("{name}: {said:?}, not {outcome:?}"));
        }
    }

    fn try_refused(&mut self) {
        // No call accepts these arguments: they are neither a descriptor nor an address.
        let mut refused = |name: &str, number| {
            self.compare(name, self.injected.call(number, [u64::MAX; 6]), Outcome::Refused);
        };
        for (name, number) in WANTED {
            refused(name, *number);
            refused(&format!("{name} (x32)"), X32 | *number);
        }
        for number in UNKNOWN.into_iter().flatten() {
            refused(&format!("system call {number}"), number);
        }
    }
}
