//! Drives an SFTP server with what OpenSSH's client would never send. A failure ends the test.

use crate::conform::sftp::{Body, Names, Sftp};
use crate::prelude::*;

pub use Field::{Int, Long, Text};

pub use crate::conform::sftp::{Attrs, Reply, flag as open, kind};

#[derive(Clone, Copy, Debug)]
pub enum Field<'a> {
    Int(u32),
    Long(u64),
    /// Bytes after their length.
    Text(&'a [u8]),
}

pub struct Session {
    pub server: Process,
    pub socket: UnixStream,
    sftp: Sftp<UnixStream>,
}

impl Session {
    /// Starts a server in a directory. A reply that takes longer than 10 s fails the test.
    pub fn start(directory: &Path) -> Self {
        let mut command = Command::new(agent());
        let mut session = Self::with(command.args(["sftp-server", "-d"]).arg(directory));
        session.hello();
        session
    }

    pub fn hello(&mut self) -> Vec<u8> {
        self.sftp.hello().expect("VERSION")
    }

    /// Starts a server by this command, without INIT.
    pub fn with(command: &mut Command) -> Self {
        command.envs([AS_AGENT]);
        let (socket, theirs) = UnixStream::pair().expect("a socket");
        let theirs = OwnedFd::from(theirs);
        let server = Process::bounded(
            command
                .stdin(Stdio::from(theirs.try_clone().expect("a descriptor")))
                .stdout(Stdio::from(theirs))
                // Discard stderr, which would only show why a session ended.
                .stderr(Stdio::null()),
        );
        // Drops the command's copies of the sockets, or neither side would see the end.
        command.stdin(Stdio::null()).stdout(Stdio::null());
        socket.set_read_timeout(Some(patient(Duration::from_secs(10)))).expect("a timeout");
        socket.set_write_timeout(Some(patient(Duration::from_secs(10)))).expect("a timeout");
        let sftp = Sftp::over(socket.try_clone().expect("a descriptor"));
        Self { server, socket, sftp }
    }

    pub fn send(&mut self, kind: u8, fields: &[Field<'_>]) -> u32 {
        self.sftp.ask(kind, &body(fields)).expect("a server that reads")
    }

    pub fn receive(&mut self) -> (u32, Reply) {
        self.sftp.reply().expect("a reply")
    }

    pub fn receive_raw(&mut self) -> Vec<u8> {
        self.sftp.packet().expect("a reply")
    }

    pub fn ask(&mut self, kind: u8, fields: &[Field<'_>]) -> Reply {
        self.sftp.call(kind, &body(fields)).expect("its reply")
    }

    pub fn done(&mut self, kind: u8, fields: &[Field<'_>]) {
        assert_eq!(self.ask(kind, fields), Reply::Status(0), "{kind} {fields:?}");
    }

    pub fn open(&mut self, path: &[u8], flags: u32) -> Vec<u8> {
        self.sftp.file(path, flags).expect("a handle")
    }

    pub fn stat(&mut self, kind: u8, path: &[u8]) -> Attrs {
        self.sftp.attrs(kind, path).expect("attributes")
    }

    /// Sends REALPATH or READLINK. Checks that the reply has one name and its long form.
    pub fn path(&mut self, kind: u8, path: &[u8]) -> Vec<u8> {
        let Reply::Names(names) = self.ask(kind, &[Text(path)]) else {
            panic!("nothing for {}", String::from_utf8_lossy(path))
        };
        let [(name, shown, attrs)] = &names[..] else { panic!("{names:?}") };
        let steers = |byte: &u8| if byte.is_ascii_control() { b'?' } else { *byte };
        assert_eq!(shown, &name.iter().map(steers).collect::<Vec<_>>());
        assert_eq!(*attrs, Attrs::default());
        name.clone()
    }

    pub fn list(&mut self, path: &[u8]) -> Names {
        let mut all = self.sftp.list(path).expect("a list");
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    pub fn memory(&self, field: &str) -> u64 {
        proc::memory(self.server.0.id(), "status", field)
    }
}

fn body(fields: &[Field<'_>]) -> Body {
    fields.iter().fold(Body::default(), |body, field| match field {
        Int(value) => body.u32(*value),
        Long(value) => body.u64(*value),
        Text(bytes) => body.bytes(bytes),
    })
}

pub fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
