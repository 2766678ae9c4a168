//! Descriptors: a listener, or one end of a connection or a pipe, which closes with its last copy.

use std::fmt;
use std::io::Stderr;

use rustix::io::Result;

use crate::runtime::reactor::{Async, Source};
use crate::sim_prelude::*;

#[derive(Clone)]
pub(crate) struct OwnedFd(Rc<Open>);

enum Open {
    Listening(net::Listener),
    Connected(Stream, Option<Counted>),
}

pub(crate) struct Counted(pub(crate) Rc<Here>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.guests.set(self.0.guests.get() - 1);
    }
}

impl fmt::Debug for OwnedFd {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("OwnedFd")
    }
}

impl OwnedFd {
    pub(crate) fn listening(listener: net::Listener) -> Self {
        Self(Rc::new(Open::Listening(listener)))
    }

    pub(crate) fn connected(stream: Stream, counted: Option<Counted>) -> Self {
        Self(Rc::new(Open::Connected(stream, counted)))
    }

    pub(crate) fn stream(&self) -> &Stream {
        match &*self.0 {
            Open::Connected(stream, _) => stream,
            Open::Listening(_) => unreachable!("a listener is read"),
        }
    }

    pub(crate) fn listener(&self) -> Option<&net::Listener> {
        match &*self.0 {
            Open::Connected(..) => None,
            Open::Listening(listener) => Some(listener),
        }
    }

    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(self.clone())
    }
}

impl Async<OwnedFd> {
    pub(crate) fn stream(&self) -> &Stream {
        self.get_ref().stream()
    }
}

impl Source for OwnedFd {
    fn seen(&self) -> u64 {
        0
    }

    async fn changed(&self, _: u64) {
        self.stream().readable().await;
    }

    async fn has_room(&self) {
        self.stream().writable().await;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum BorrowedFd<'f> {
    Own(&'f OwnedFd),
    Errors,
}

pub(crate) trait AsFd {
    fn as_fd(&self) -> BorrowedFd<'_>;
}

impl AsFd for OwnedFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::Own(self)
    }
}

impl AsFd for BorrowedFd<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        *self
    }
}

impl AsFd for Stderr {
    fn as_fd(&self) -> BorrowedFd<'_> {
        BorrowedFd::Errors
    }
}

impl<T: AsFd> AsFd for &T {
    fn as_fd(&self) -> BorrowedFd<'_> {
        (*self).as_fd()
    }
}

fn done(done: Option<std::result::Result<usize, Broken>>, broken: Errno) -> Result<usize> {
    done.ok_or(Errno::AGAIN)?.map_err(|Broken| broken)
}

pub(crate) fn read(from: impl AsFd, into: &mut [u8]) -> Result<usize> {
    let BorrowedFd::Own(fd) = from.as_fd() else { return Err(Errno::BADF) };
    done(fd.stream().try_read(into), Errno::CONNRESET)
}

pub(crate) fn append(from: impl AsFd, to: &mut Vec<u8>) -> Result<usize> {
    let mut piece = vec![0; to.capacity() - to.len()];
    let count = read(from, &mut piece)?;
    to.extend_from_slice(&piece[..count]);
    Ok(count)
}

pub(crate) fn write(to: impl AsFd, bytes: &[u8]) -> Result<usize> {
    let BorrowedFd::Own(fd) = to.as_fd() else { return Ok(bytes.len()) };
    done(fd.stream().try_write(bytes), Errno::PIPE)
}

pub(crate) fn pipe() -> Result<(OwnedFd, OwnedFd)> {
    pair()
}

pub(crate) fn give(_: impl AsFd, _: u32, _: u32) -> Result<()> {
    Ok(())
}

pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let (one, other) = here().net.pair();
    Ok((OwnedFd::connected(one, None), OwnedFd::connected(other, None)))
}

pub(crate) fn unblock(_: impl AsFd) -> Result<()> {
    Ok(())
}
