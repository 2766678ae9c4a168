//! A separate SFTP client for packets that OpenSSH never sends. It encodes packets itself, so the
//! agent's codec is not checked by itself.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

pub use crate::conform::sftp::{Attrs, flag as open, kind};
use crate::conform::sftp::{Body, Reader, framed};
use crate::{Process, agent, patient, proc};

#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Int(u32),
    Long(u64),
    /// Bytes after their length.
    Text(&'a [u8]),
}
pub use Field::{Int, Long, Text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Status(u32),
    Handle(Vec<u8>),
    Data(Vec<u8>),
    /// Names with their long forms and attributes.
    Names(Vec<(Vec<u8>, Vec<u8>, Attrs)>),
    Attrs(Attrs),
    Numbers(Vec<u64>),
}

/// A server and our end of its socket.
#[derive(Debug)]
pub struct Session {
    pub server: Process,
    pub socket: UnixStream,
    id: u32,
}

impl Session {
    /// Starts a server in a directory. A reply that takes longer than 10 s fails the test.
    pub fn start(directory: &Path) -> Self {
        let mut command = Command::new(agent());
        let mut session = Self::with(command.args(["sftp-server", "-d"]).arg(directory));
        session.hello();
        session
    }

    /// Sends INIT. Returns the answer.
    pub fn hello(&mut self) -> Vec<u8> {
        let init = [0, 0, 0, 5, kind::INIT, 0, 0, 0, 3];
        self.socket.write_all(&init).expect("a server that reads");
        self.receive_raw()
    }

    /// Starts a server by this command, without INIT.
    pub fn with(command: &mut Command) -> Self {
        command.envs([crate::AS_AGENT]);
        let (socket, theirs) = UnixStream::pair().expect("a socket");
        let theirs = OwnedFd::from(theirs);
        let server = Process::bounded(
            command
                .stdin(Stdio::from(theirs.try_clone().expect("a descriptor")))
                .stdout(Stdio::from(theirs))
                // stderr would show why a session ended, which is expected here.
                .stderr(Stdio::null()),
        );
        // No other copy of these sockets may remain, or neither side would see the end.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        socket.set_read_timeout(Some(patient(Duration::from_secs(10)))).expect("a timeout");
        socket.set_write_timeout(Some(patient(Duration::from_secs(10)))).expect("a timeout");
        Self { server, socket, id: 0 }
    }

    /// Sends a request without waiting. Returns its id.
    pub fn send(&mut self, kind: u8, fields: &[Field<'_>]) -> u32 {
        self.id += 1;
        let packet = packet(kind, self.id, fields);
        self.socket.write_all(&packet).expect("a server that reads");
        self.id
    }

    /// Returns the next reply and its id.
    pub fn receive(&mut self) -> (u32, Reply) {
        let packet = self.receive_raw();
        let mut rest = Reader(packet.get(1..).expect("an id"));
        let id = rest.u32().expect("an id");
        let text = |rest: &mut Reader<'_>| rest.str().expect("a text");
        let reply = match packet[0] {
            101 => {
                let code = rest.u32().expect("a code");
                let _message = (text(&mut rest), text(&mut rest));
                Reply::Status(code)
            }
            102 => Reply::Handle(text(&mut rest)),
            103 => Reply::Data(text(&mut rest)),
            104 => Reply::Names(
                (0..rest.u32().expect("a number"))
                    .map(|_| (text(&mut rest), text(&mut rest), attrs(&mut rest)))
                    .collect(),
            ),
            105 => Reply::Attrs(attrs(&mut rest)),
            201 => {
                let count = rest.0.len() / 8;
                let numbers = (0..count).map(|_| rest.u64().expect("eight bytes"));
                Reply::Numbers(numbers.collect())
            }
            other => panic!("a reply of type {other}"),
        };
        assert_eq!(rest.0, b"", "bytes behind a reply");
        (id, reply)
    }

    pub fn receive_raw(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).expect("a reply");
        let length = usize::try_from(u32::from_be_bytes(length)).expect("a length");
        assert!(length <= 256 * 1024, "a reply of {length} bytes");
        let mut packet = vec![0; length];
        self.socket.read_exact(&mut packet).expect("a whole reply");
        packet
    }

    pub fn ask(&mut self, kind: u8, fields: &[Field<'_>]) -> Reply {
        let asked = self.send(kind, fields);
        let (id, reply) = self.receive();
        assert_eq!(id, asked);
        reply
    }

    /// Sends a request that must succeed.
    pub fn done(&mut self, kind: u8, fields: &[Field<'_>]) {
        assert_eq!(self.ask(kind, fields), Reply::Status(0), "{kind} {fields:?}");
    }

    pub fn open(&mut self, path: &[u8], flags: u32) -> Vec<u8> {
        let reply = self.ask(kind::OPEN, &[Text(path), Int(flags), Int(0)]);
        let Reply::Handle(handle) = reply else { panic!("{reply:?}") };
        handle
    }

    pub fn stat(&mut self, kind: u8, path: &[u8]) -> Attrs {
        let reply = self.ask(kind, &[Text(path)]);
        let Reply::Attrs(attrs) = reply else { panic!("{reply:?}") };
        attrs
    }

    /// Sends REALPATH or READLINK. Checks that the reply has one name and its long form.
    pub fn path(&mut self, kind: u8, path: &[u8]) -> Vec<u8> {
        let Reply::Names(names) = self.ask(kind, &[Text(path)]) else {
            panic!("nothing for {}", String::from_utf8_lossy(path))
        };
        assert_eq!(names.len(), 1);
        let (name, shown, attrs) = &names[0];
        let steers = |byte: &u8| if byte.is_ascii_control() { b'?' } else { *byte };
        assert_eq!(shown, &name.iter().map(steers).collect::<Vec<_>>());
        assert_eq!(*attrs, Attrs::default());
        name.clone()
    }

    /// Lists a directory in order, without `.` and `..`.
    pub fn list(&mut self, path: &[u8]) -> Vec<(Vec<u8>, Vec<u8>, Attrs)> {
        let Reply::Handle(handle) = self.ask(kind::OPENDIR, &[Text(path)]) else {
            panic!("not opened")
        };
        let mut all = Vec::new();
        loop {
            let reply = self.ask(kind::READDIR, &[Text(&handle)]);
            if reply == Reply::Status(1) {
                break;
            }
            let Reply::Names(names) = reply else { panic!("{reply:?}") };
            all.extend(names);
        }
        self.done(kind::CLOSE, &[Text(&handle)]);
        all.retain(|(name, ..)| name != b"." && name != b"..");
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// Returns a field of `/proc/PID/status`, kB.
    pub fn memory(&self, field: &str) -> u64 {
        proc::memory(self.server.0.id(), "status", field)
    }
}

pub fn packet(kind: u8, id: u32, fields: &[Field<'_>]) -> Vec<u8> {
    let body = fields.iter().fold(Body::default().u32(id), |body, field| match field {
        Int(value) => body.u32(*value),
        Long(value) => body.u64(*value),
        Text(bytes) => body.str(bytes),
    });
    framed(kind, &body.0)
}

pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

/// Reads a file's attributes, which must all be of version 3.
fn attrs(rest: &mut Reader<'_>) -> Attrs {
    let flags = Reader(rest.0).u32().expect("flags");
    assert_eq!(flags & !15, 0);
    rest.attrs().expect("attributes")
}
