//! The program's start, instead of Rust's runtime, which links 6 kB and a signal stack for threads and for words about a stack
//! that overflows. What that does besides is done here.

use std::ffi::{CStr, OsString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The arguments, an array of strings that ends in null; null before [`main`].
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());

/// What the C library calls.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_: libc::c_int, given: *mut *const c_char) -> libc::c_int {
    ARGUMENTS.store(given, Ordering::Relaxed);
    for fd in 0..=2 {
        // A closed one would become any file that is opened later. In an initramfs there may be no `/dev/null`: an epoll is
        // at hand everywhere, and cannot be read or written.
        // SAFETY: system calls on constants. A new descriptor has the lowest free number.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0
            {
                libc::epoll_create1(0);
            }
        }
    }
    // SAFETY: no code runs on this signal: a write to a pipe that nobody reads fails.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
    }
    crate::start(arguments()).into()
}

/// The program's arguments, its name first.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    let first = ARGUMENTS.load(Ordering::Relaxed);
    // Fused: the environment follows the null.
    (0..)
        .map_while(move |at| {
            // SAFETY: the array ends in null, after which nothing is read; its strings live as long as the process.
            unsafe {
                let text =
                    if first.is_null() { null_mut() } else { first.add(at).read().cast_mut() };
                (!text.is_null())
                    .then(|| OsString::from_vec(CStr::from_ptr(text).to_bytes().to_vec()))
            }
        })
        .fuse()
}
