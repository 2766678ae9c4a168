//! What is open, by handle. A handle is a place in the table and how often that place was given out,
//! so that one used after its CLOSE means nothing rather than another file.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use mote_agent::sftp::HANDLES;
use mote_agent::sftp::request::Handle;
use rustix::io::Errno;

use crate::sftp::refusal::Refusal;
use crate::sys;

/// The open files and directories of a session.
#[derive(Default)]
pub(super) struct Handles(Vec<Place>);

/// A place in the table.
pub(super) struct Place {
    handle: Handle,
    open: Option<Open>,
}

/// What is open.
pub(super) enum Open {
    /// For FSTAT, READ, WRITE ...
    File(OwnedFd),
    /// For READDIR.
    Directory(OwnedFd),
}

/// From one life of a place to its next; the places' numbers are below it.
const LIFE: u32 = 256;

impl Place {
    /// Gives it out.
    pub(super) fn fill(&mut self, open: Open) -> Handle {
        self.handle.0 = self.handle.0.wrapping_add(LIFE);
        self.open = Some(open);
        self.handle
    }
}

impl Handles {
    /// A place that is free. To be asked for before anything is opened, since to open may be to
    /// create.
    pub(super) fn free(&mut self) -> Result<&mut Place, Refusal> {
        let index = self.0.iter().position(|place| place.open.is_none()).unwrap_or(self.0.len());
        if index == self.0.len() && index < HANDLES {
            let number = u32::try_from(index).unwrap_or(Handle::NONE.0);
            self.0.push(Place { handle: Handle(number), open: None });
        }
        self.0.get_mut(index).ok_or(Refusal::System(Errno::MFILE))
    }

    fn open(&self, handle: Handle) -> Result<&Open, Refusal> {
        let place = self.0.iter().find(|place| place.handle == handle);
        place.and_then(|place| place.open.as_ref()).ok_or(Refusal::BadHandle)
    }

    /// An open file.
    pub(super) fn file(&self, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
        match self.open(handle)? {
            Open::File(fd) => Ok(fd.as_fd()),
            Open::Directory(_) => Err(Refusal::BadHandle),
        }
    }

    /// An open directory.
    pub(super) fn directory(&self, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
        match self.open(handle)? {
            Open::Directory(fd) => Ok(fd.as_fd()),
            Open::File(_) => Err(Refusal::BadHandle),
        }
    }

    /// Either.
    pub(super) fn any(&self, handle: Handle) -> Result<BorrowedFd<'_>, Refusal> {
        match self.open(handle)? {
            Open::File(fd) | Open::Directory(fd) => Ok(fd.as_fd()),
        }
    }

    /// Closes it. The system may have kept an error back until then: a full quota on a network's
    /// file system.
    pub(super) fn close(&mut self, handle: Handle) -> Result<(), Refusal> {
        let place = self.0.iter_mut().find(|place| place.handle == handle);
        match place.and_then(|place| place.open.take()).ok_or(Refusal::BadHandle)? {
            Open::File(fd) | Open::Directory(fd) => Ok(sys::close(fd)?),
        }
    }
}
