//! An SFTP client with one request at a time; `transfer` keeps many in flight for the content of
//! files. The server is not trusted: lengths are bounded, and names must be single components.

use std::ffi::OsString;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};

use super::wire::{Attrs, END, NO_SUCH_FILE, Reader, Refused, Writer, kind};
use crate::common::limits::{LISTING, SFTP_PACKET};
use crate::printable;

/// The protocol version that all servers use.
const VERSION: u32 = 3;
/// Memory for an entry without its texts, in bytes.
const ENTRY: usize = 128;

pub struct Client<S> {
    pub stream: S,
    next: u32,
}

#[derive(Debug)]
pub struct Answer {
    kind: u8,
    body: Vec<u8>,
}

/// An open file or directory.
#[derive(Clone, Debug)]
pub struct Handle(pub Vec<u8>);

#[derive(Clone, Debug)]
pub struct Entry {
    pub name: OsString,
    /// The line of `ls -l`.
    pub long: String,
    pub attrs: Attrs,
}

impl Answer {
    /// Returns the body of an answer of kind `wanted`. Any other answer is an error: the server's
    /// refusal, or an invalid packet.
    fn expect(&self, wanted: u8) -> Result<Reader<'_>> {
        if self.kind == wanted {
            return Ok(Reader(&self.body));
        }
        if self.kind == kind::STATUS {
            return Err(Reader(&self.body).status()?.into());
        }
        bail!("answer {} where {wanted} was expected", self.kind)
    }

    pub fn done(&self) -> Result<()> {
        let refused = self.expect(kind::STATUS)?.status()?;
        if refused.code == 0 { Ok(()) } else { Err(refused.into()) }
    }

    /// Returns a piece of a file; `None` at its end.
    pub fn data(&self) -> Result<Option<&[u8]>> {
        match self.expect(kind::DATA) {
            Ok(mut reader) => {
                let bytes = reader.bytes()?;
                reader.end()?;
                Ok(Some(bytes))
            }
            Err(error) if code(&error) == Some(END) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub fn code(error: &anyhow::Error) -> Option<u32> {
    error.downcast_ref::<Refused>().map(|refused| refused.code)
}

impl<S: Read + Write> Client<S> {
    pub fn start(mut stream: S) -> Result<Self> {
        send(&mut stream, kind::INIT, &Writer::default().u32(VERSION).0)?;
        let (kind, body) = receive(&mut stream).context("sftp")?;
        let mut reader = Reader(&body);
        let version = reader.u32()?;
        if kind != kind::VERSION || version != VERSION {
            bail!("packet {kind} with version {version} where VERSION 3 was expected");
        }
        Ok(Self { stream, next: 0 })
    }

    pub fn ask(&mut self, kind: u8, body: Writer) -> Result<u32> {
        let id = self.next;
        self.next = self.next.wrapping_add(1);
        let mut numbered = Writer::default().u32(id);
        numbered.0.extend_from_slice(&body.0);
        send(&mut self.stream, kind, &numbered.0)?;
        Ok(id)
    }

    pub fn any_answer(&mut self) -> Result<(u32, Answer)> {
        let (kind, mut body) = receive(&mut self.stream).context("sftp")?;
        let id = Reader(&body).u32()?;
        body.drain(..4);
        Ok((id, Answer { kind, body }))
    }

    /// Sends a request and waits for its answer while no other is in flight.
    fn call(&mut self, kind: u8, body: Writer) -> Result<Answer> {
        let wanted = self.ask(kind, body)?;
        match self.any_answer()? {
            (id, answer) if id == wanted => Ok(answer),
            _ => bail!("an unrequested answer"),
        }
    }

    /// Returns a path's attributes. Follows symbolic links.
    pub fn stat(&mut self, path: &Path) -> Result<Attrs> {
        self.call(kind::STAT, Writer::default().path(path))?.expect(kind::ATTRS)?.attrs()
    }

    /// Returns a path's attributes, which are the link's own if the path is a symbolic link.
    pub fn lstat(&mut self, path: &Path) -> Result<Attrs> {
        self.call(kind::LSTAT, Writer::default().path(path))?.expect(kind::ATTRS)?.attrs()
    }

    /// Like [`Self::lstat`], but returns `None` if the path does not exist.
    pub fn find(&mut self, path: &Path) -> Result<Option<Attrs>> {
        match self.lstat(path) {
            Ok(attrs) => Ok(Some(attrs)),
            Err(error) if code(&error) == Some(NO_SUCH_FILE) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub fn fstat(&mut self, handle: &Handle) -> Result<Attrs> {
        let body = Writer::default().bytes(&handle.0);
        self.call(kind::FSTAT, body)?.expect(kind::ATTRS)?.attrs()
    }

    pub fn setstat(&mut self, path: &Path, attrs: &Attrs) -> Result<()> {
        attrs.one_by_one().try_for_each(|attrs| {
            self.call(kind::SETSTAT, Writer::default().path(path).attrs(&attrs))?.done()
        })
    }

    pub fn fsetstat(&mut self, handle: &Handle, attrs: &Attrs) -> Result<()> {
        attrs.one_by_one().try_for_each(|attrs| {
            self.call(kind::FSETSTAT, Writer::default().bytes(&handle.0).attrs(&attrs))?.done()
        })
    }

    pub fn open(&mut self, path: &Path, flags: u32, attrs: &Attrs) -> Result<Handle> {
        let body = Writer::default().path(path).u32(flags).attrs(attrs);
        let answer = self.call(kind::OPEN, body)?;
        Ok(Handle(answer.expect(kind::HANDLE)?.bytes()?.to_vec()))
    }

    /// Closes a file. If this succeeds, the server has written all data.
    pub fn close(&mut self, handle: Handle) -> Result<()> {
        self.call(kind::CLOSE, Writer::default().bytes(&handle.0))?.done()
    }

    /// Returns the sorted entries of a directory, except `.` and `..`, and the bytes of [`LISTING`]
    /// that they use. More than `room` bytes, or a name with a slash, are an error.
    pub fn list(&mut self, path: &Path, room: usize) -> Result<(Vec<Entry>, usize)> {
        let answer = self.call(kind::OPENDIR, Writer::default().path(path))?;
        let handle = Handle(answer.expect(kind::HANDLE)?.bytes()?.to_vec());
        let (mut entries, mut cost) = (Vec::new(), 0);
        loop {
            let answer = self.call(kind::READDIR, Writer::default().bytes(&handle.0))?;
            let mut reader = match answer.expect(kind::NAME) {
                Ok(reader) => reader,
                Err(error) if code(&error) == Some(END) => break,
                Err(error) => return Err(error),
            };
            let count = reader.u32()?;
            if count == 0 {
                // A server could continue like this forever.
                bail!("an empty list instead of names or the end of the list");
            }
            for _ in 0..count {
                let (name, long, attrs) = (reader.path()?, reader.text()?, reader.attrs()?);
                cost += ENTRY + name.len() + long.len();
                if cost > room {
                    let most = LISTING / 1024 / 1024;
                    bail!("the lists of this directory and its parents exceed {most} MiB");
                }
                if name == "." || name == ".." {
                    continue;
                }
                if name.is_empty() || name.as_encoded_bytes().contains(&b'/') {
                    bail!("the guest sent an invalid file name: {}", printable::name(name));
                }
                entries.push(Entry { name, long, attrs });
            }
        }
        self.close(handle)?;
        entries.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((entries, cost))
    }

    pub fn readlink(&mut self, path: &Path) -> Result<PathBuf> {
        let answer = self.call(kind::READLINK, Writer::default().path(path))?;
        let mut reader = answer.expect(kind::NAME)?;
        match reader.u32()? {
            1 => Ok(reader.path()?.into()),
            count => bail!("{count} names where one was expected"),
        }
    }

    /// Creates a symbolic link. All servers use OpenSSH's order: target first.
    pub fn symlink(&mut self, target: &Path, link: &Path) -> Result<()> {
        self.call(kind::SYMLINK, Writer::default().path(target).path(link))?.done()
    }

    pub fn mkdir(&mut self, path: &Path, attrs: &Attrs) -> Result<()> {
        self.call(kind::MKDIR, Writer::default().path(path).attrs(attrs))?.done()
    }

    /// Removes a file, or else an empty directory, in the order of Go's client.
    pub fn remove(&mut self, path: &Path) -> Result<()> {
        let Err(error) = self.call(kind::REMOVE, Writer::default().path(path))?.done() else {
            return Ok(());
        };
        if code(&error) == Some(NO_SUCH_FILE) {
            return Err(error);
        }
        match self.call(kind::RMDIR, Writer::default().path(path))?.done() {
            Ok(()) => Ok(()),
            Err(second) if self.lstat(path).is_ok_and(|attrs| attrs.is_directory()) => Err(second),
            Err(_) => Err(error),
        }
    }
}

pub fn send(stream: &mut impl Write, kind: u8, body: &[u8]) -> Result<()> {
    let length = u32::try_from(body.len() + 1)?;
    let mut packet = Vec::with_capacity(body.len() + 5);
    packet.extend(length.to_be_bytes());
    packet.push(kind);
    packet.extend_from_slice(body);
    stream.write_all(&packet).map_err(in_words).context("sftp")
}

/// Replaces the errors for an expired time limit and a closed stream with messages.
fn in_words(error: io::Error) -> anyhow::Error {
    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        return anyhow!("the guest no longer answers");
    }
    if error.kind() == ErrorKind::UnexpectedEof {
        return anyhow!("the guest ended the session");
    }
    error.into()
}

pub fn receive(stream: &mut impl Read) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).map_err(in_words)?;
    let [a, b, c, d, kind] = head;
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d]))?;
    if length == 0 || length > SFTP_PACKET {
        bail!("invalid packet length: {length} bytes");
    }
    let mut body = vec![0; length - 1];
    stream.read_exact(&mut body).map_err(in_words)?;
    Ok((kind, body))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn gives_up_a_silent_guest() {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let error = receive(&mut ours).unwrap_err();
        assert_eq!(error.to_string(), "the guest no longer answers");
        drop(theirs);
        assert_eq!(receive(&mut ours).unwrap_err().to_string(), "the guest ended the session");
    }

    #[test]
    fn limits_the_length_of_packets() {
        assert!(receive(&mut &[0xff; 5][..]).is_err());
        assert!(receive(&mut &[0; 5][..]).is_err());
        assert_eq!(receive(&mut &[0, 0, 0, 1, 7][..]).unwrap(), (7, vec![]));
    }
}
