//! The program's entry point. It replaces Rust's runtime, whose 6 kB and signal stack serve only
//! threads and a message about stack overflow, and does the runtime's other work.

use std::ffi::{CStr, OsString, c_char};
use std::os::unix::ffi::OsStringExt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The arguments, an array of strings that ends with null; null before [`main`].
static ARGUMENTS: AtomicPtr<*const c_char> = AtomicPtr::new(null_mut());

/// Called by the C library.
#[cfg(not(test))]
#[unsafe(no_mangle)]
extern "C" fn main(_: libc::c_int, given: *mut *const c_char) -> libc::c_int {
    ARGUMENTS.store(given, Ordering::Relaxed);
    for fd in 0..=2 {
        // A closed descriptor's number would be reused for any file. An initramfs may lack
        // `/dev/null`, so this uses an epoll, which always exists and cannot be read or written.
        // SAFETY: system calls on constants. A new descriptor has the lowest free number.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) < 0
                && libc::open(c"/dev/null".as_ptr(), libc::O_RDWR) < 0
            {
                libc::epoll_create1(0);
            }
        }
    }
    // Ignore these signals: a write to a pipe without a reader or beyond RLIMIT_FSIZE then fails
    // instead. Do not inherit an ignored SIGCHLD: the kernel would reap children without their exit
    // code. SAFETY: no code runs on these signals.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
    crate::start(arguments()).into()
}

/// Returns the program's arguments, its name first.
pub(crate) fn arguments() -> impl Iterator<Item = OsString> {
    let first = ARGUMENTS.load(Ordering::Relaxed);
    // Fuse the iterator, because the environment follows the null.
    (0..)
        .map_while(move |at| {
            // SAFETY: the array ends with null, and nothing after it is read; its strings live as
            // long as the process.
            unsafe {
                let text =
                    if first.is_null() { null_mut() } else { first.add(at).read().cast_mut() };
                (!text.is_null())
                    .then(|| OsString::from_vec(CStr::from_ptr(text).to_bytes().to_vec()))
            }
        })
        .fuse()
}
