//! Writes packets to the client into the caller's slice.
//!
//! A reply that does not fit is an error and cannot be sent by mistake: `finish` returns a length
//! only if the complete reply is written.

use core::fmt;

use super::attrs::Attrs;
use super::longname::{self, Listed};
use super::request::{EXTENSIONS, Handle};
use super::{DATA, PACKET};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Result of a request (filexfer-02 §7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Ok = 0,
    Eof = 1,
    NoSuchFile = 2,
    PermissionDenied = 3,
    Failure = 4,
    BadMessage = 5,
    OpUnsupported = 8,
}

#[derive(Debug)]
pub struct Reply<'b> {
    out: &'b mut [u8],
    length: usize,
    full: bool,
}

const VERSION: u8 = 2;
const STATUS: u8 = 101;
const HANDLE: u8 = 102;
const READ: u8 = 103;
const NAME: u8 = 104;
const ATTRS: u8 = 105;
const EXTENDED: u8 = 201;

impl<'b> Reply<'b> {
    fn new(out: &'b mut [u8], kind: u8, id: u32) -> Self {
        let mut reply = Self { out, length: 0, full: false };
        reply.u32(0);
        reply.bytes(&[kind]);
        reply.u32(id);
        reply
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        match self.out.get_mut(self.length..end) {
            Some(room) if !self.full => {
                room.copy_from_slice(bytes);
                self.length = end;
            }
            _ => self.full = true,
        }
    }

    /// Writes a name for display: control characters become question marks, as in `ls`.
    fn shown(&mut self, name: &[u8]) {
        let mut last = 0;
        for byte in name {
            // The control characters from U+0080 to U+009F have two bytes in UTF-8.
            let control = byte.is_ascii_control() || last == 0xc2 && matches!(byte, 0x80..0xa0);
            self.bytes(&[if control { b'?' } else { *byte }]);
            last = *byte;
        }
    }

    fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    fn string(&mut self, write: impl FnOnce(&mut Self)) {
        let mark = self.length;
        self.u32(0);
        write(self);
        self.measure(mark);
    }

    /// Writes the number of bytes that follow the length field at `mark`.
    fn measure(&mut self, mark: usize) {
        self.patch(mark, self.length.saturating_sub(mark + 4));
    }

    fn patch(&mut self, mark: usize, value: usize) {
        match (self.out.get_mut(mark..mark + 4), u32::try_from(value)) {
            (Some(field), Ok(value)) => field.copy_from_slice(&value.to_be_bytes()),
            _ => self.full = true,
        }
    }

    fn attrs(&mut self, attrs: &Attrs) {
        self.u32(attrs.flags());
        if let Some(size) = attrs.size {
            self.u64(size);
        }
        if let Some((user, group)) = attrs.owner {
            self.u32(user);
            self.u32(group);
        }
        if let Some(permissions) = attrs.permissions {
            self.u32(permissions);
        }
        if let Some((access, modification)) = attrs.times {
            self.u32(access);
            self.u32(modification);
        }
    }

    fn finish(mut self) -> Result<usize, Full> {
        self.measure(0);
        if self.full { Err(Full) } else { Ok(self.length) }
    }
}

impl fmt::Write for Reply<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.bytes(text.as_bytes());
        Ok(())
    }
}

/// Writes VERSION, the reply to INIT. Like all of these functions, returns its length in bytes.
/// Errors: [`Full`] if the reply does not fit in `out`.
pub fn version(out: &mut [u8]) -> Result<usize, Full> {
    // The version number goes where other packets have their id.
    let mut reply = Reply::new(out, VERSION, 3);
    for (name, version, _) in EXTENSIONS {
        reply.string(|reply| reply.bytes(name));
        reply.string(|reply| reply.bytes(version));
    }
    reply.finish()
}

pub fn status(out: &mut [u8], id: u32, code: Code, text: &dyn fmt::Display) -> Result<usize, Full> {
    let mut reply = Reply::new(out, STATUS, id);
    reply.u32(code as u32);
    reply.string(|reply| {
        let written = fmt::write(reply, format_args!("{text}"));
        reply.full |= written.is_err();
    });
    reply.string(|_no_language| ());
    reply.finish()
}

pub fn handle(out: &mut [u8], id: u32, handle: Handle) -> Result<usize, Full> {
    let mut reply = Reply::new(out, HANDLE, id);
    reply.string(|reply| reply.u64(handle.0));
    reply.finish()
}

/// Writes DATA. `read` fills a slice of at most `most` bytes and returns how many it wrote.
/// Errors: any of `read`; the inner result is [`Full`] if the reply does not fit in `out`.
pub fn data<E>(
    out: &mut [u8],
    id: u32,
    most: u32,
    read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
) -> Result<Result<usize, Full>, E> {
    let mut reply = Reply::new(out, READ, id);
    let mark = reply.length;
    reply.u32(0);
    let most = usize::try_from(most).unwrap_or(DATA).min(DATA);
    match reply.out.get_mut(reply.length..).and_then(|room| room.get_mut(..most)) {
        Some(room) => reply.length += read(room)?.min(most),
        None => reply.full = true,
    }
    reply.measure(mark);
    Ok(reply.finish())
}

/// Writes NAME with one path and no attributes (REALPATH, READLINK).
pub fn path(out: &mut [u8], id: u32, path: &[u8]) -> Result<usize, Full> {
    let mut reply = Reply::new(out, NAME, id);
    reply.u32(1);
    reply.string(|reply| reply.bytes(path));
    reply.string(|reply| reply.shown(path));
    reply.attrs(&Attrs::default());
    reply.finish()
}

pub fn attrs(out: &mut [u8], id: u32, attrs: &Attrs) -> Result<usize, Full> {
    let mut reply = Reply::new(out, ATTRS, id);
    reply.attrs(attrs);
    reply.finish()
}

/// Writes an extended reply of numbers (`statvfs`, `limits`).
pub fn numbers(out: &mut [u8], id: u32, numbers: &[u64]) -> Result<usize, Full> {
    let mut reply = Reply::new(out, EXTENDED, id);
    for number in numbers {
        reply.u64(*number);
    }
    reply.finish()
}

/// Returns the reply to `limits@openssh.com`: longest packet, READ and WRITE, most handles.
pub fn limits(handles: usize) -> [u64; 4] {
    [PACKET, DATA, DATA, handles].map(|limit| u64::try_from(limit).unwrap_or(u64::MAX))
}

/// NAME with a part of a directory, entry by entry.
#[derive(Debug)]
pub struct Names<'b> {
    reply: Reply<'b>,
    count: usize,
}

impl<'b> Names<'b> {
    pub fn new(out: &'b mut [u8], id: u32) -> Self {
        let mut reply = Reply::new(out, NAME, id);
        reply.u32(0);
        Self { reply, count: 0 }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// Adds an entry; `now` is the wall clock, in seconds since 1970.
    pub fn push(&mut self, name: &[u8], file: &Listed, now: u64) {
        self.reply.string(|reply| reply.bytes(name));
        self.reply.string(|reply| {
            // Writing to a reply never fails; `finish` reports that it is full.
            let _fits = longname::columns(reply, file, now);
            reply.shown(name);
        });
        self.reply.attrs(&file.attrs);
        self.count += 1;
    }

    /// Completes the reply and returns its length in bytes.
    /// Errors: [`Full`] if the entries do not fit.
    pub fn finish(mut self) -> Result<usize, Full> {
        self.reply.patch(COUNT, self.count);
        self.reply.finish()
    }
}

/// Offset of NAME's count, in bytes: after length, type and id.
const COUNT: usize = 9;

#[cfg(test)]
mod tests;
