//! A minimal client of SFTP version 3 (draft-ietf-secsh-filexfer-02), for the claims (P§4.4).

use anyhow::bail;
use mote_client::files::sftp::client::{receive, send};
use mote_client::files::sftp::wire::Reader;

use super::wire::{Answer, Wire};
use crate::prelude::*;

pub use mote_client::files::sftp::wire::{Attrs, Writer as Body};

/// The connection of a session: TLS to an agent, or a socket to a server without an agent.
pub trait Line: Read + Write {
    /// Restarts the time limit, if the connection has one, before a packet.
    fn begin(&mut self) {}
}

impl Line for Wire {
    fn begin(&mut self) {
        Self::begin(self);
    }
}

impl Line for UnixStream {}

pub struct Sftp<L = Wire> {
    line: L,
    next: u32,
    pub version: u32,
    /// The server's extensions: name, version.
    pub extensions: Vec<(String, String)>,
    pub why: String,
}

impl Sftp {
    /// Requests an upgrade to `protocol`; returns the answer and the connection.
    pub fn upgrade(agent: &Client, protocol: &str) -> Try<(Answer, Wire)> {
        let mut wire = agent.connect()?;
        let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
        let answer = wire.ask("GET", "/1.0/sftp", &fields, b"")?;
        Ok((answer, wire))
    }

    pub fn open(agent: &Client) -> Try<Self> {
        let (answer, wire) = Self::upgrade(agent, "sftp")?;
        if answer.status != 101 {
            return Err(format!("GET /1.0/sftp: {}", answer.short()));
        }
        let mut sftp = Self::over(wire);
        let packet = sftp.hello()?;
        let mut reader = Reader(packet.get(1..).unwrap_or_default());
        let mut read = || -> anyhow::Result<()> {
            sftp.version = reader.u32()?;
            while !reader.0.is_empty() {
                sftp.extensions.push((reader.text()?, reader.text()?));
            }
            Ok(())
        };
        read().map_err(|error| error.to_string())?;
        if packet[0] == kind::VERSION {
            Ok(sftp)
        } else {
            Err(format!("packet {} instead of VERSION", packet[0]))
        }
    }
}

impl<L: Line> Sftp<L> {
    pub fn over(line: L) -> Self {
        Self { line, next: 1, version: 0, extensions: Vec::new(), why: String::new() }
    }

    /// Sends INIT, as every client begins; returns the packet that answers it.
    pub fn hello(&mut self) -> Try<Vec<u8>> {
        self.send(kind::INIT, &Body::default().u32(3))?;
        self.packet()
    }

    fn send(&mut self, kind: u8, body: &Body) -> Try {
        self.line.begin();
        send(&mut self.line, kind, &body.0).map_err(|error| format!("{error:#}"))
    }

    pub fn packet(&mut self) -> Try<Vec<u8>> {
        self.line.begin();
        let (kind, body) = receive(&mut self.line).map_err(|error| format!("{error:#}"))?;
        Ok([&[kind], &body[..]].concat())
    }

    /// Sends a request without waiting; returns its id.
    pub fn ask(&mut self, kind: u8, body: &Body) -> Try<u32> {
        let id = self.next;
        self.next += 1;
        let mut numbered = Body::default().u32(id);
        numbered.0.extend_from_slice(&body.0);
        self.send(kind, &numbered)?;
        Ok(id)
    }

    /// Reads the next reply; returns the id of its request too.
    pub fn reply(&mut self) -> Try<(u32, Reply)> {
        let packet = self.packet()?;
        let mut reader = Reader(&packet[1..]);
        let id = reader.u32().map_err(|error| error.to_string())?;
        let reply = Reply::read(packet[0], &mut reader).map_err(|error| error.to_string());
        let (reply, why) = reply?;
        self.why = why;
        Ok((id, reply))
    }

    pub fn call(&mut self, kind: u8, body: &Body) -> Try<Reply> {
        let asked = self.ask(kind, body)?;
        let (id, reply) = self.reply()?;
        if id == asked { Ok(reply) } else { Err("a reply to something else".into()) }
    }

    pub fn status(&mut self, kind: u8, body: &Body) -> Try<u32> {
        match self.call(kind, body)? {
            Reply::Status(code) => Ok(code),
            other => Err(format!("{} instead of a status", other.short())),
        }
    }

    pub fn ok(&mut self, what: &str, kind: u8, body: &Body) -> Try {
        match self.call(kind, body)? {
            Reply::Status(OK) => Ok(()),
            other => Err(format!("{what}: {}", other.short())),
        }
    }

    pub fn file(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Try<Vec<u8>> {
        let body = of(path).u32(flags).attrs(&Attrs::default());
        match self.call(kind::OPEN, &body)? {
            Reply::Handle(handle) => Ok(handle),
            other => Err(format!("open: {}", other.short())),
        }
    }

    pub fn write(&mut self, handle: &[u8], at: u64, bytes: &[u8]) -> Try {
        self.ok("write", kind::WRITE, &of(handle).u64(at).bytes(bytes))
    }

    pub fn read(&mut self, handle: &[u8], at: u64, count: u32) -> Try<Reply> {
        self.call(kind::READ, &of(handle).u64(at).u32(count))
    }

    pub fn close(&mut self, handle: &[u8]) -> Try {
        self.ok("close", kind::CLOSE, &of(handle))
    }

    pub fn put(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> Try {
        let handle = self.file(path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        self.write(&handle, 0, bytes)?;
        self.close(&handle)
    }

    /// The attributes in the reply to `kind` (STAT, LSTAT, FSTAT).
    pub fn attrs(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Try<Attrs> {
        match self.call(kind, &of(path))? {
            Reply::Attrs(attrs) => Ok(attrs),
            other => Err(format!("stat: {}", other.short())),
        }
    }

    /// The name in the reply to `kind` (REALPATH, READLINK).
    pub fn name(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Try<String> {
        match self.call(kind, &of(path))? {
            Reply::Names(names) => match &names[..] {
                [(name, ..)] => Ok(String::from_utf8_lossy(name).into_owned()),
                more => Err(format!("{} names", more.len())),
            },
            other => Err(other.short()),
        }
    }

    /// Lists a directory without `.` and `..`: name, long name, attributes.
    pub fn list(&mut self, path: impl AsRef<[u8]>) -> Try<Names> {
        let Reply::Handle(handle) = self.call(kind::OPENDIR, &of(path))? else {
            return Err("opendir failed".into());
        };
        let mut all = Vec::new();
        loop {
            match self.call(kind::READDIR, &of(&handle))? {
                Reply::Names(names) => {
                    all.extend(
                        names.into_iter().filter(|(name, ..)| name != b"." && name != b".."),
                    );
                }
                Reply::Status(EOF) => break,
                other => return Err(format!("readdir: {}", other.short())),
            }
        }
        self.close(&handle)?;
        Ok(all)
    }
}

pub mod kind {
    pub use mote_client::files::sftp::wire::kind::*;

    pub const RENAME: u8 = 18;
}

pub mod flag {
    pub use mote_client::files::sftp::wire::open::*;

    pub const APPEND: u32 = 4;
    pub const EXCLUSIVE: u32 = 32;
}

pub const OK: u32 = 0;
pub const EOF: u32 = 1;
pub const NO_FILE: u32 = 2;
pub const FAILURE: u32 = 4;
pub const UNSUPPORTED: u32 = 8;

pub fn of(text: impl AsRef<[u8]>) -> Body {
    Body::default().bytes(text)
}

pub type Names = Vec<(Vec<u8>, Vec<u8>, Attrs)>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(u32),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    Names(Names),
    Attrs(Attrs),
    /// 64-bit numbers in the reply to an extended request.
    Numbers(Vec<u64>),
}

impl Reply {
    /// Reads a reply's body after its id, and the message of a status. Nothing may follow.
    pub(super) fn read(kind: u8, reader: &mut Reader<'_>) -> anyhow::Result<(Self, String)> {
        let mut why = String::new();
        let reply = match kind {
            kind::STATUS => {
                let status = reader.status()?;
                if !reader.0.is_empty() {
                    let _language = reader.text()?;
                }
                why = status.message;
                Self::Status(status.code)
            }
            kind::HANDLE => Self::Handle(reader.bytes()?.to_vec()),
            kind::DATA => Self::Data(reader.bytes()?.to_vec()),
            kind::NAME => {
                let mut names = Vec::new();
                for _ in 0..reader.u32()? {
                    let (name, long) = (reader.bytes()?.to_vec(), reader.bytes()?.to_vec());
                    names.push((name, long, reader.attrs()?));
                }
                Self::Names(names)
            }
            kind::ATTRS => Self::Attrs(reader.attrs()?),
            kind::EXTENDED_REPLY => {
                let count = reader.0.len() / 8;
                Self::Numbers((0..count).map(|_| reader.u64()).collect::<anyhow::Result<_>>()?)
            }
            other => bail!("packet {other} is not a reply"),
        };
        reader.end()?;
        Ok((reply, why))
    }

    pub fn short(&self) -> String {
        match self {
            Self::Status(code) => format!("status {code}"),
            Self::Handle(_) => "a handle".into(),
            Self::Data(data) => format!("{} bytes", data.len()),
            Self::Names(names) => format!("{} names", names.len()),
            Self::Attrs(_) => "attributes".into(),
            Self::Numbers(_) => "an extension's reply".into(),
        }
    }
}
