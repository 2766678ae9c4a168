//! Results of successful requests.

use mote_core::sftp::reply::{self, Code, Full};
use mote_core::sftp::request::Handle;
use rustix::fs::Stat;

use crate::workers::sftp::attributes;

pub(super) enum Answer {
    Done,
    Handle(Handle),
    Attrs(Stat),
    Path(Vec<u8>),
    Numbers([u64; 11]),
    Limits(usize),
    /// The reply is already in the buffer, with this length in bytes.
    Written(usize),
}

impl Answer {
    /// Writes the reply; returns its length in bytes.
    pub(super) fn write(self, id: u32, out: &mut [u8]) -> Result<usize, Full> {
        match self {
            Self::Done => reply::status(out, id, Code::Ok, &""),
            Self::Handle(handle) => reply::handle(out, id, handle),
            Self::Attrs(stat) => reply::attrs(out, id, &attributes::of(&stat)),
            Self::Path(path) => reply::path(out, id, &path),
            Self::Numbers(numbers) => reply::numbers(out, id, &numbers),
            Self::Limits(handles) => reply::numbers(out, id, &reply::limits(handles)),
            Self::Written(length) => Ok(length),
        }
    }
}
