//! All `unsafe` code: vsock addresses and context id, which rustix does not have, signals as a
//! descriptor, fork and exec, a listener that is handed on, the sandbox, the clock, the heap, and two replacements of libc functions. `unsafe` is
//! allowed nowhere else.
#![allow(unsafe_code)]

pub(crate) mod disk;
mod error;
pub(crate) mod fd;
pub(crate) mod freeze;
pub(crate) mod heap;
pub(crate) mod listener;
mod plan;
mod process;
pub(crate) mod restored;
pub(crate) mod sandbox;
mod signalled;
mod spawn;
mod start;

pub(crate) use error::SystemError;
pub(crate) use plan::{DIRECTORIES, PATH, Plan};
pub(crate) use process::{kill_group, reap};
pub(crate) use signalled::{Ended, Signalled};
pub(crate) use spawn::{
    Fork, become_user, call_in_fork, descriptors, lower_oom_score, raise_file_limit, reexec,
    run_in_fork, spawn,
};
pub(crate) use start::arguments;

use std::ffi::CStr;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::addr::{SocketAddrArg, SocketAddrLen, SocketAddrOpaque};
use rustix::process::Pid;

/// This program, even if its file has been replaced or removed.
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
        // SAFETY: sockaddr_vm is plain integers; all zeroes is a valid value.
        let mut raw: libc::sockaddr_vm = unsafe { MaybeUninit::zeroed().assume_init() };
        raw.svm_family = FAMILY;
        raw.svm_cid = self.cid;
        raw.svm_port = self.port;
        raw
    }
}

// SAFETY: the pointer given to `f` is to a whole, initialised sockaddr_vm that lives until `f` has
// returned, and the length is its size.
unsafe impl SocketAddrArg for VsockAddr {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        let raw = self.raw();
        f((&raw const raw).cast(), SIZE)
    }
}

/// Time since boot. The C library reads the clock in the vDSO without a system call; a devlxd call reads
/// it 18 times. rustix would look for the vDSO even under valgrind, which hides it.
pub(crate) fn since_boot() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` can be written to for the length of the call.
    let result = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    debug_assert_eq!(result, 0, "every Linux since 2.6.39 has this clock");
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Waits until there is something to read, or nobody is left to write it; false if this time since boot comes before.
#[inline(never)] // its size
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

/// Blocks the thread for so long.
pub(crate) fn sleep(length: Duration) {
    std::thread::sleep(length);
}

/// This process's id.
pub(crate) fn process_id() -> u32 {
    std::process::id()
}

/// Whether this program can be found to be executed again, which takes `/proc`.
#[inline(never)] // its size
pub(crate) fn is_found() -> bool {
    Path::new("/proc/self/exe").exists()
}

/// Ends the process at once. After code 1 a supervisor starts it again.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: no pointers, and nothing of this process is used afterwards.
    unsafe { libc::_exit(code) }
}

/// Gives the process the program's name: started by a descriptor's, it is called "exe".
pub(crate) fn take_name() {
    let _named = rustix::thread::set_name(c"mote-agent");
}

/// Time since 1970, by the wall clock.
pub(crate) fn since_1970() -> Duration {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Address of the peer of a vsock connection; `None` for another kind of socket.
pub(crate) fn vsock_peer(socket: &impl AsFd) -> Option<VsockAddr> {
    let mut raw = VsockAddr { cid: 0, port: 0 }.raw();
    let mut length = SIZE;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: `raw` is writable for `length` bytes, and the kernel writes at most that many.
    let result = unsafe { libc::getpeername(fd, (&raw mut raw).cast(), &raw mut length) };
    (result == 0 && raw.svm_family == FAMILY)
        .then_some(VsockAddr { cid: raw.svm_cid, port: raw.svm_port })
}

/// This guest's context id, from an open `/dev/vsock`; `u32::MAX` if no transport is loaded yet.
///
/// # Errors
/// Any error of ioctl(2).
pub(crate) fn vsock_local_cid(device: &impl AsFd) -> io::Result<u32> {
    let mut cid = 0u32;
    let fd = device.as_fd().as_raw_fd();
    // SAFETY: this ioctl writes one u32 to its argument.
    let result = unsafe { libc::ioctl(fd, GET_LOCAL_CID, &raw mut cid) };
    if result == 0 { Ok(cid) } else { Err(io::Error::last_os_error()) }
}

/// What a unix socket's peer has not read yet, as the bytes that the kernel takes for it; 0 if it does not say.
pub(crate) fn unread(socket: &impl AsFd) -> libc::c_int {
    let mut bytes = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: this ioctl, which is a socket's SIOCOUTQ too, writes one int to its argument.
    let _kept = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut bytes) };
    bytes
}

/// The descriptor of [`signals`].
pub(crate) type SignalSource = OwnedFd;

/// A descriptor for SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD: [`signals_of`].
///
/// # Errors
/// Any error of sigprocmask(2) or signalfd(2).
pub(crate) fn signals() -> io::Result<SignalSource> {
    signals_of(&[libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1, libc::SIGCHLD])
}

/// A descriptor for these signals, which are blocked. To be called before any thread starts, since
/// threads inherit the mask. SIGPIPE is ignored since the start. SIGCHLD is reset to its
/// default: if it was inherited as ignored, the kernel would reap children without a signal.
///
/// # Errors
/// Any error of sigprocmask(2) or signalfd(2).
pub(crate) fn signals_of(wanted: &[i32]) -> io::Result<OwnedFd> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set before the others read it; signalfd gives a new
    // descriptor that nobody else owns.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
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
///
/// # Errors
/// Any error of read(2).
pub(crate) fn next_signal(signals: &impl AsFd) -> io::Result<Signalled> {
    Ok(match next_number(signals)? {
        libc::SIGCHLD => Signalled::Child,
        libc::SIGHUP => Signalled::Anew,
        libc::SIGUSR1 => Signalled::Replaced,
        _ => Signalled::End,
    })
}

/// Reads one signal's number from the descriptor of [`signals_of`].
///
/// # Errors
/// Any error of read(2).
pub(crate) fn next_number(signals: &impl AsFd) -> io::Result<i32> {
    let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
    // The kernel writes whole structures only; the signal's number is the first field.
    rustix::io::read(signals, &mut info)?;
    Ok(info.first_chunk().map_or(0, |number| i32::from_ne_bytes(*number)))
}

/// Sends a signal by its number, real-time signals included. An invalid number is ignored.
pub(crate) fn kill(process: Pid, signal: i32) {
    const LAST: i32 = 64;
    if (1..=LAST).contains(&signal) {
        // SAFETY: kill takes no pointers. It fails if the process has ended, which is no error here.
        let _gone = unsafe { libc::kill(process.as_raw_nonzero().get(), signal) };
    }
}

/// Sends a signal to all processes but this one and process 1.
pub(crate) fn kill_all(signal: i32) {
    // SAFETY: kill takes no pointers. It fails if there is no other process, which is no error here.
    let _alone = unsafe { libc::kill(-1, signal) };
}

/// Replaces musl's function, which links 10 KB of printf to name threads other than the caller; std
/// only names the caller.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
extern "C" fn pthread_setname_np(_: libc::pthread_t, name: *const libc::c_char) -> libc::c_int {
    // SAFETY: std gives a C string that lives until this returns.
    let name = unsafe { CStr::from_ptr(name) };
    rustix::thread::set_name(name).map_or_else(Errno::raw_os_error, |()| 0)
}

/// Replaces musl's function, which finds nothing in a static program either and links printf for its error
/// text. std calls it to look for functions of newer C libraries.
#[cfg(target_env = "musl")]
#[unsafe(no_mangle)]
extern "C" fn dlsym(_: *mut libc::c_void, _: *const libc::c_char) -> *mut libc::c_void {
    std::ptr::null_mut()
}

/// Keeps the process's memory, with the private key in it, from core dumps and from tracers without root's rights.
/// exec(2) ends that for commands.
pub(crate) fn keep_secrets() {
    // SAFETY: this takes no pointers.
    unsafe {
        libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0);
    }
}

/// Gives this process a mount namespace of its own. It must have no other threads.
///
/// # Errors
/// Any error of unshare(2).
pub(crate) fn own_mounts() -> io::Result<()> {
    // SAFETY: unshare takes no pointers.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Closes a descriptor and returns the error, which `drop` would discard.
///
/// # Errors
/// Any error of close(2); the descriptor is closed all the same.
pub(crate) fn close(fd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is taken out of its owner, so nobody uses or closes it again.
    let result = unsafe { libc::close(fd.into_raw_fd()) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
