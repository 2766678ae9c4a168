//! `mote-agent sftp-server [-d DIR]`: SFTP 3 on standard input and output, as OpenSSH's program of
//! that name (P§4.4). The agent starts one for each session.
//!
//! A process of its own, so that it may block: a dead mount hangs one session and not the agent.
//! It can be tried with `sftp -D "mote-agent sftp-server"`. It ends with 0 when its input ends, with
//! 1 when it breaks or a frame cannot be told from the next. One request at a time, replies in the
//! requests' order, constant memory whatever the client does.
//!
//! Decisions that the draft leaves open:
//! - Only regular files are opened. On others offsets mean nothing, and to open one can act (a
//!   watchdog starts, a tape rewinds) or hang.
//! - New files are 0644 and new directories 0755 unless the client asks for something else, and the
//!   umask is 022 whatever the agent's is, as with both upstreams.
//! - Symbolic links are followed where OpenSSH follows them: not by LSTAT, READLINK, REMOVE, RENAME
//!   and lsetstat.
//! - RENAME does not overwrite, posix-rename does.

mod attributes;
mod directories;
mod files;
mod handles;
mod paths;
mod refusal;
mod session;

use std::ffi::CString;
use std::path::Path;
use std::process::ExitCode;

use mote_agent::sftp::reply::{self, Code, Full};
use mote_agent::sftp::request::{Handle, Wish};
use rustix::fs::{Mode, Stat};
use rustix::io::Errno;

use crate::log;
use crate::sftp::attributes::Target;
use crate::sftp::handles::{Handles, Open};
use crate::sftp::refusal::Refusal;

/// Serves one session until its input ends.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(directory: Option<&Path>) -> ExitCode {
    // The agent's own mask would make every file private.
    rustix::process::umask(Mode::from_raw_mode(0o022));
    let entered = directory.map_or(Ok(()), |directory| {
        std::env::set_current_dir(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))
    });
    match entered.and_then(|()| session::serve()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log::error(format_args!("sftp: {why}"));
            ExitCode::FAILURE
        }
    }
}

/// What a reply is made of.
enum Answer {
    Done,
    Handle(Handle),
    Attrs(Stat),
    Path(Vec<u8>),
    Numbers([u64; 11]),
    Limits,
    /// It is written already, and this long.
    Written(usize),
}

impl Answer {
    fn write(self, id: u32, out: &mut [u8]) -> Result<usize, Full> {
        match self {
            Self::Done => reply::status(out, id, Code::Ok, &""),
            Self::Handle(handle) => reply::handle(out, id, handle),
            Self::Attrs(stat) => reply::attrs(out, id, &attributes::of(&stat)),
            Self::Path(path) => reply::path(out, id, &path),
            Self::Numbers(numbers) => reply::numbers(out, id, &numbers),
            Self::Limits => reply::numbers(out, id, &reply::LIMITS),
            Self::Written(length) => Ok(length),
        }
    }
}

/// Does what is asked for; what is long is written at once.
fn fulfil(
    handles: &mut Handles,
    id: u32,
    wish: &Wish<'_>,
    out: &mut [u8],
) -> Result<Answer, Refusal> {
    match *wish {
        Wish::Open { path, flags, attrs } => {
            let place = handles.free()?;
            let file = files::open(&c(path)?, flags, attrs.permissions)?;
            return Ok(Answer::Handle(place.fill(Open::File(file))));
        }
        Wish::Opendir { path } => {
            let place = handles.free()?;
            let directory = directories::open(&c(path)?)?;
            return Ok(Answer::Handle(place.fill(Open::Directory(directory))));
        }
        Wish::Read { handle, offset, length } => {
            let file = handles.file(handle)?;
            let length = reply::data(out, id, length, |room| files::read(file, room, offset))??;
            return Ok(Answer::Written(length));
        }
        Wish::Readdir { handle } => {
            let length = directories::list(handles.directory(handle)?, id, out)?;
            return Ok(Answer::Written(length));
        }
        Wish::Realpath { path } => return Ok(Answer::Path(paths::real(path)?)),
        Wish::Readlink { path } => {
            let target = rustix::fs::readlink(&*c(path)?, Vec::new())?;
            return Ok(Answer::Path(target.into_bytes()));
        }
        Wish::Stat { path } => return Ok(Answer::Attrs(rustix::fs::stat(&*c(path)?)?)),
        Wish::Lstat { path } => return Ok(Answer::Attrs(rustix::fs::lstat(&*c(path)?)?)),
        Wish::Fstat { handle } => {
            return Ok(Answer::Attrs(rustix::fs::fstat(handles.any(handle)?)?));
        }
        Wish::Statvfs { path } => return Ok(paths::space(&rustix::fs::statvfs(&*c(path)?)?)),
        Wish::Fstatvfs { handle } => {
            return Ok(paths::space(&rustix::fs::fstatvfs(handles.any(handle)?)?));
        }
        Wish::Limits => return Ok(Answer::Limits),
        Wish::Close { handle } => handles.close(handle)?,
        Wish::Write { handle, offset, data } => files::write(handles.file(handle)?, data, offset)?,
        Wish::Setstat { path, attrs } => attributes::set(Target::Path(&c(path)?), &attrs)?,
        Wish::Lsetstat { path, attrs } => attributes::set(Target::Link(&c(path)?), &attrs)?,
        Wish::Fsetstat { handle, attrs } => {
            attributes::set(Target::Open(handles.any(handle)?), &attrs)?;
        }
        Wish::Fsync { handle } => rustix::fs::fsync(handles.file(handle)?)?,
        Wish::Remove { path } => rustix::fs::unlink(&*c(path)?)?,
        Wish::Rmdir { path } => rustix::fs::rmdir(&*c(path)?)?,
        Wish::Mkdir { path, attrs } => directories::make(&c(path)?, attrs.permissions)?,
        Wish::Rename { from, to } => paths::rename(&c(from)?, &c(to)?)?,
        Wish::PosixRename { from, to } => rustix::fs::rename(&*c(from)?, &*c(to)?)?,
        Wish::Hardlink { from, to } => rustix::fs::link(&*c(from)?, &*c(to)?)?,
        Wish::Symlink { target, link } => rustix::fs::symlink(&*c(target)?, &*c(link)?)?,
        Wish::Unknown => return Err(Refusal::Unsupported),
    }
    Ok(Answer::Done)
}

/// A path as the system wants it. One with a NUL in it leads nowhere.
fn c(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| Errno::INVAL)
}
