//! Describes a child process to start.

use std::ffi::CStr;

use mote_core::hostapi::exec::Program;

use crate::sys::fd::BorrowedFd;

/// Search path for programs that the guest's files or system name; the last part is NixOS'.
pub(crate) const PATH: &CStr =
    c"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/run/current-system/sw/bin";
/// The directories in [`PATH`].
pub(crate) const DIRECTORIES: &str = match PATH.to_str() {
    Ok(path) => path.split_at("PATH=".len()).1,
    Err(_) => "",
};

pub(crate) struct Plan<'p> {
    /// The program's name and search path; the first executable file is used.
    pub(crate) program: Program<'p>,
    pub(crate) arguments: &'p [&'p CStr],
    /// The whole environment, as `NAME=value`.
    pub(crate) environment: &'p [&'p CStr],
    /// Descriptors 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'p>; 3],
    /// Working directory, entered with the rights of `ids`.
    pub(crate) directory: Option<&'p CStr>,
    /// User and group id; supplementary groups are dropped.
    pub(crate) ids: Option<(u32, u32)>,
    /// Whether descriptor 0 becomes the controlling terminal.
    pub(crate) terminal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signalled {
    /// SIGCHLD.
    Child,
    /// SIGHUP: re-execute, so that an upgraded program file takes effect.
    Reexec,
    /// SIGUSR1: another agent takes over from this one, which an initramfs started.
    Replaced,
    /// SIGTERM or SIGINT.
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    /// Number of the signal that killed the child.
    Signal(i32),
}
