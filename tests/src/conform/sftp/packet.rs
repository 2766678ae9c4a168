//! Parts of SFTP packets: numbers, attributes, request bodies, replies.

/// Packet types of requests.
pub mod kind {
    #![expect(missing_docs, reason = "the draft's names")]
    pub const INIT: u8 = 1;
    pub const OPEN: u8 = 3;
    pub const CLOSE: u8 = 4;
    pub const READ: u8 = 5;
    pub const WRITE: u8 = 6;
    pub const LSTAT: u8 = 7;
    pub const FSTAT: u8 = 8;
    pub const SETSTAT: u8 = 9;
    pub const FSETSTAT: u8 = 10;
    pub const OPENDIR: u8 = 11;
    pub const READDIR: u8 = 12;
    pub const REMOVE: u8 = 13;
    pub const MKDIR: u8 = 14;
    pub const RMDIR: u8 = 15;
    pub const REALPATH: u8 = 16;
    pub const STAT: u8 = 17;
    pub const RENAME: u8 = 18;
    pub const READLINK: u8 = 19;
    pub const SYMLINK: u8 = 20;
    pub const EXTENDED: u8 = 200;
}

pub mod flag {
    #![expect(missing_docs, reason = "the draft's names")]
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

pub const OK: u32 = 0;
/// Status: end of a file or directory.
pub const EOF: u32 = 1;
/// Status: no such file.
pub const NO_FILE: u32 = 2;
pub const FAILURE: u32 = 4;
/// Status: request not supported.
pub const UNSUPPORTED: u32 = 8;

/// Attributes of a file; each may be absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Size, bytes.
    pub size: Option<u64>,
    /// User and group id.
    pub owner: Option<(u32, u32)>,
    /// File type and permissions.
    pub mode: Option<u32>,
    /// Times of last access and modification, seconds since 1970.
    pub times: Option<(u32, u32)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// STATUS: code and message.
    Status(u32, String),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    /// NAME: names, long names, attributes.
    Names(Vec<(Vec<u8>, String, Attrs)>),
    Attrs(Attrs),
    Extended(Vec<u8>),
}

impl Reply {
    /// A short description for messages.
    pub fn short(&self) -> String {
        match self {
            Self::Status(code, _) => format!("status {code}"),
            Self::Handle(_) => "a handle".into(),
            Self::Data(data) => format!("{} bytes", data.len()),
            Self::Names(names) => format!("{} names", names.len()),
            Self::Attrs(_) => "attributes".into(),
            Self::Extended(_) => "an extension's reply".into(),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Body(pub(crate) Vec<u8>);

impl Body {
    /// A body that begins with a string.
    pub fn of(text: impl AsRef<[u8]>) -> Self {
        Self::default().str(text)
    }

    pub fn str(mut self, text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        self.0.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
        self.0.extend(text);
        self
    }

    /// Appends a 32-bit number.
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Appends a 64-bit number.
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    pub fn attrs(self, attrs: &Attrs) -> Self {
        let bit = |is: bool, bit: u32| if is { bit } else { 0 };
        let flags = bit(attrs.size.is_some(), 1)
            | bit(attrs.owner.is_some(), 2)
            | bit(attrs.mode.is_some(), 4)
            | bit(attrs.times.is_some(), 8);
        let mut body = self.u32(flags);
        if let Some(size) = attrs.size {
            body = body.u64(size);
        }
        if let Some((user, group)) = attrs.owner {
            body = body.u32(user).u32(group);
        }
        if let Some(mode) = attrs.mode {
            body = body.u32(mode);
        }
        if let Some((access, change)) = attrs.times {
            body = body.u32(access).u32(change);
        }
        body
    }
}

/// A packet of this type.
pub(crate) fn framed(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = u32::try_from(payload.len() + 1).expect("a length").to_be_bytes().to_vec();
    packet.push(kind);
    packet.extend(payload);
    packet
}

/// Reads a reply's body from front to back.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let (head, tail) = self.0.split_at_checked(count).ok_or("a packet that is too short")?;
        self.0 = tail;
        Ok(head.to_vec())
    }

    pub(crate) fn u32(&mut self) -> Result<u32, String> {
        Ok(self.take(4)?.into_iter().fold(0, |sum, byte| (sum << 8) | u32::from(byte)))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, String> {
        Ok((u64::from(self.u32()?) << 32) | u64::from(self.u32()?))
    }

    pub(crate) fn str(&mut self) -> Result<Vec<u8>, String> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    pub(super) fn text(&mut self) -> Result<String, String> {
        Ok(String::from_utf8_lossy(&self.str()?).into_owned())
    }

    pub(crate) fn attrs(&mut self) -> Result<Attrs, String> {
        let flags = self.u32()?;
        let mut attrs = Attrs::default();
        if flags & 1 != 0 {
            attrs.size = Some(self.u64()?);
        }
        if flags & 2 != 0 {
            attrs.owner = Some((self.u32()?, self.u32()?));
        }
        if flags & 4 != 0 {
            attrs.mode = Some(self.u32()?);
        }
        if flags & 8 != 0 {
            attrs.times = Some((self.u32()?, self.u32()?));
        }
        if flags & 0x8000_0000 != 0 {
            for _ in 0..self.u32()? {
                let _pair = (self.str()?, self.str()?);
            }
        }
        Ok(attrs)
    }
}
