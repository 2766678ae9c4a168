//! Performs one request, with the session's open files and directories.

use std::ffi::{CString, OsStr};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use mote_core::sftp::HANDLES;
use mote_core::sftp::handles::Handles;
use mote_core::sftp::reply::{self, Code, Full};
use mote_core::sftp::request::{Handle, Request};
use rustix::fs::{AtFlags, FileType, OFlags, Stat, StatVfs, StatVfsMountFlags};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::sys::{self, file};
use crate::workers::sftp::attributes::{self, Target};
use crate::workers::sftp::files;
use crate::workers::sftp::refusal::Refusal;
use crate::workers::sftp::rules::Rules;

/// Performs a request. Data and listings, which may be long, are written directly into `out`.
pub(super) fn perform(
    rules: &Rules<'_>,
    handles: &mut Handles<Open>,
    id: u32,
    request: &Request<'_>,
    out: &mut [u8],
) -> Result<Answer, Refusal> {
    match *request {
        Request::Open { .. } | Request::Opendir { .. } if !handles.has_room() => {
            return Err(Errno::MFILE.into());
        }
        Request::Open { path, flags, attrs } => {
            let file = files::open(&c(path)?, flags, attrs.permissions)?;
            return add_handle(handles, Open { file, is_listed: false });
        }
        Request::Opendir { path } => {
            // O_DIRECTORY refuses a FIFO or device before opening it, so O_NONBLOCK is not needed.
            let file = file::open(at(path), OFlags::DIRECTORY)?.into();
            return add_handle(handles, Open { file, is_listed: true });
        }
        Request::Read { handle, offset, length } => {
            let file = file_of(handles, handle)?;
            let length = reply::data(out, id, length, |room| files::read(file, room, offset))??;
            return Ok(Answer::Written(length));
        }
        Request::Readdir { handle } => {
            let length = files::list(directory_of(handles, handle)?, id, out)?;
            return Ok(Answer::Written(length));
        }
        Request::Realpath { path } => return Ok(Answer::Path(real_path(path)?)),
        Request::Readlink { path } => {
            return Ok(Answer::Path(file::readlink(at(path))?.into_os_string().into_vec()));
        }
        Request::Stat { path } => return Ok(Answer::Attrs(file::stat(at(path))?)),
        Request::Lstat { path } => return Ok(Answer::Attrs(file::lstat(at(path))?)),
        Request::Fstat { handle } => {
            return Ok(Answer::Attrs(rustix::fs::fstat(file_or_directory_of(handles, handle)?)?));
        }
        Request::Statvfs { path } => return Ok(space(&rustix::fs::statvfs(&*c(path)?)?)),
        Request::Fstatvfs { handle } => {
            return Ok(space(&rustix::fs::fstatvfs(file_or_directory_of(handles, handle)?)?));
        }
        Request::Limits => return Ok(Answer::Limits(handles.most())),
        Request::Close { handle } => close_handle(handles, handle)?,
        Request::Write { handle, offset, data } => {
            files::write(file_of(handles, handle)?, data, offset)?
        }
        Request::Setstat { path, attrs } => {
            rules.set(Target::Path(&c(path)?, AtFlags::empty()), &attrs)?;
        }
        Request::Lsetstat { path, attrs } => {
            rules.set(Target::Path(&c(path)?, AtFlags::SYMLINK_NOFOLLOW), &attrs)?;
        }
        Request::Fsetstat { handle, attrs } => {
            rules.set(Target::Open(file_or_directory_of(handles, handle)?), &attrs)?;
        }
        Request::Fsync { handle } => rustix::fs::fsync(file_of(handles, handle)?)?,
        Request::Remove { path } => file::unlink(at(path))?,
        Request::Rmdir { path } => file::rmdir(at(path))?,
        Request::Mkdir { path, attrs } => files::make_directory(&c(path)?, attrs.permissions)?,
        Request::Rename { from, to } => rename(at(from), at(to))?,
        Request::PosixRename { from, to } => file::rename(at(from), at(to))?,
        Request::Hardlink { from, to } => rustix::fs::link(&*c(from)?, &*c(to)?)?,
        Request::Symlink { target, link } => file::symlink(at(target), at(link))?,
        Request::Unknown => return Err(Refusal::Unsupported),
    }
    Ok(Answer::Done)
}

fn c(path: &[u8]) -> Result<CString, Errno> {
    CString::new(path).map_err(|_| Errno::INVAL)
}

fn at(path: &[u8]) -> &Path {
    OsStr::from_bytes(path).as_ref()
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

/// Returns the absolute path without symbolic links, `.` and `..`. Keeps trailing names that do not
/// exist: a client asks for the path of a file that it will create. (OpenSSH allows one missing
/// name, the Go agents any number.)
fn real_path(path: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut existing = path;
    loop {
        let base = if existing.is_empty() { b"." } else { existing };
        match std::fs::canonicalize(OsStr::from_bytes(base)) {
            Ok(real) => {
                let mut real = real.into_os_string().into_vec();
                let missing = path.get(existing.len()..).unwrap_or_default();
                if !missing.is_empty() && real != b"/" {
                    real.push(b'/');
                }
                real.extend_from_slice(missing);
                return Ok(real);
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !existing.is_empty() => {
                existing = without_last(existing)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the path without its last name; `ENOENT` if that is `.` or `..`, which have no meaning
/// below a missing directory.
fn without_last(path: &[u8]) -> Result<&[u8], Errno> {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(0, |last| last + 1);
    let path = path.get(..end).unwrap_or_default();
    let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    match path.split_at_checked(start) {
        None | Some((_, b"." | b"..")) => Err(Errno::NOENT),
        Some((before, _)) => Ok(before),
    }
}

/// Renames like Go's `os.Rename` in the Go agents' server: replaces a file, but not a directory.
fn rename(from: &Path, to: &Path) -> Result<(), Errno> {
    if let Ok(replaced) = file::lstat(to)
        && FileType::from_raw_mode(replaced.st_mode) == FileType::Directory
    {
        // An error of `from` takes precedence.
        file::lstat(from)?;
        return Err(Errno::EXIST);
    }
    file::rename(from, to)
}

/// Returns size and free space of a file system (`statvfs@openssh.com`).
fn space(stat: &StatVfs) -> Answer {
    // The wire has OpenSSH's bits, not the system's.
    let flag = |flag, bit| if stat.f_flag.contains(flag) { bit } else { 0 };
    Answer::Numbers([
        stat.f_bsize,
        stat.f_frsize,
        stat.f_blocks,
        stat.f_bfree,
        stat.f_bavail,
        stat.f_files,
        stat.f_ffree,
        stat.f_favail,
        stat.f_fsid,
        flag(StatVfsMountFlags::RDONLY, 1) | flag(StatVfsMountFlags::NOSUID, 2),
        stat.f_namemax,
    ])
}

/// Descriptors not available to handles: input, output, log, one for a request that opens a file to
/// change it, and inherited ones.
const OTHERS: u64 = 8;

pub(super) struct Open {
    file: OwnedFd,
    /// Whether OPENDIR opened it, for READDIR. OPEN may open a directory, too; its READ fails.
    is_listed: bool,
}

/// Returns a handle table as large as the descriptor limit permits. Raises the soft limit, which is
/// low only for programs that use select(2).
pub(super) fn handle_table() -> Handles<Open> {
    let limit = getrlimit(Resource::Nofile);
    let wanted = u64::try_from(HANDLES).unwrap_or(u64::MAX).saturating_add(OTHERS);
    let possible = limit.maximum.unwrap_or(wanted).min(wanted);
    let mut files = limit.current.unwrap_or(possible).min(possible);
    if files < possible {
        let raised = Rlimit { current: Some(possible), maximum: limit.maximum };
        if setrlimit(Resource::Nofile, raised).is_ok() {
            files = possible;
        }
    }
    Handles::new(usize::try_from(files.saturating_sub(OTHERS)).unwrap_or(HANDLES))
}

/// Adds a file or directory to the table; `EMFILE` if it is full.
fn add_handle(handles: &mut Handles<Open>, open: Open) -> Result<Answer, Refusal> {
    handles.add(open).map(Answer::Handle).ok_or(Refusal::System(Errno::MFILE))
}

fn file_of(handles: &Handles<Open>, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
    descriptor(handles.get(handle).filter(|open| !open.is_listed))
}

fn directory_of(handles: &Handles<Open>, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
    descriptor(handles.get(handle).filter(|open| open.is_listed))
}

pub(super) fn file_or_directory_of(
    handles: &Handles<Open>,
    handle: Handle,
) -> Result<BorrowedFd<'_>, Refusal> {
    descriptor(handles.get(handle))
}

fn descriptor(open: Option<&Open>) -> Result<BorrowedFd<'_>, Refusal> {
    open.map(|open| open.file.as_fd()).ok_or(Refusal::BadHandle)
}

/// Closes a handle. close(2) may report an earlier write's error, such as a full quota on NFS.
fn close_handle(handles: &mut Handles<Open>, handle: Handle) -> Result<(), Refusal> {
    Ok(sys::close(handles.take(handle).ok_or(Refusal::BadHandle)?.file)?)
}
