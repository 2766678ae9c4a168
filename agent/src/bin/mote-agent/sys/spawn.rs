//! From fork to exec. Between the two, in the child, only what is safe after a fork of a process
//! with threads: plain system calls on memory that was prepared before. What goes wrong there comes
//! back as an errno through a pipe that a successful exec closes, so the caller never waits for a
//! file system: it reads the pipe when there is something.

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors we want at most: some hundred execs at once have eight each.
const FILES: u64 = 16_384;
/// What a child may create is for others to read, as under any login.
const UMASK: libc::mode_t = 0o022;

/// The last signal there is.
const SIGNALS: i32 = 64;
/// `close_range(2)`: mark rather than close.
const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;

/// The soft limit we were started with, which children get back; 0 is "not changed".
static FILE_LIMIT: AtomicU64 = AtomicU64::new(0);

/// Allows ourselves more descriptors, as far as we may.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < FILES) else { return };
    let wanted = limit.maximum.unwrap_or(FILES).min(FILES);
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        FILE_LIMIT.store(current, Ordering::Relaxed);
    }
}

/// A program to be.
#[derive(Debug)]
pub(crate) struct Plan<'p> {
    /// Where it may be; the first that can be executed is taken (`PATH`, spelt out).
    pub(crate) programs: &'p [CString],
    /// `argv`.
    pub(crate) arguments: &'p [CString],
    /// `NAME=value`; nothing of ours is inherited.
    pub(crate) environment: &'p [CString],
    /// Descriptors 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'p>; 3],
    /// Entered with the user's rights, not ours.
    pub(crate) directory: Option<&'p CStr>,
    /// User and group; supplementary groups are dropped.
    pub(crate) ids: Option<(u32, u32)>,
    /// Whether descriptor 0 is to be its controlling terminal.
    pub(crate) terminal: bool,
}

/// Starts it in a session of its own. The descriptor reads as its end once it runs; before that an
/// errno may come out of it (four bytes, native order).
///
/// # Errors
/// The system's, if there cannot be a child at all.
pub(crate) fn spawn(plan: &Plan<'_>) -> io::Result<(Pid, OwnedFd)> {
    let (failure, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let arguments = pointers(plan.arguments);
    let environment = pointers(plan.environment);
    // SAFETY: the child calls nothing but async-signal-safe functions and never returns.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: both arrays end in null and point to strings that outlive this call.
            let errno = unsafe { become_program(plan, &arguments, &environment) };
            let bytes = errno.to_ne_bytes();
            // SAFETY: `bytes` is readable for its length; _exit runs no destructors of the parent's.
            unsafe {
                let _told = libc::write(report.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                libc::_exit(127)
            }
        }
        pid => match Pid::from_raw(pid) {
            Some(child) if pid > 0 => Ok((child, failure)),
            Some(_) | None => Err(io::Error::last_os_error()),
        },
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([null()]).collect()
}

/// Runs in the child; gives the errno of what failed.
///
/// # Safety
/// To be called after fork only, with null-ended arrays of valid strings.
unsafe fn become_program(
    plan: &Plan<'_>,
    arguments: &[*const c_char],
    environment: &[*const c_char],
) -> i32 {
    // SAFETY: system calls on prepared memory; what each needs is said in its own manual page and
    // held by the types of `Plan`.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        // Whatever we or who started us ignores, a command does not.
        for signal in 1..=SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::umask(UMASK);
        libc::setsid();
        let limit = FILE_LIMIT.load(Ordering::Relaxed);
        if limit != 0 {
            let mut files = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut files) == 0 {
                files.rlim_cur = limit;
                libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files);
            }
        }
        for (fd, wanted) in plan.stdio.iter().zip(0..) {
            if libc::dup2(fd.as_raw_fd(), wanted) < 0 {
                return errno();
            }
        }
        // Ours are all closed on exec; what we were started with may not be.
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC);
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
            return errno();
        }
        if let Some((user, group)) = plan.ids {
            // Without rights there is nothing to drop; the two calls below say if that will do.
            if libc::geteuid() == 0 && libc::setgroups(0, null()) < 0 {
                return errno();
            }
            if libc::setgid(group) < 0 || libc::setuid(user) < 0 {
                return errno();
            }
        }
        if let Some(directory) = plan.directory
            && libc::chdir(directory.as_ptr()) < 0
        {
            return errno();
        }
        let mut failed = libc::ENOENT;
        for program in plan.programs {
            libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            match errno() {
                // Not here; perhaps further on.
                libc::ENOENT | libc::ENOTDIR => {}
                // As execvp(3): what is forbidden here may be allowed further on, but is the reason
                // to give if it is not.
                libc::EACCES => failed = libc::EACCES,
                other => return other,
            }
        }
        failed
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}
