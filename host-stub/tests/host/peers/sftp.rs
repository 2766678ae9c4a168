//! A guest whose SFTP server answers each request with the result of a test's function.

use std::io::{Error, Write};

use mote_client::Message;
use mote_client::files::sftp::client::{receive, send};
pub(crate) use mote_client::files::sftp::wire::kind::{
    FSTAT, LSTAT, OPEN, OPENDIR, READ, READDIR, READLINK, STAT,
};
use mote_client::files::sftp::wire::{Attrs, END, Reader, Writer, kind};

use super::agent::{self, Stream};
use super::host::Host;

pub(crate) struct Asked {
    pub(crate) kind: u8,
    /// The path of the request. A handle contains the path of its file.
    pub(crate) path: String,
    /// Counts the requests of this kind for this path in this session, from 0.
    pub(crate) nth: usize,
}

pub(crate) enum Said {
    File,
    Directory,
    Link,
    /// Attributes with this mode. The second number is the user id and the group id.
    Other(u32, u32),
    Refused(u32),
    Names(Vec<String>),
    Target(&'static str),
    Data(Vec<u8>),
    /// The end of a file or list.
    End,
    Done,
    Handle,
    /// Endless unsolicited answers.
    Flood,
    /// Data that arrives one byte at a time for half a minute.
    Trickle,
}

pub(crate) fn guest(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Host {
    agent::host(move |request, mut stream| serve(request, &mut stream, &answer))
}

/// Answers for a tree: `names` are below each directory, and `what` returns the type of a path.
pub(crate) fn of_tree(asked: &Asked, what: impl Fn(&str) -> Said, names: &[&str]) -> Said {
    match (asked.kind, asked.nth) {
        (LSTAT | STAT | FSTAT, _) => what(&asked.path),
        (OPENDIR | OPEN, _) => Said::Handle,
        (READDIR, 0) => Said::Names(names.iter().map(|name| (*name).to_owned()).collect()),
        (READ, nth) if nth % 2 == 0 => Said::Data(b"of the guest".to_vec()),
        (READDIR | READ, _) => Said::End,
        _ => Said::Done,
    }
}

/// Answers the upgrade, then the requests of the session.
pub(crate) fn serve(
    request: &Message,
    stream: &mut Stream,
    answer: &dyn Fn(&Asked) -> Said,
) -> std::io::Result<()> {
    assert_eq!((&*request.method, &*request.target), ("GET", "/1.0/sftp"));
    let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: sftp\r\nConnection: Upgrade\r\n\r\n";
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    let mut seen: Vec<(u8, String)> = Vec::new();
    let mut next = || -> anyhow::Result<()> {
        let (kind, body) = receive(stream)?;
        if kind == kind::INIT {
            return send(stream, kind::VERSION, &body);
        }
        let mut body = Reader(&body);
        let (id, path) = (Writer::default().u32(body.u32()?), body.text()?);
        let nth = seen.iter().filter(|one| **one == (kind, path.clone())).count();
        // Limit the list, because a session may have endless requests.
        if seen.len() < 10_000 {
            seen.push((kind, path.clone()));
        }
        let said = answer(&Asked { kind, path: path.clone(), nth });
        tell(stream, id, &path, said)
    };
    loop {
        next().map_err(Error::other)?;
    }
}

fn tell(stream: &mut Stream, id: Writer, path: &str, said: Said) -> anyhow::Result<()> {
    let status = |code: u32| (kind::STATUS, id.clone().u32(code).bytes("").bytes(""));
    let attrs = |mode: u32, owner: u32| {
        let (owner, times) = (Some((owner, owner)), Some((0, 0)));
        let attrs = Attrs { size: Some(3), owner, mode: Some(mode), times };
        (kind::ATTRS, id.clone().attrs(&attrs))
    };
    let names = |all: &[String]| {
        let count = id.clone().u32(u32::try_from(all.len()).unwrap());
        let add = |packet: Writer, name: &String| packet.bytes(name).bytes(name).u32(0);
        (kind::NAME, all.iter().fold(count, add))
    };
    let (kind, body) = match said {
        Said::File => attrs(0o100_644, 0),
        Said::Directory => attrs(0o040_755, 0),
        Said::Link => attrs(0o120_777, 0),
        Said::Other(mode, owner) => attrs(mode, owner),
        Said::Refused(code) => status(code),
        Said::Handle => (kind::HANDLE, id.bytes(path)),
        Said::Data(bytes) => (kind::DATA, id.bytes(bytes)),
        Said::Target(to) => names(&[to.to_owned()]),
        Said::Names(all) => names(&all),
        Said::End => status(END),
        Said::Done => status(0),
        Said::Trickle => {
            stream.write_all(&[0, 0, 0x40, 0, 103])?;
            for _ in 0..150 {
                stream.write_all(&[0])?;
                stream.flush()?;
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            return Ok(());
        }
        Said::Flood => {
            let big = [&0xffff_0000u32.to_be_bytes()[..], &[0; 60_000]].concat();
            loop {
                send(stream, kind::STATUS, &big)?;
            }
        }
    };
    send(stream, kind, &body.0)?;
    Ok(stream.flush()?)
}
