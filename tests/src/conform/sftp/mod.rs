//! A minimal client of SFTP version 3 (draft-ietf-secsh-filexfer-02), for the claims (P§4.4).

mod packet;

pub use packet::{Attrs, Body, EOF, FAILURE, NO_FILE, OK, Reply, UNSUPPORTED, flag, kind};

use super::client::Client;
use super::wire::{Answer, Wire};
pub(crate) use packet::{Reader, framed};

#[derive(Debug)]
pub struct Sftp {
    wire: Wire,
    next: u32,
    pub version: u32,
    /// The server's extensions: name, version.
    pub extensions: Vec<(String, String)>,
}

impl Sftp {
    /// Requests an upgrade to `protocol`; returns the answer and the connection.
    pub fn upgrade(agent: &Client, protocol: &str) -> Result<(Answer, Wire), String> {
        let mut wire = agent.connect()?;
        let fields = format!("Connection: Upgrade\r\nUpgrade: {protocol}\r\n");
        let answer = wire.ask("GET", "/1.0/sftp", &fields, b"")?;
        Ok((answer, wire))
    }

    /// Opens a session and reads VERSION.
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
        self.wire.send(&framed(kind, payload))
    }

    fn packet(&mut self) -> Result<(u8, Vec<u8>), String> {
        let length = Reader(&self.wire.take(4)?).u32()? as usize;
        let packet = self.wire.take(length)?;
        let (kind, payload) = packet.split_first().ok_or("an empty packet")?;
        Ok((*kind, payload.to_vec()))
    }

    /// Sends a request without waiting; returns its id.
    pub fn ask(&mut self, kind: u8, body: &Body) -> Result<u32, String> {
        let id = self.next;
        self.next += 1;
        let mut payload = id.to_be_bytes().to_vec();
        payload.extend(&body.0);
        self.send(kind, &payload)?;
        Ok(id)
    }

    /// Reads the next reply; returns the id of its request too.
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
            other => return Err(format!("packet {other} is not a reply")),
        };
        Ok((id, reply))
    }

    /// Sends a request and reads its reply.
    pub fn call(&mut self, kind: u8, body: &Body) -> Result<Reply, String> {
        let asked = self.ask(kind, body)?;
        let (id, reply) = self.reply()?;
        if id == asked { Ok(reply) } else { Err("a reply to something else".into()) }
    }

    /// Sends a request whose reply must be a status; returns its code.
    pub fn status(&mut self, kind: u8, body: &Body) -> Result<u32, String> {
        match self.call(kind, body)? {
            Reply::Status(code, _) => Ok(code),
            other => Err(format!("{} instead of a status", other.short())),
        }
    }

    /// Sends a request whose reply must be the status OK.
    pub fn ok(&mut self, what: &str, kind: u8, body: &Body) -> Result<(), String> {
        match self.call(kind, body)? {
            Reply::Status(OK, _) => Ok(()),
            other => Err(format!("{what}: {}", other.short())),
        }
    }

    /// Opens a file; returns its handle.
    pub fn file(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Result<Vec<u8>, String> {
        let body = Body::of(path).u32(flags).attrs(&Attrs::default());
        match self.call(kind::OPEN, &body)? {
            Reply::Handle(handle) => Ok(handle),
            other => Err(format!("open: {}", other.short())),
        }
    }

    /// Writes at offset `at`.
    pub fn write(&mut self, handle: &[u8], at: u64, bytes: &[u8]) -> Result<(), String> {
        self.ok("write", kind::WRITE, &Body::of(handle).u64(at).str(bytes))
    }

    /// Reads `count` bytes at offset `at`.
    pub fn read(&mut self, handle: &[u8], at: u64, count: u32) -> Result<Reply, String> {
        self.call(kind::READ, &Body::of(handle).u64(at).u32(count))
    }

    pub fn close(&mut self, handle: &[u8]) -> Result<(), String> {
        self.ok("close", kind::CLOSE, &Body::of(handle))
    }

    /// Creates or replaces a file with this content.
    pub fn put(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> Result<(), String> {
        let handle = self.file(path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        self.write(&handle, 0, bytes)?;
        self.close(&handle)
    }

    /// The attributes in the reply to `kind` (STAT, LSTAT, FSTAT).
    pub fn attrs(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<Attrs, String> {
        match self.call(kind, &Body::of(path))? {
            Reply::Attrs(attrs) => Ok(attrs),
            other => Err(format!("stat: {}", other.short())),
        }
    }

    /// The name in the reply to `kind` (REALPATH, READLINK).
    pub fn name(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<String, String> {
        match self.call(kind, &Body::of(path))? {
            Reply::Names(names) => match &names[..] {
                [(name, ..)] => Ok(String::from_utf8_lossy(name).into_owned()),
                more => Err(format!("{} names", more.len())),
            },
            other => Err(other.short()),
        }
    }

    /// Lists a directory without `.` and `..`: name, long name, attributes.
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
