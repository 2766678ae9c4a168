//! All `unsafe` code: vsock addresses, signals, fork and exec, the handed-over listener, the
//! sandbox, clocks, the heap, and replacements of two libc functions. No other module may use
//! `unsafe`.
#![allow(unsafe_code)]

pub(crate) mod disk;
pub(crate) mod fd;
pub(crate) mod file;
pub(crate) mod freeze;
pub(crate) mod heap;
pub(crate) mod listener;
mod plan;
pub(crate) mod restored;
pub(crate) mod sandbox;
mod spawn;
mod start;

pub(crate) use plan::{DIRECTORIES, Ended, PATH, Plan, Signalled};
pub(crate) use spawn::{
    Fork, become_user, call_in_fork, descriptors, lower_oom_score, raise_file_limit, reexec,
    run_in_fork, spawn,
};
pub(crate) use start::arguments;

use std::ffi::{CStr, OsString};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};

/// This program, even if its file was replaced or removed.
pub(crate) const SELF: &CStr = c"/proc/self/exe";
/// `IOCTL_VM_SOCKETS_GET_LOCAL_CID`, `_IO(7, 0xb9)` (vsock(7)).
const GET_LOCAL_CID: libc::Ioctl = 0x7b9;

#[expect(clippy::cast_possible_truncation, reason = "AF_VSOCK is 40")]
const FAMILY: libc::sa_family_t = libc::AF_VSOCK as libc::sa_family_t;
#[expect(clippy::cast_possible_truncation, reason = "16 bytes")]
const SIZE: SocketAddrLen = size_of::<libc::sockaddr_vm>() as SocketAddrLen;

/// An AF_VSOCK address: context id and port (`struct sockaddr_vm`, vsock(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VsockAddr {
    /// Context id; 2 is the host, `u32::MAX` means any.
    pub(crate) cid: u32,
    /// Port number; `u32::MAX` means any.
    pub(crate) port: u32,
}

impl VsockAddr {
    fn raw(self) -> libc::sockaddr_vm {
        // SAFETY: sockaddr_vm consists of integers; all zeroes is a valid value.
        let mut raw: libc::sockaddr_vm = unsafe { MaybeUninit::zeroed().assume_init() };
        raw.svm_family = FAMILY;
        raw.svm_cid = self.cid;
        raw.svm_port = self.port;
        raw
    }
}

// SAFETY: the pointer is to an initialised sockaddr_vm that outlives the call of `f`, and the
// length is its size.
unsafe impl SocketAddrArg for VsockAddr {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let raw = self.raw();
        f((&raw const raw).cast(), SIZE)
    }
}

pub(crate) fn since_boot() -> Duration {
    clock(libc::CLOCK_BOOTTIME)
}

pub(crate) fn since_1970() -> Duration {
    clock(libc::CLOCK_REALTIME)
}

/// Returns a clock's time. The C library reads it in the vDSO, without a system call; a devlxd call
/// reads it 18 times. rustix would search for the vDSO even under valgrind, which hides it.
fn clock(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable.
    let result = unsafe { libc::clock_gettime(clock, &raw mut time) };
    debug_assert_eq!(result, 0, "every Linux since 2.6.39 has these clocks");
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Waits for input or end of file; returns false at `until`, a time since boot.
pub(crate) fn readable(from: BorrowedFd<'_>, until: Duration) -> bool {
    loop {
        let left = until.saturating_sub(since_boot());
        let left = Timespec::try_from(left).unwrap_or_default();
        match poll(&mut [PollFd::from_borrowed_fd(from, PollFlags::IN)], Some(&left)) {
            Err(Errno::INTR) => {}
            found => return found == Ok(1),
        }
    }
}

pub(crate) fn sleep(length: Duration) {
    std::thread::sleep(length);
}

pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// Returns whether this program can re-exec itself, which requires `/proc`.
pub(crate) fn is_found() -> bool {
    file::exists("/proc/self/exe".as_ref())
}

/// Ends the process immediately. A supervisor restarts it after code 1.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: no pointers; nothing of this process is used afterwards.
    unsafe { libc::_exit(code) }
}

/// Returns an environment variable. Nothing changes the environment, so std's lock (700 bytes) is
/// not needed.
pub(crate) fn variable(name: &CStr) -> Option<OsString> {
    // SAFETY: `name` is a C string, and so is the value unless it is null.
    unsafe {
        let value = libc::getenv(name.as_ptr());
        (!value.is_null()).then(|| OsString::from_vec(CStr::from_ptr(value).to_bytes().to_vec()))
    }
}

/// Sets the process's name: one that is started through a descriptor is called "exe".
pub(crate) fn take_name() {
    let _named = rustix::thread::set_name(c"mote-agent");
}

/// Returns the peer's address; `None` unless the socket is a vsock connection.
pub(crate) fn vsock_peer(socket: &impl AsFd) -> Option<VsockAddr> {
    let mut raw = VsockAddr { cid: 0, port: 0 }.raw();
    let mut length = SIZE;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `raw` is writable for `length` bytes, and the kernel writes at most that many.
    let result = unsafe { libc::getpeername(fd, (&raw mut raw).cast(), &raw mut length) };
    (result == 0 && raw.svm_family == FAMILY)
        .then_some(VsockAddr { cid: raw.svm_cid, port: raw.svm_port })
}

/// Returns this guest's context id, from `/dev/vsock`; `u32::MAX` if no transport is loaded.
pub(crate) fn vsock_local_cid(device: &impl AsFd) -> io::Result<u32> {
    let mut cid = 0u32;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: this ioctl writes one u32 to its argument.
    done(unsafe { libc::ioctl(fd, GET_LOCAL_CID, &raw mut cid) })?;
    Ok(cid)
}

/// Returns the bytes that a unix socket's peer has not read yet, or 0 if the kernel does not count
/// them.
pub(crate) fn unread(socket: &impl AsFd) -> libc::c_int {
    let mut bytes = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: this ioctl, also a socket's SIOCOUTQ, writes one int to its argument.
    let _kept = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// Makes backspace on a terminal erase a whole UTF-8 character. rustix's functions would link 600
/// bytes for the terminal's speed. Errors: any error of tcgetattr(3) or tcsetattr(3).
pub(crate) fn erase_whole_characters(terminal: &impl AsFd) -> io::Result<()> {
    let fd = terminal.as_fd().as_raw_fd();
    let mut attributes = MaybeUninit::<libc::termios>::zeroed();
    // SAFETY: the attributes consist of integers, and are readable and writable.
    unsafe {
        done(libc::tcgetattr(fd, attributes.as_mut_ptr()))?;
        attributes.assume_init_mut().c_iflag |= libc::IUTF8;
        done(libc::tcsetattr(fd, libc::TCSANOW, attributes.as_ptr()))
    }
}

pub(crate) type SignalSource = OwnedFd;

/// Returns a descriptor for SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD; see [`signals_of`].
pub(crate) fn signals() -> io::Result<SignalSource> {
    signals_of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD])
}

/// Blocks these signals and returns a descriptor for them. Call it before any thread starts, since
/// threads inherit the mask.
pub(crate) fn signals_of(wanted: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before it is read; signalfd returns a new descriptor,
    // which has no other owner.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in wanted {
            libc::sigaddset(set.as_mut_ptr(), *signal);
        }
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_NONBLOCK | libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Reads one signal from the descriptor of [`signals`].
pub(crate) fn next_signal(signals: &impl AsFd) -> io::Result<Signalled> {
    Ok(match next_number(signals)? {
        libc::SIGCHLD => Signalled::Child,
        libc::SIGHUP => Signalled::Reexec,
        libc::SIGUSR1 => Signalled::Replaced,
        _ => Signalled::End,
    })
}

/// Reads one signal's number from the descriptor of [`signals_of`].
pub(crate) fn next_number(signals: &impl AsFd) -> io::Result<i32> {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    // The kernel writes only whole structures, which begin with the signal's number.
    rustix::io::read(signals, &mut info)?;
    Ok(info.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number)))
}

/// Sends a signal by its number, including real-time signals. An invalid number is ignored.
pub(crate) fn kill(process: Pid, signal: i32) {
    const LAST: i32 = 64;
    if (1..=LAST).contains(&signal) {
        // SAFETY: no pointers. It fails if the process has ended, which is harmless.
        let _gone = unsafe { libc::kill(process.as_raw_nonzero().get(), signal) };
    }
}

/// Sends a signal to all processes except this one and process 1.
pub(crate) fn kill_all(signal: i32) {
    // SAFETY: no pointers. It fails if there is no other process, which is harmless.
    let _alone = unsafe { libc::kill(-1, signal) };
}

/// Replaces musl's function, which links 10 KB of printf to name threads other than the caller. std
/// only names the caller.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
extern "C" fn pthread_setname_np(_: libc::pthread_t, name: *const libc::c_char) -> libc::c_int {
    // SAFETY: std passes a C string that outlives the call.
    let name = unsafe { CStr::from_ptr(name) };
    rustix::thread::set_name(name).map_or_else(Errno::raw_os_error, |()| 0)
}

/// Replaces musl's function, which finds nothing in a static program and links printf for its error
/// text. std calls it to look for functions of newer C libraries.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
extern "C" fn dlsym(_: *mut libc::c_void, _: *const libc::c_char) -> *mut libc::c_void {
    std::ptr::null_mut()
}

/// Protects the process's memory, including the private key, from core dumps and from tracers that
/// are not root. exec(2) ends that for commands.
pub(crate) fn keep_secrets() {
    // SAFETY: no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Moves this process into its own mount namespace. It must have a single thread.
pub(crate) fn own_mounts() -> io::Result<()> {
    // SAFETY: no pointers.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })
}

/// Closes a descriptor and returns the error, which `drop` would discard.
/// Errors: any error of close(2); the descriptor is closed anyway.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is taken from its owner, so nothing uses or closes it again.
    done(unsafe { libc::close(fd.into_raw_fd()) })
}

/// Returns the outcome of a call that returns 0 on success and sets `errno` otherwise.
fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(crate) fn reap() -> Option<(Pid, Ended)> {
    while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => return Some((pid, Ended::Code(code))),
            (None, Some(signal)) => return Some((pid, Ended::Signal(signal))),
            // Stopped or continued, which the call did not request.
            (None, None) => {}
        }
    }
    None
}

pub(crate) fn kill_group(child: Pid) {
    // Right after fork(2) the child has no group of its own yet.
    if kill_process_group(child, Signal::KILL).is_err() {
        kill(child, Signal::KILL.as_raw());
    }
}
