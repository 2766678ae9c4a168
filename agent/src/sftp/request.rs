//! A packet from the client, as a value that borrows from it.
//!
//! A packet that says who it is (type and id) can always be answered, so only one too short for that
//! is the end of a session. Bytes after the last field are ignored, as OpenSSH's server does: later
//! drafts append fields.

use super::attrs::Attrs;
use super::wire::Reader;
use super::{DATA, REPLY, SMALL_REPLY};

/// What a client sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet<'a> {
    /// INIT, whatever version and extensions it names: we speak 3, and so do all.
    Init,
    /// Anything else.
    Request {
        /// To be repeated in the reply.
        id: u32,
        /// What to do.
        wish: Wish<'a>,
    },
}

/// Why a packet is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Too short to be answered.
    Nameless,
    /// Its fields do not add up.
    Fields {
        /// To be repeated in the reply.
        id: u32,
    },
}

/// A handle as we write them: four bytes. One of another length is none of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub u32);

impl Handle {
    /// Never given out.
    pub const NONE: Self = Self(u32::MAX);
}

/// OPEN's `pflags` (filexfer-02 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// Open for reading.
    pub const READ: u32 = 1;
    /// Open for writing.
    pub const WRITE: u32 = 2;
    /// Every write goes to the end.
    pub const APPEND: u32 = 4;
    /// Make it if it is not there.
    pub const CREATE: u32 = 8;
    /// Empty it.
    pub const TRUNCATE: u32 = 16;
    /// Fail if it is there.
    pub const EXCLUSIVE: u32 = 32;

    /// Whether a flag is set.
    #[must_use]
    pub fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// What is asked for. Paths are bytes: nobody says they are UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "fields of the draft's own names")]
pub enum Wish<'a> {
    Open {
        path: &'a [u8],
        flags: OpenFlags,
        attrs: Attrs,
    },
    Close {
        handle: Handle,
    },
    Read {
        handle: Handle,
        offset: u64,
        length: u32,
    },
    Write {
        handle: Handle,
        offset: u64,
        data: &'a [u8],
    },
    Lstat {
        path: &'a [u8],
    },
    Fstat {
        handle: Handle,
    },
    Setstat {
        path: &'a [u8],
        attrs: Attrs,
    },
    Fsetstat {
        handle: Handle,
        attrs: Attrs,
    },
    Opendir {
        path: &'a [u8],
    },
    Readdir {
        handle: Handle,
    },
    Remove {
        path: &'a [u8],
    },
    Mkdir {
        path: &'a [u8],
        attrs: Attrs,
    },
    Rmdir {
        path: &'a [u8],
    },
    Realpath {
        path: &'a [u8],
    },
    Stat {
        path: &'a [u8],
    },
    Rename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Readlink {
        path: &'a [u8],
    },
    Symlink {
        target: &'a [u8],
        link: &'a [u8],
    },
    PosixRename {
        from: &'a [u8],
        to: &'a [u8],
    },
    Hardlink {
        from: &'a [u8],
        to: &'a [u8],
    },
    Statvfs {
        path: &'a [u8],
    },
    Fstatvfs {
        handle: Handle,
    },
    Fsync {
        handle: Handle,
    },
    Lsetstat {
        path: &'a [u8],
        attrs: Attrs,
    },
    Limits,
    /// A type or an extension that we do not have.
    Unknown,
}

impl<'a> Packet<'a> {
    /// Reads one frame's content.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(frame: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(frame);
        let (kind, id) = (reader.u8(), reader.u32());
        let (Some(kind), Some(id)) = (kind, id) else { return Err(Malformed::Nameless) };
        if kind == INIT {
            return Ok(Self::Init); // what was read as an id is its version
        }
        match wish(kind, &mut reader) {
            Some(wish) => Ok(Self::Request { id, wish }),
            None => Err(Malformed::Fields { id }),
        }
    }
}

impl Wish<'_> {
    /// Room to keep free for the reply, bytes.
    #[must_use]
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

/// OpenSSH's extensions: name, version, and a number that no packet type has.
pub(super) const EXTENSIONS: [(&[u8], &[u8], u16); 7] = [
    (b"posix-rename@openssh.com", b"1", 0x100),
    (b"statvfs@openssh.com", b"2", 0x101),
    (b"fstatvfs@openssh.com", b"2", 0x102),
    (b"hardlink@openssh.com", b"1", 0x103),
    (b"fsync@openssh.com", b"1", 0x104),
    (b"lsetstat@openssh.com", b"1", 0x105),
    (b"limits@openssh.com", b"1", 0x106),
];

fn wish<'a>(kind: u8, reader: &mut Reader<'a>) -> Option<Wish<'a>> {
    let mut kind = u16::from(kind);
    if kind == EXTENDED {
        let name = reader.string()?;
        let known = EXTENSIONS.iter().find(|(known, ..)| *known == name);
        kind = known.map_or(0, |(.., kind)| *kind);
    }
    match kind {
        0x106 => return Some(Wish::Limits),
        3..=20 | 0x100..0x106 => {}
        _ => return Some(Wish::Unknown),
    }
    // All of these begin with a path or a handle.
    let path = reader.string()?;
    let handle = path.try_into().map_or(Handle::NONE, |bytes| Handle(u32::from_be_bytes(bytes)));
    Some(match kind {
        3 => Wish::Open { path, flags: OpenFlags(reader.u32()?), attrs: Attrs::read(reader)? },
        4 => Wish::Close { handle },
        5 => Wish::Read { handle, offset: reader.u64()?, length: reader.u32()? },
        6 => Wish::Write { handle, offset: reader.u64()?, data: reader.string()? },
        7 => Wish::Lstat { path },
        8 => Wish::Fstat { handle },
        9 => Wish::Setstat { path, attrs: Attrs::read(reader)? },
        10 => Wish::Fsetstat { handle, attrs: Attrs::read(reader)? },
        11 => Wish::Opendir { path },
        12 => Wish::Readdir { handle },
        13 => Wish::Remove { path },
        14 => Wish::Mkdir { path, attrs: Attrs::read(reader)? },
        15 => Wish::Rmdir { path },
        16 => Wish::Realpath { path },
        17 => Wish::Stat { path },
        18 => Wish::Rename { from: path, to: reader.string()? },
        19 => Wish::Readlink { path },
        // The draft has these two the other way round; OpenSSH never did, and all followed it.
        20 => Wish::Symlink { target: path, link: reader.string()? },
        0x100 => Wish::PosixRename { from: path, to: reader.string()? },
        0x101 => Wish::Statvfs { path },
        0x102 => Wish::Fstatvfs { handle },
        0x103 => Wish::Hardlink { from: path, to: reader.string()? },
        0x104 => Wish::Fsync { handle },
        0x105 => Wish::Lsetstat { path, attrs: Attrs::read(reader)? },
        _ => Wish::Unknown,
    })
}

#[cfg(test)]
mod tests;
