//! A minimal client of SFTP version 3 (draft-ietf-secsh-filexfer-02), for the claims (P§4.4).

mod packet;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use mote_client::files::sftp::client::{receive, send};
use mote_client::files::sftp::wire::Reader;

pub use packet::{
    Attrs, Body, EOF, FAILURE, NO_FILE, Names, OK, Reply, UNSUPPORTED, flag, kind, of,
};

use super::client::Client;
use super::wire::{Answer, Wire};

/// What a session runs over: TLS to an agent, or a socket of a server without one.
pub trait Line: Read + Write {
    /// Begins a packet, for which a time limit may hold.
    fn begin(&mut self) {}
}

impl Line for Wire {
    fn begin(&mut self) {
        Self::begin(self);
    }
}

impl Line for UnixStream {}

#[derive(Debug)]
pub struct Sftp<L = Wire> {
    line: L,
    next: u32,
    pub version: u32,
    /// The server's extensions: name, version.
    pub extensions: Vec<(String, String)>,
    /// Message of the last status.
    pub why: String,
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
    pub fn hello(&mut self) -> Result<Vec<u8>, String> {
        self.send(kind::INIT, &Body::default().u32(3))?;
        self.packet()
    }

    fn send(&mut self, kind: u8, body: &Body) -> Result<(), String> {
        self.line.begin();
        send(&mut self.line, kind, &body.0).map_err(|error| format!("{error:#}"))
    }

    /// Reads a packet: its type, and what follows.
    pub fn packet(&mut self) -> Result<Vec<u8>, String> {
        self.line.begin();
        let (kind, body) = receive(&mut self.line).map_err(|error| format!("{error:#}"))?;
        Ok([&[kind], &body[..]].concat())
    }

    /// Sends a request without waiting; returns its id.
    pub fn ask(&mut self, kind: u8, body: &Body) -> Result<u32, String> {
        let id = self.next;
        self.next += 1;
        let mut numbered = Body::default().u32(id);
        numbered.0.extend_from_slice(&body.0);
        self.send(kind, &numbered)?;
        Ok(id)
    }

    /// Reads the next reply; returns the id of its request too.
    pub fn reply(&mut self) -> Result<(u32, Reply), String> {
        let packet = self.packet()?;
        let mut reader = Reader(&packet[1..]);
        let id = reader.u32().map_err(|error| error.to_string())?;
        let reply = Reply::read(packet[0], &mut reader).map_err(|error| error.to_string());
        let (reply, why) = reply?;
        self.why = why;
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
            Reply::Status(code) => Ok(code),
            other => Err(format!("{} instead of a status", other.short())),
        }
    }

    /// Sends a request whose reply must be the status OK.
    pub fn ok(&mut self, what: &str, kind: u8, body: &Body) -> Result<(), String> {
        match self.call(kind, body)? {
            Reply::Status(OK) => Ok(()),
            other => Err(format!("{what}: {}", other.short())),
        }
    }

    /// Opens a file; returns its handle.
    pub fn file(&mut self, path: impl AsRef<[u8]>, flags: u32) -> Result<Vec<u8>, String> {
        let body = of(path).u32(flags).attrs(&Attrs::default());
        match self.call(kind::OPEN, &body)? {
            Reply::Handle(handle) => Ok(handle),
            other => Err(format!("open: {}", other.short())),
        }
    }

    pub fn write(&mut self, handle: &[u8], at: u64, bytes: &[u8]) -> Result<(), String> {
        self.ok("write", kind::WRITE, &of(handle).u64(at).bytes(bytes))
    }

    /// Reads `count` bytes at offset `at`.
    pub fn read(&mut self, handle: &[u8], at: u64, count: u32) -> Result<Reply, String> {
        self.call(kind::READ, &of(handle).u64(at).u32(count))
    }

    pub fn close(&mut self, handle: &[u8]) -> Result<(), String> {
        self.ok("close", kind::CLOSE, &of(handle))
    }

    /// Creates or replaces a file with this content.
    pub fn put(&mut self, path: impl AsRef<[u8]>, bytes: &[u8]) -> Result<(), String> {
        let handle = self.file(path, flag::WRITE | flag::CREATE | flag::TRUNCATE)?;
        self.write(&handle, 0, bytes)?;
        self.close(&handle)
    }

    /// The attributes in the reply to `kind` (STAT, LSTAT, FSTAT).
    pub fn attrs(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<Attrs, String> {
        match self.call(kind, &of(path))? {
            Reply::Attrs(attrs) => Ok(attrs),
            other => Err(format!("stat: {}", other.short())),
        }
    }

    /// The name in the reply to `kind` (REALPATH, READLINK).
    pub fn name(&mut self, kind: u8, path: impl AsRef<[u8]>) -> Result<String, String> {
        match self.call(kind, &of(path))? {
            Reply::Names(names) => match &names[..] {
                [(name, ..)] => Ok(String::from_utf8_lossy(name).into_owned()),
                more => Err(format!("{} names", more.len())),
            },
            other => Err(other.short()),
        }
    }

    /// Lists a directory without `.` and `..`: name, long name, attributes.
    pub fn list(&mut self, path: impl AsRef<[u8]>) -> Result<Names, String> {
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
