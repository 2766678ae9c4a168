//! The reason for a failed request, with its SFTP 3 status code and text.

use std::fmt;

use mote_core::sftp::reply::{Code, Full};
use rustix::io::Errno;

/// The reason for a failed request.
#[derive(Debug)]
pub(super) enum Refusal {
    /// End of the file or of the listing.
    Eof,
    /// An unknown handle, or one of the wrong kind.
    BadHandle,
    /// OPEN of neither a regular file nor a directory.
    NotRegular,
    /// An unknown request, or one that Linux cannot do.
    Unsupported,
    /// The fields do not fit the packet's length.
    Malformed,
    /// The guest's policy does not allow it, for this reason.
    Denied(&'static str),
    /// There is no such file, or the guest's policy does not show it.
    Hidden,
    /// A file or link of another user's in a sticky directory, where the kernel protects even root from it.
    Protected,
    /// The error of a system call.
    System(Errno),
}

impl Refusal {
    /// The status code, as in OpenSSH's server, except that EINVAL (READLINK of a file) is a failure and
    /// not a bad message: the message is well-formed.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Eof => Code::Eof,
            // For what is denied, the servers' clients show a text of their own (P§4.4).
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
            Self::BadHandle => "not such a handle",
            Self::NotRegular => "not a regular file",
            Self::Unsupported => "not supported",
            Self::Malformed => "malformed message",
            Self::Denied(why) => return write!(out, "the guest's policy does not allow it: {why}"),
            Self::Hidden => "no such file, or the guest's policy does not show it",
            Self::Protected => {
                "permission denied: another user's, in a sticky directory \
                 (fs.protected_regular, fs.protected_symlinks); remove it first"
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
        // Only a path with a NUL in it has no errno.
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }
}

impl From<Full> for Refusal {
    fn from(_: Full) -> Self {
        Self::System(Errno::MSGSIZE)
    }
}
