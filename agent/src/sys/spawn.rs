//! fork and exec. Between fork and exec, the child makes only system calls on prepared memory,
//! which is safe in a process with threads. It sends the errno of a failure through a pipe; a
//! successful exec closes the pipe. The caller polls this pipe and so never waits for a file
//! system. The child closes all other descriptors before anything that may hang: it could outlive
//! the agent while holding its port.

use std::ffi::{CStr, c_char};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mote_core::hostapi::exec::MAX_PATH;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, setrlimit};
use rustix::stdio::stdin;

use super::plan::Plan;

/// Descriptor limit to request: several hundred concurrent commands use eight each.
const FILES: u64 = 16_384;
/// Umask of a child, as after a login.
const UMASK: libc::mode_t = 0o022;

/// Highest signal number.
const SIGNALS: i32 = 64;
const REPORT: i32 = 3;

/// The soft descriptor limit at the start, restored in children; 0 if unchanged.
static FILE_LIMIT: AtomicU64 = AtomicU64::new(0);

/// The OOM killer's preference for a process, from -1000 (never) to 1000 (proc(5)).
const OOM_SCORE: &CStr = c"/proc/self/oom_score_adj";
/// The agent's score, at which it is almost never killed, because the host needs the agent to
/// repair a guest that is out of memory. With -1000, a leaking agent could take all memory.
const AGENT_SCORE: &[u8] = b"-900";

/// Whether the agent set its score, so that children must reset theirs.
static HAS_LOWERED_SCORE: AtomicBool = AtomicBool::new(false);

/// Asks the kernel to spare the agent, not its children, unless a score is already set.
pub(crate) fn lower_oom_score() {
    HAS_LOWERED_SCORE.store(set_score(AGENT_SCORE, true), Ordering::Relaxed);
}

/// Sets the score of this process; with `is_ordinary`, only if it is 0. System calls only.
fn set_score(score: &[u8], is_ordinary: bool) -> bool {
    let mut old = [0; 2];
    // SAFETY: a constant path, and memory that outlives each call.
    unsafe {
        let file = libc::open(OOM_SCORE.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC);
        libc::read(file, old.as_mut_ptr().cast(), old.len());
        let set = (!is_ordinary || old == *b"0\n")
            && libc::pwrite(file, score.as_ptr().cast(), score.len(), 0) > 0;
        libc::close(file);
        set
    }
}

/// Returns how many descriptors this process may have.
pub(crate) fn descriptors() -> usize {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// Raises the soft descriptor limit to [`FILES`], or to the hard limit if lower.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let Some(current) = limit.current.filter(|current| *current < FILES) else { return };
    let wanted = limit.maximum.unwrap_or(FILES).min(FILES);
    let raised = Rlimit { current: Some(wanted), maximum: limit.maximum };
    if setrlimit(Resource::Nofile, raised).is_ok() {
        FILE_LIMIT.store(current, Ordering::Relaxed);
    }
}

/// Runs `work`, which may hang, in a child process; returns false if it fails, does not end within
/// `limit`, or cannot be started.
pub(crate) fn run_in_fork(limit: Duration, work: &dyn Fn() -> bool) -> bool {
    let until = super::since_boot() + limit;
    call_in_fork(until, stdin(), &|| i32::from(!work())) == 0
}

/// Makes a call that may hang in a child process, and gives up at `until`, a time since boot. The
/// child's only descriptor is `input`, as its standard input. Returns 0 or the errno; `ETIMEDOUT`
/// also means that the child was killed.
pub(crate) fn call_in_fork(until: Duration, input: BorrowedFd<'_>, call: &dyn Fn() -> i32) -> i32 {
    let fork = match Fork::start(&[input], &|| Some([u64::from(call().cast_unsigned())])) {
        Ok(fork) => fork,
        Err(error) => return error,
    };
    let error = if fork.has_ended(until) { fork.answer() } else { None };
    error.and_then(|[error]| i32::try_from(error).ok()).unwrap_or(libc::ETIMEDOUT)
}

/// A child process for a call that may hang. Dropping it kills the child.
pub(crate) struct Fork {
    child: libc::pid_t,
    answer: OwnedFd,
}

impl Fork {
    /// Starts the child, whose only descriptors are `stdio`; returns the errno on failure. In a
    /// process with threads, `call` must not allocate, because another thread may hold the heap's
    /// lock at the fork.
    pub(crate) fn start<const N: usize>(
        stdio: &[BorrowedFd<'_>],
        call: &dyn Fn() -> Option<[u64; N]>,
    ) -> Result<Self, i32> {
        let (answer, report) = pipe_with(PipeFlags::CLOEXEC).map_err(Errno::raw_os_error)?;
        // SAFETY: the child does what the caller promises and never returns.
        match unsafe { libc::fork() } {
            -1 => Err(errno()),
            // SAFETY: as in `spawn`; the kernel reads the bytes of a local array.
            0 => unsafe {
                if redirect(stdio)
                    && keep_only(report.as_raw_fd())
                    && let Some(answer) = call()
                {
                    libc::write(REPORT, answer.as_ptr().cast(), size_of_val(&answer));
                }
                libc::_exit(0)
            },
            child => Ok(Self { child, answer }),
        }
    }

    pub(crate) fn id(&self) -> i32 {
        self.child
    }

    /// Waits until the child has answered or ended; returns false at `until`, a time since boot.
    pub(crate) fn has_ended(&self, until: Duration) -> bool {
        super::readable(self.answer.as_fd(), until)
    }

    pub(crate) fn answer<const N: usize>(&self) -> Option<[u64; N]> {
        let mut answer = [0; N];
        let (size, to) = (size_of_val(&answer), answer.as_mut_ptr().cast());
        // SAFETY: the array is writable for `size` bytes, and any bytes are valid numbers.
        let read = unsafe { libc::read(self.answer.as_raw_fd(), to, size) };
        (usize::try_from(read) == Ok(size)).then_some(answer)
    }
}

impl Drop for Fork {
    fn drop(&mut self) {
        // SAFETY: the child is not reaped yet; a null pointer asks for no status.
        unsafe {
            libc::kill(self.child, libc::SIGKILL);
            // If the child has not ended yet, the agent reaps it with the others.
            libc::waitpid(self.child, std::ptr::null_mut(), libc::WNOHANG);
        }
    }
}

/// Starts the program in a new session; returns its process id and a non-blocking pipe. The pipe
/// reaches end of file once the program runs, or contains the errno of what failed (four bytes,
/// native order).
pub(crate) fn spawn(plan: &Plan<'_>) -> io::Result<(Pid, OwnedFd)> {
    let (failure, report) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    let arguments = pointers(plan.arguments);
    let environment = pointers(plan.environment);
    // SAFETY: the child calls only async-signal-safe functions and never returns.
    match unsafe { libc::fork() } {
        0 => {
            let mut report = report.as_raw_fd();
            // SAFETY: both arrays end in null, and their strings outlive this call.
            let errno = unsafe { become_program(plan, &arguments, &environment, &mut report) };
            let bytes = errno.to_ne_bytes();
            // SAFETY: `bytes` is readable for its length; _exit runs no destructors.
            unsafe {
                let _best_effort = libc::write(report, bytes.as_ptr().cast(), bytes.len());
                libc::_exit(127)
            }
        }
        pid => match Pid::from_raw(pid) {
            Some(child) if pid > 0 => Ok((child, failure)),
            Some(_) | None => Err(io::Error::last_os_error()),
        },
    }
}

fn pointers(strings: &[&CStr]) -> Vec<*const c_char> {
    strings.iter().map(|string| string.as_ptr()).chain([null()]).collect()
}

/// Undoes [`lower_oom_score`] and [`raise_file_limit`]; system calls only.
fn as_started() {
    if HAS_LOWERED_SCORE.load(Ordering::Relaxed) {
        set_score(b"0", false);
    }
    let limit = FILE_LIMIT.load(Ordering::Relaxed);
    if limit != 0 {
        let maximum = getrlimit(Resource::Nofile).maximum;
        let _kept = setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum });
    }
}

/// Replaces this process with the first of these programs that can be executed. Returns only if
/// none can, with the last error. Signals stay blocked: those that arrive meanwhile go to the next
/// program.
pub(crate) fn reexec<'p>(
    programs: impl Iterator<Item = &'p CStr>,
    arguments: &[&CStr],
) -> io::Error {
    let arguments = pointers(arguments);
    as_started();
    for program in programs {
        // SAFETY: a string and a null-terminated array of strings that outlive the call.
        unsafe {
            libc::execv(program.as_ptr(), arguments.as_ptr());
        }
    }
    let error = io::Error::last_os_error();
    raise_file_limit();
    lower_oom_score();
    error
}

/// Executes the program in the child; returns only on failure, with its errno. Does what requires
/// root before it changes the user.
///
/// # Safety
/// Call after fork only, with null-terminated arrays of valid strings.
unsafe fn become_program(
    plan: &Plan<'_>,
    arguments: &[*const c_char],
    environment: &[*const c_char],
    report: &mut i32,
) -> i32 {
    // SAFETY: system calls on prepared memory; the types of `Plan` guarantee what their manual
    // pages require.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut());
        // A command must not inherit ignored signals.
        for signal in 1..=SIGNALS {
            libc::signal(signal, libc::SIG_DFL);
        }
        libc::umask(UMASK);
        as_started();
        libc::setsid();
        if !redirect(&plan.stdio) || !keep_only(*report) {
            return errno();
        }
        *report = REPORT;
        // The argument 1 takes the console even from another session.
        if plan.terminal && libc::ioctl(0, libc::TIOCSCTTY, 1) < 0 {
            return errno();
        }
        if let Some((user, group)) = plan.ids
            && !become_user(user, group)
        {
            return errno();
        }
        if let Some(directory) = plan.directory
            && libc::chdir(directory.as_ptr()) < 0
        {
            return errno();
        }
        let mut failed = libc::ENOENT;
        let mut buffer = [0; MAX_PATH];
        for directory in plan.program.directories() {
            let Some(place) = plan.program.place(directory, &mut buffer) else { continue };
            // execve(2) copies all arguments before it finds the file missing; access(2) is
            // cheaper.
            if libc::access(place.as_ptr(), libc::F_OK) == 0 {
                libc::execve(place.as_ptr(), arguments.as_ptr(), environment.as_ptr());
            }
            match errno() {
                // Try the next directory.
                libc::ENOENT | libc::ENOTDIR | libc::ENAMETOOLONG => {}
                // Like execvp(3): try the next directory, but report EACCES if no other file works.
                libc::EACCES => failed = libc::EACCES,
                other => return other,
            }
        }
        failed
    }
}

/// Becomes this user and group, without other groups; returns false with `errno` on failure. System
/// calls only.
pub(crate) fn become_user(user: u32, group: u32) -> bool {
    // The C library's functions would link 1.5 kB to change all threads of a process. SAFETY: no
    // groups are read; the others take no pointers.
    unsafe {
        // Only root can drop groups; otherwise the next calls fail if the ids differ.
        (libc::geteuid() != 0 || libc::syscall(libc::SYS_setgroups, 0, null::<u32>()) == 0)
            && libc::syscall(libc::SYS_setgid, group) == 0
            && libc::syscall(libc::SYS_setuid, user) == 0
    }
}

/// Makes these the descriptors 0, 1 and 2; returns false on failure.
///
/// # Safety
/// Call after fork only.
unsafe fn redirect(stdio: &[BorrowedFd<'_>]) -> bool {
    // SAFETY: no pointers.
    stdio.iter().zip(0..).all(|(fd, wanted)| unsafe { libc::dup2(fd.as_raw_fd(), wanted) } >= 0)
}

/// Moves `kept` to [`REPORT`], closed by exec, and closes all others but 0, 1 and 2. Returns false
/// on failure.
///
/// # Safety
/// Call after fork only: the owners of the closed descriptors must never be used again.
unsafe fn keep_only(kept: i32) -> bool {
    // SAFETY: no pointers.
    unsafe {
        if kept != REPORT && libc::syscall(libc::SYS_dup3, kept, REPORT, libc::O_CLOEXEC) < 0 {
            return false;
        }
        if libc::syscall(libc::SYS_close_range, REPORT + 1, libc::c_uint::MAX, 0) != 0 {
            // Before Linux 5.9, close them one by one: the kernel assigns the lowest free number.
            for fd in REPORT + 1..i32::try_from(FILES).unwrap_or(i32::MAX) {
                libc::close(fd);
            }
        }
        true
    }
}

fn errno() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_open(fd: i32) -> bool {
        // SAFETY: no pointers.
        (unsafe { libc::fcntl(fd, libc::F_GETFD) }) >= 0
    }

    #[test]
    fn a_forked_child_has_only_its_own_descriptors() {
        let files: Vec<_> = (0..40).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        let last = files.last().unwrap().as_raw_fd();
        assert!(is_open(last) && last > REPORT + 30);
        let limit = Duration::from_secs(10);
        assert!(run_in_fork(limit, &|| (0..=REPORT).all(is_open)));
        assert!(run_in_fork(limit, &|| !(REPORT + 1..=last).any(is_open)));
        assert!(!run_in_fork(limit, &|| false));
    }

    #[test]
    fn gives_up_on_hanging_work() {
        let hangs = || {
            std::thread::sleep(Duration::from_secs(9999));
            true
        };
        assert!(!run_in_fork(Duration::from_millis(50), &hangs));
    }

    #[test]
    fn forbids_core_dumps_and_tracing_by_users() {
        // SAFETY: this takes no pointers.
        let dumpable = || unsafe { libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) };
        let kept = || {
            crate::sys::keep_secrets();
            dumpable() == 0
        };
        assert!(run_in_fork(Duration::from_secs(10), &kept) && dumpable() == 1);
    }
}
