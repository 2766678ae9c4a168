//! Parses packets from the client into values that borrow from them.
//!
//! A packet with a type and an id can always be answered, so only a shorter one ends the session.
//! Bytes after the last field are ignored, as in OpenSSH's server: later drafts append fields.

use super::attrs::Attrs;
use super::attrs::Reader;
use super::{DATA, REPLY, SMALL_REPLY};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// INIT, with any version and extensions: the reply is version 3, which all clients speak.
    Init,
    Request {
        /// Identifier to repeat in the reply.
        id: u32,
        request: Request<'a>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The packet is too short for a type and an id, so it cannot be answered.
    Nameless,
    Fields {
        /// Identifier to repeat in the reply.
        id: u32,
    },
}

/// A handle: eight bytes on the wire. The agent never issues one of another length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u64);

impl Handle {
    /// A handle that the agent never issues.
    pub const NONE: Self = Self(u64::MAX);
}

/// OPEN's `pflags` (filexfer-02 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;

    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// A requested operation; `Unknown` has an unsupported type or extension. Paths need not be UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    Open { path: &'a [u8], flags: OpenFlags, attrs: Attrs },
    Close { handle: Handle },
    Read { handle: Handle, offset: u64, length: u32 },
    Write { handle: Handle, offset: u64, data: &'a [u8] },
    Lstat { path: &'a [u8] },
    Fstat { handle: Handle },
    Setstat { path: &'a [u8], attrs: Attrs },
    Fsetstat { handle: Handle, attrs: Attrs },
    Opendir { path: &'a [u8] },
    Readdir { handle: Handle },
    Remove { path: &'a [u8] },
    Mkdir { path: &'a [u8], attrs: Attrs },
    Rmdir { path: &'a [u8] },
    Realpath { path: &'a [u8] },
    Stat { path: &'a [u8] },
    Rename { from: &'a [u8], to: &'a [u8] },
    Readlink { path: &'a [u8] },
    Symlink { target: &'a [u8], link: &'a [u8] },
    PosixRename { from: &'a [u8], to: &'a [u8] },
    Hardlink { from: &'a [u8], to: &'a [u8] },
    Statvfs { path: &'a [u8] },
    Fstatvfs { handle: Handle },
    Fsync { handle: Handle },
    Lsetstat { path: &'a [u8], attrs: Attrs },
    Limits,
    Unknown,
}

impl<'a> Packet<'a> {
    /// Parses the content of one frame. Of a mode, keeps only the bits in `modes`.
    /// Errors: [`Malformed::Nameless`] below five bytes, else [`Malformed::Fields`].
    pub fn parse(frame: &'a [u8], modes: u32) -> Result<Self, Malformed> {
        let mut reader = Reader(frame);
        let (kind, id) = (reader.u8(), reader.u32());
        let (Some(kind), Some(id)) = (kind, id) else { return Err(Malformed::Nameless) };
        if kind == INIT {
            return Ok(Self::Init); // INIT has its version in the position of the id
        }
        match request(kind, &mut reader, modes) {
            Some(request) => Ok(Self::Request { id, request }),
            None => Err(Malformed::Fields { id }),
        }
    }
}

/// A change of the file system, by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<'a> {
    /// The operation, one word.
    pub what: &'static str,
    pub path: &'a [u8],
    /// The second path, if the change has two.
    pub to: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// Returns the change that the request makes by name, or for which it opens a file.
    pub fn change(&self) -> Option<Change<'a>> {
        let (what, path, to) = match *self {
            Self::Open { path, flags, .. } if flags.0 & !OpenFlags::READ != 0 => {
                ("write", path, None)
            }
            Self::Setstat { path, .. } | Self::Lsetstat { path, .. } => ("setstat", path, None),
            Self::Remove { path } => ("remove", path, None),
            Self::Mkdir { path, .. } => ("mkdir", path, None),
            Self::Rmdir { path } => ("rmdir", path, None),
            Self::Rename { from, to } | Self::PosixRename { from, to } => {
                ("rename", from, Some(to))
            }
            Self::Symlink { target, link } => ("symlink", target, Some(link)),
            Self::Hardlink { from, to } => ("link", from, Some(to)),
            #[rustfmt::skip] // several in a line
            Self::Open { .. } | Self::Write { .. } | Self::Fsetstat { .. } | Self::Close { .. }
            | Self::Read { .. } | Self::Lstat { .. } | Self::Fstat { .. } | Self::Opendir { .. }
            | Self::Readdir { .. } | Self::Realpath { .. } | Self::Stat { .. }
            | Self::Readlink { .. } | Self::Statvfs { .. } | Self::Fstatvfs { .. }
            | Self::Fsync { .. } | Self::Limits | Self::Unknown => return None,
        };
        Some(Change { what, path, to })
    }

    /// Returns whether the request changes the file system, or opens a file to change it.
    pub fn writes(&self) -> bool {
        matches!(self, Self::Write { .. } | Self::Fsetstat { .. }) || self.change().is_some()
    }

    /// Returns the buffer space that the reply may need, in bytes.
    pub fn reply_room(&self) -> usize {
        if let Self::Read { length, .. } = self {
            13 + usize::try_from(*length).unwrap_or(DATA).min(DATA)
        } else if matches!(self, Self::Readdir { .. }) {
            REPLY
        } else {
            SMALL_REPLY
        }
    }
}

const INIT: u8 = 1;
const EXTENDED: u16 = 200;

/// OpenSSH's extensions: name, version, and our own number, which no packet type has.
pub(super) const EXTENSIONS: [(&[u8], &[u8], u16); 7] = [
    (b"posix-rename@openssh.com", b"1", 0x100),
    (b"statvfs@openssh.com", b"2", 0x101),
    (b"fstatvfs@openssh.com", b"2", 0x102),
    (b"hardlink@openssh.com", b"1", 0x103),
    (b"fsync@openssh.com", b"1", 0x104),
    (b"lsetstat@openssh.com", b"1", 0x105),
    (b"limits@openssh.com", b"1", 0x106),
];

fn request<'a>(kind: u8, reader: &mut Reader<'a>, modes: u32) -> Option<Request<'a>> {
    let mut kind = u16::from(kind);
    if kind == EXTENDED {
        let name = reader.string()?;
        let known = EXTENSIONS.iter().find(|(known, ..)| *known == name);
        kind = known.map_or(0, |(.., kind)| *kind);
    }
    match kind {
        0x106 => return Some(Request::Limits),
        3..=20 | 0x100..0x106 => {}
        _ => return Some(Request::Unknown),
    }
    // All of these begin with a path or a handle.
    let path = reader.string()?;
    let handle = path.try_into().map_or(Handle::NONE, |bytes| Handle(u64::from_be_bytes(bytes)));
    Some(match kind {
        3 => Request::Open {
            path,
            flags: OpenFlags(reader.u32()?),
            attrs: Attrs::read(reader, modes)?,
        },
        4 => Request::Close { handle },
        5 => Request::Read { handle, offset: reader.u64()?, length: reader.u32()? },
        6 => Request::Write { handle, offset: reader.u64()?, data: reader.string()? },
        7 => Request::Lstat { path },
        8 => Request::Fstat { handle },
        9 => Request::Setstat { path, attrs: Attrs::read(reader, modes)? },
        10 => Request::Fsetstat { handle, attrs: Attrs::read(reader, modes)? },
        11 => Request::Opendir { path },
        12 => Request::Readdir { handle },
        13 => Request::Remove { path },
        14 => Request::Mkdir { path, attrs: Attrs::read(reader, modes)? },
        15 => Request::Rmdir { path },
        16 => Request::Realpath { path },
        17 => Request::Stat { path },
        18 => Request::Rename { from: path, to: reader.string()? },
        19 => Request::Readlink { path },
        // In the draft, the link precedes the target; all implementations follow OpenSSH's order.
        20 => Request::Symlink { target: path, link: reader.string()? },
        0x100 => Request::PosixRename { from: path, to: reader.string()? },
        0x101 => Request::Statvfs { path },
        0x102 => Request::Fstatvfs { handle },
        0x103 => Request::Hardlink { from: path, to: reader.string()? },
        0x104 => Request::Fsync { handle },
        0x105 => Request::Lsetstat { path, attrs: Attrs::read(reader, modes)? },
        _ => Request::Unknown,
    })
}

#[cfg(test)]
mod tests;
