//! Why a request failed: the code of version 3 for it, and a text.

use std::fmt;

use mote_agent::sftp::reply::{Code, Full};
use rustix::io::Errno;

/// Why a request failed.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Nothing more to read, or to list.
    Eof,
    /// No handle, or not one for this.
    BadHandle,
    /// To be opened, but not a regular file.
    NotRegular,
    /// Not in our version.
    Unsupported,
    /// Fields that do not add up.
    Malformed,
    /// What the system said.
    System(Errno),
}

impl Refusal {
    /// As OpenSSH's server, but a wrong argument (READLINK of a file) is a failure: the message that
    /// carried it was fine.
    pub(super) fn code(&self) -> Code {
        match self {
            Self::Eof => Code::Eof,
            Self::BadHandle | Self::NotRegular => Code::Failure,
            Self::Unsupported => Code::OpUnsupported,
            Self::Malformed => Code::BadMessage,
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
        // Without a number: a path with a NUL in it.
        Self::System(Errno::from_io_error(&error).unwrap_or(Errno::INVAL))
    }
}

impl From<Full> for Refusal {
    fn from(_: Full) -> Self {
        Self::System(Errno::MSGSIZE)
    }
}
