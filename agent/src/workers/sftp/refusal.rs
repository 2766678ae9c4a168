//! Failed requests: SFTP 3 status code and text.

use std::fmt;

use mote_core::sftp::reply::{Code, Full};
use rustix::io::Errno;

pub(super) enum Refusal {
    /// End of the file or of the listing.
    Eof,
    /// An unknown handle, or one of another kind.
    BadHandle,
    /// OPEN of something other than a regular file or directory.
    NotRegular,
    /// An unknown request, or one that Linux does not support.
    Unsupported,
    /// The fields exceed the packet's length.
    Malformed,
    /// The guest's policy denies it, for this reason.
    Denied(&'static str),
    /// There is no such file, or the guest's policy hides it.
    Hidden,
    /// Another user's file or link in a sticky directory, which the kernel protects even from root.
    Protected,
    /// The error of a system call.
    System(Errno),
}

impl Refusal {
    /// Returns the status code, as in OpenSSH's server, except that EINVAL (READLINK of a file) is
    /// a failure and not a bad message.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Eof => Code::Eof,
            // The clients replace the text of PermissionDenied with their own (P§4.4).
            Self::BadHandle | Self::NotRegular | Self::Protected => Code::Failure,
            Self::Unsupported => Code::OpUnsupported,
            Self::Malformed => Code::BadMessage,
            Self::Denied(_) => Code::PermissionDenied,
            Self::Hidden => Code::NoSuchFile,
            Self::System(errno) => match *errno {
                Errno::NOENT | Errno::NOTDIR | Errno::LOOP => Code::NoSuchFile,
                Errno::PERM | Errno::ACCESS => Code::PermissionDenied,
                Errno::NOSYS | Errno::OPNOTSUPP => Code::OpUnsupported,
                _ => Code::Failure,
            },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Eof => "end of file",
            Self::BadHandle => "no such handle",
            Self::NotRegular => "not a regular file",
            Self::Unsupported => "not supported",
            Self::Malformed => "malformed message",
            Self::Denied(why) => return write!(out, "the guest's policy does not allow it: {why}"),
            Self::Hidden => "no such file, or the guest's policy hides it",
            Self::Protected => {
                "permission denied: another user's file in a sticky directory \
                 (fs.protected_*); remove it first"
            }
            Self::System(errno) => return errno.fmt(out),
        })
    }
}

impl From<Errno> for Refusal {
    fn from(errno: Errno) -> Self {
        Self::System(errno)
    }
}

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        // Only the error for a path that contains a NUL has no errno.
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }
}

impl From<Full> for Refusal {
    fn from(_: Full) -> Self {
        Self::System(Errno::MSGSIZE)
    }
}
