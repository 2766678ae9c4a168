//! A client of SFTP version 3 (draft-ietf-secsh-filexfer-02), as small as the claims need (P§4.4).

use super::client::Client;
use super::wire::{Answer, Wire};

/// Request numbers.
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

/// How a file is opened.
pub mod flag {
    #![expect(missing_docs, reason = "the draft's names")]
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const APPEND: u32 = 4;
    pub const CREATE: u32 = 8;
    pub const TRUNCATE: u32 = 16;
    pub const EXCLUSIVE: u32 = 32;
}

/// Status codes.
pub const OK: u32 = 0;
/// The end of a file or a directory.
pub const EOF: u32 = 1;
/// No such file.
pub const NO_FILE: u32 = 2;
/// Some other failure.
pub const FAILURE: u32 = 4;
/// No such request.
pub const UNSUPPORTED: u32 = 8;

/// Attributes, as far as they are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attrs {
    /// Bytes.
    pub size: Option<u64>,
    /// User and group.
    pub owner: Option<(u32, u32)>,
    /// Type and permissions.
    pub mode: Option<u32>,
    /// Access and modification, seconds.
    pub times: Option<(u32, u32)>,
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A status code, with its text.
    Status(u32, String),
    /// A handle.
    Handle(Vec<u8>),
    /// Bytes.
    Data(Vec<u8>),
    /// Names, long names, attributes.
    Names(Vec<(Vec<u8>, String, Attrs)>),
    /// Attributes.
    Attrs(Attrs),
    /// An extension's.
    Extended(Vec<u8>),
}

impl Reply {
    /// In a few words, for showing.
    #[must_use]
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

/// A request's body.
#[derive(Clone, Debug, Default)]
pub struct Body(Vec<u8>);

impl Body {
    /// Begins with a string.
    #[must_use]
    pub fn of(text: impl AsRef<[u8]>) -> Self {
        Self::default().str(text)
    }

    /// A string.
    #[must_use]
    pub fn str(mut self, text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        self.0.extend(u32::try_from(text.len()).expect("short").to_be_bytes());
        self.0.extend(text);
        self
    }

    /// A number.
    #[must_use]
    pub fn u32(mut self, number: u32) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// A large number.
    #[must_use]
    pub fn u64(mut self, number: u64) -> Self {
        self.0.extend(number.to_be_bytes());
        self
    }

    /// Attributes.
    #[must_use]
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

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, count: usize) -> Result<Vec<u8>, String> {
        let (head, tail) = self.0.split_at_checked(count).ok_or("a packet that is too short")?;
        self.0 = tail;
        Ok(head.to_vec())
    }

    fn u32(&mut self) -> Result<u32, String> {
        Ok(self.take(4)?.into_iter().fold(0, |sum, byte| (sum << 8) | u32::from(byte)))
    }

    fn u64(&mut self) -> Result<u64, String> {
        Ok((u64::from(self.u32()?) << 32) | u64::from(self.u32()?))
    }

    fn str(&mut self) -> Result<Vec<u8>, String> {
        let length = self.u32()?;
        self.take(length as usize)
    }

    fn text(&mut self) -> Result<String, String> {
        Ok(String::from_utf8_lossy(&self.str()?).into_owned())
    }

    fn attrs(&mut self) -> Result<Attrs, String> {
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

/// A session.
#[derive(Debug)]
pub struct Sftp {
    wire: Wire,
    next: u32,
    /// The server's version.
    pub version: u32,
    /// Its extensions, with their versions.
    pub extensions: Vec<(String, String)>,
}

impl Sftp {
    /// Asks for an upgrade to `protocol`, and gives the answer with the connection.
    ///
    /// # Errors
    /// If there is none.
    pub fn upgrade(agent: &Client, protocol: &str) -> Result<(Answer, Wire), String> {
        let mut wire = agent.connect()?;
        let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
        let answer = wire.ask("GET", "/1.0/sftp", &fields, b"")?;
        Ok((answer, wire))
    }

    /// Opens a session.
    ///
    /// # Errors
    /// If it is refused.
    pub fn open(agent: &Client) -> Result<Self, String> {
        let (answer, wire) = Self::upgrade(agent, "sftp")?;
        if answer.status != 101 {
            return Err(format!("GET /1.0/sftp: {}", answer.short()));
        }
        let mut sftp = Self { wire, next: 1, version: 0, extensions: Vec::new() };
        sftp.send(kind::INIT, &3_u32.to_be_bytes())?;
        let (kind, payload) = sftp.packet()?;
        if kind != 2 {
            return Err(format!("packet {kind} instead of VERSION"));
        }
        let mut reader = Reader(&payload);
        sftp.version = reader.u32()?;
        while !reader.0.is_empty() {
            sftp.extensions.push((reader.text()?, reader.text()?));
        }
        Ok(sftp)
    }

    fn send(&mut self, kind: u8, payload: &[u8]) -> Result<(), String> {
        let length = u32::try_from(payload.len() + 1).map_err(|error| error.to_string())?;
        let mut packet = length.to_be_bytes().to_vec();
        packet.push(kind);
        packet.extend(payload);
        self.wire.send(&packet)
    }

    fn packet(&mut self) -> Result<(u8, Vec<u8>), String> {
        let length = Reader(&self.wire.take(4)?).u32()? as usize;
        let packet = self.wire.take(length)?;
        let (kind, payload) = packet.split_first().ok_or("an empty packet")?;
        Ok((*kind, payload.to_vec()))
    }

    /// Sends a request and does not wait; gives its number.
    ///
    /// # Errors
    /// If it cannot be sent.
    pub fn ask(&mut self, kind: u8, body: &Body) -> Result<u32, String> {
        let id = self.next;
        self.next += 1;
        let mut payload = id.to_be_bytes().to_vec();
        payload.extend(&body.0);
        self.send(kind, &payload)?;
        Ok(id)
    }

    /// The next reply, and the number it is for.
    ///
    /// # Errors
    /// If it does not come, or is none.
    pub fn reply(&mut self) -> Result<(u32, Reply), String> {
        let (kind, payload) = self.packet()?;
        let mut reader = Reader(&payload);
        let id = reader.u32()?;
        let reply = match kind {
            101 => {
                let code = reader.u32()?;
                Reply::Status(code, reader.text().unwrap_or_default())
            }
            102 => Reply::Handle(reader.str()?),
            103 => Reply::Data(reader.str()?),
            104 => {
                let mut names = Vec::new();
                for _ in 0..reader.u32()? {
                    names.push((reader.str()?, reader.text()?, reader.attrs()?));
                }
                Reply::Names(names)
            }
            105 => Reply::Attrs(reader.attrs()?),
            201 => Reply::Extended(reader.0.to_vec()),
            other => return Err(format!("packet {other} is no reply")),
        };
        Ok((id, reply))
    }

    /// Asks and waits.
    ///
    /// # Errors
    /// If the reply does not come.
    pub fn call(&mut self, kind: u8, body: &Body) -> Result<Reply, String> {
        let asked = self.ask(kind, body)?;
        let (id, reply) = self.reply()?;
        if id == asked { Ok(reply) } else { Err("a reply to something else".into()) }
    }

    /// The status code of a reply that must be a status.
    ///
    /// # Errors
    /// If it is none.
    pub fn status(&mut self, kind: u8, body: &Body) -> Result<u32, String> {
        match self.call(kind, body)? {
            Reply::Status(code, _) => Ok(code),
            other => Err(format!("{} instead of a status", other.short())),
        }
    }

    /// A request that must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub fn ok(&mut self, what: &str, kind: u8, body: &Body) -> Result<(), String> {
        match self.call(kind, body)? {
            Reply::Status(OK, _) => Ok(()),
            other => Err(format!("{what}: {}", other.short())),
        }
    }

    /// Opens a file.
    ///
    /// # Errors
    /// If that fails.
    pub fn file(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Result<Vec<u8>, String> {
        let body = Body::of(path).u32(flags).attrs(&Attrs::default());
        match self.call(kind::OPEN, &body)? {
            Reply::Handle(handle) => Ok(handle),
            other => Err(format!("open: {}", other.short())),
        }
    }

    /// Writes at a place.
    ///
    /// # Errors
    /// If that fails.
    pub fn write(&mut self, handle: &[u8], at: u64, bytes: &[u8]) -> Result<(), String> {
        self.ok("write", kind::WRITE, &Body::of(handle).u64(at).str(bytes))
    }

    /// Reads at a place.
    ///
    /// # Errors
    /// If that fails.
    pub fn read(&mut self, handle: &[u8], at: u64, count: u32) -> Result<Reply, String> {
        self.call(kind::READ, &Body::of(handle).u64(at).u32(count))
    }

    /// Closes a handle.
    ///
    /// # Errors
    /// If that fails.
    pub fn close(&mut self, handle: &[u8]) -> Result<(), String> {
        self.ok("close", kind::CLOSE, &Body::of(handle))
    }

    /// Makes a file with this content.
    ///
    /// # Errors
    /// If that fails.
    pub fn put(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> Result<(), String> {
        let handle = self.file(path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        self.write(&handle, 0, bytes)?;
        self.close(&handle)
    }

    /// The attributes that `kind` (STAT, LSTAT, FSTAT) gives.
    ///
    /// # Errors
    /// If there are none.
    pub fn attrs(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<Attrs, String> {
        match self.call(kind, &Body::of(path))? {
            Reply::Attrs(attrs) => Ok(attrs),
            other => Err(format!("stat: {}", other.short())),
        }
    }

    /// The one name that `kind` (REALPATH, READLINK) gives.
    ///
    /// # Errors
    /// If there is none.
    pub fn name(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<String, String> {
        match self.call(kind, &Body::of(path))? {
            Reply::Names(names) => match &names[..] {
                [(name, ..)] => Ok(String::from_utf8_lossy(name).into_owned()),
                more => Err(format!("{} names", more.len())),
            },
            other => Err(other.short()),
        }
    }

    /// The names in a directory, with their attributes, `.` and `..` left out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn list(&mut self, path: &str) -> Result<Vec<(Vec<u8>, String, Attrs)>, String> {
        let Reply::Handle(handle) = self.call(kind::OPENDIR, &Body::of(path))? else {
            return Err("opendir failed".into());
        };
        let mut all = Vec::new();
        loop {
            match self.call(kind::READDIR, &Body::of(&handle))? {
                Reply::Names(names) => {
                    all.extend(
                        names.into_iter().filter(|(name, ..)| name != b"." && name != b".."),
                    );
                }
                Reply::Status(EOF, _) => break,
                other => return Err(format!("readdir: {}", other.short())),
            }
        }
        self.close(&handle)?;
        Ok(all)
    }
}
