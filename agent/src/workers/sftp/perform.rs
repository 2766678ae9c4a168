//! Performs one request.

use std::ffi::CString;

use mote_core::sftp::handles::Handles;
use mote_core::sftp::reply::{self, Code, Full};
use mote_core::sftp::request::{Handle, Request};
use rustix::fs::Stat;
use rustix::io::Errno;

use crate::workers::sftp::attributes::{self, Target};
use crate::workers::sftp::handles::{self, Open};
use crate::workers::sftp::refusal::Refusal;
use crate::workers::sftp::rules::Rules;
use crate::workers::sftp::{directories, files, paths};

/// Performs a request. Data and listings, which may be long, are written directly into `out`.
pub(super) fn perform(
    rules: &Rules<'_>,
    handles: &mut Handles<Open>,
    id: u32,
    request: &Request<'_>,
    out: &mut [u8],
) -> Result<Answer, Refusal> {
    match *request {
        Request::Open { path, flags, attrs } => {
            let open = || Ok(Open::File(files::open(&c(path)?, flags, attrs.permissions)?));
            return Ok(Answer::Handle(handles::add(handles, open)?));
        }
        Request::Opendir { path } => {
            let open = || Ok(Open::Directory(directories::open(&c(path)?)?));
            return Ok(Answer::Handle(handles::add(handles, open)?));
        }
        Request::Read { handle, offset, length } => {
            let file = handles::file(handles, handle)?;
            let length = reply::data(out, id, length, |room| files::read(file, room, offset))??;
            return Ok(Answer::Written(length));
        }
        Request::Readdir { handle } => {
            let length = directories::list(handles::directory(handles, handle)?, id, out)?;
            return Ok(Answer::Written(length));
        }
        Request::Realpath { path } => return Ok(Answer::Path(paths::real(path)?)),
        Request::Readlink { path } => {
            let target = rustix::fs::readlink(&*c(path)?, Vec::new())?;
            return Ok(Answer::Path(target.into_bytes()));
        }
        Request::Stat { path } => return Ok(Answer::Attrs(rustix::fs::stat(&*c(path)?)?)),
        Request::Lstat { path } => return Ok(Answer::Attrs(rustix::fs::lstat(&*c(path)?)?)),
        Request::Fstat { handle } => {
            return Ok(Answer::Attrs(rustix::fs::fstat(handles::any(handles, handle)?)?));
        }
        Request::Statvfs { path } => return Ok(paths::space(&rustix::fs::statvfs(&*c(path)?)?)),
        Request::Fstatvfs { handle } => {
            return Ok(paths::space(&rustix::fs::fstatvfs(handles::any(handles, handle)?)?));
        }
        Request::Limits => return Ok(Answer::Limits(handles.most())),
        Request::Close { handle } => handles::close(handles, handle)?,
        Request::Write { handle, offset, data } => {
            files::write(handles::file(handles, handle)?, data, offset)?
        }
        Request::Setstat { path, attrs } => rules.set(Target::Path(&c(path)?), &attrs)?,
        Request::Lsetstat { path, attrs } => rules.set(Target::Link(&c(path)?), &attrs)?,
        Request::Fsetstat { handle, attrs } => {
            rules.set(Target::Open(handles::any(handles, handle)?), &attrs)?;
        }
        Request::Fsync { handle } => rustix::fs::fsync(handles::file(handles, handle)?)?,
        Request::Remove { path } => rustix::fs::unlink(&*c(path)?)?,
        Request::Rmdir { path } => rustix::fs::rmdir(&*c(path)?)?,
        Request::Mkdir { path, attrs } => directories::make(&c(path)?, attrs.permissions)?,
        Request::Rename { from, to } => paths::rename(&c(from)?, &c(to)?)?,
        Request::PosixRename { from, to } => rustix::fs::rename(&*c(from)?, &*c(to)?)?,
        Request::Hardlink { from, to } => rustix::fs::link(&*c(from)?, &*c(to)?)?,
        Request::Symlink { target, link } => rustix::fs::symlink(&*c(target)?, &*c(link)?)?,
        Request::Unknown => return Err(Refusal::Unsupported),
    }
    Ok(Answer::Done)
}

fn c(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| Errno::INVAL)
}

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
