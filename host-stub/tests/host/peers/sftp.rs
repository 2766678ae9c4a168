//! A guest whose SFTP server answers each request with the result of a test's function.

use std::io::{Read, Write};

use mote_client::net::http::Message;

use super::host::Host;
use super::liar::{self, Stream};

pub(crate) const OPEN: u8 = 3;
pub(crate) const READ: u8 = 5;
pub(crate) const LSTAT: u8 = 7;
pub(crate) const FSTAT: u8 = 8;
pub(crate) const OPENDIR: u8 = 11;
pub(crate) const READDIR: u8 = 12;
pub(crate) const STAT: u8 = 17;
pub(crate) const READLINK: u8 = 19;
const STATUS: u8 = 101;
const END_OF_FILE: u32 = 1;

pub(crate) struct Asked {
    pub(crate) kind: u8,
    /// The path, or the handle, which is the path.
    pub(crate) path: String,
    /// Counts the requests of this kind for this path in this session, from 0.
    pub(crate) nth: usize,
}

pub(crate) enum Said {
    File,
    Directory,
    Link,
    /// Attributes with this mode; the second number is user and group id.
    Other(u32, u32),
    /// A refusal with this code.
    Refused(u32),
    /// Names in one packet.
    Names(Vec<String>),
    /// The target of a link.
    Target(&'static str),
    Data(Vec<u8>),
    /// The end of a file or list.
    End,
    Done,
    /// A handle: the path.
    Handle,
    /// Eleven times this number.
    Numbers(u64),
    /// Endless unsolicited answers.
    Flood,
    /// Data that arrives one byte at a time for half a minute.
    Trickle,
}

/// Returns a host whose guest `vm1` answers like this.
pub(crate) fn guest(answer: impl Fn(&Asked) -> Said + Send + Sync + 'static) -> Host {
    liar::host(move |request, mut stream| serve(request, &mut stream, &answer))
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
    loop {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let length = u32::from_be_bytes(head[..4].try_into().unwrap());
        let mut body = vec![0; usize::try_from(length).unwrap() - 1];
        stream.read_exact(&mut body)?;
        if head[4] == 1 {
            say(stream, 2, &3u32.to_be_bytes())?;
            continue;
        }
        let (id, rest) = body.split_at(4);
        let count = usize::try_from(u32::from_be_bytes(rest[..4].try_into().unwrap())).unwrap();
        let path = String::from_utf8_lossy(&rest[4..4 + count]).into_owned();
        let key = (head[4], path.clone());
        let nth = seen.iter().filter(|one| **one == key).count();
        // Bounded, because a session may have endless requests.
        if seen.len() < 10_000 {
            seen.push(key);
        }
        let said = answer(&Asked { kind: head[4], path: path.clone(), nth });
        tell(stream, id, &path, said)?;
    }
}

fn tell(stream: &mut Stream, id: &[u8], path: &str, said: Said) -> std::io::Result<()> {
    let status = |code: u32| [id, &code.to_be_bytes(), &text(b""), &text(b"")].concat();
    let owned = |mode: u32, owner: u32| {
        // Size, owner, mode, times.
        let fields = [0, 3, owner, owner, mode, 0, 0].map(u32::to_be_bytes).concat();
        [id, &15u32.to_be_bytes(), &fields].concat()
    };
    let attrs = |mode| owned(mode, 0);
    match said {
        Said::File => say(stream, 105, &attrs(0o100_644)),
        Said::Directory => say(stream, 105, &attrs(0o040_755)),
        Said::Link => say(stream, 105, &attrs(0o120_777)),
        Said::Other(mode, owner) => say(stream, 105, &owned(mode, owner)),
        Said::Refused(code) => say(stream, STATUS, &status(code)),
        Said::Handle => say(stream, 102, &[id, &text(path.as_bytes())].concat()),
        Said::Data(bytes) => say(stream, 103, &[id, &text(&bytes)].concat()),
        Said::Target(to) => say(stream, 104, &names(id, &[to.to_owned()])),
        Said::Names(all) => say(stream, 104, &names(id, &all)),
        Said::Numbers(number) => say(stream, 201, &[id, &number.to_be_bytes().repeat(11)].concat()),
        Said::End => say(stream, STATUS, &status(END_OF_FILE)),
        Said::Done => say(stream, STATUS, &status(0)),
        Said::Trickle => {
            stream.write_all(&[0, 0, 0x40, 0, 103])?;
            for _ in 0..150 {
                stream.write_all(&[0])?;
                stream.flush()?;
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            Ok(())
        }
        Said::Flood => {
            let big = [&0xffff_0000u32.to_be_bytes()[..], &[0; 60_000]].concat();
            loop {
                say(stream, STATUS, &big)?;
            }
        }
    }
}

fn names(id: &[u8], all: &[String]) -> Vec<u8> {
    let count = u32::try_from(all.len()).unwrap();
    let mut body = [id, &count.to_be_bytes()].concat();
    for name in all {
        body.extend([text(name.as_bytes()), text(name.as_bytes()), vec![0; 4]].concat());
    }
    body
}

fn text(bytes: &[u8]) -> Vec<u8> {
    [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn say(stream: &mut Stream, kind: u8, body: &[u8]) -> std::io::Result<()> {
    let length = u32::try_from(body.len() + 1).unwrap();
    stream.write_all(&[&length.to_be_bytes()[..], &[kind], body].concat())?;
    stream.flush()
}
