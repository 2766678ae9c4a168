//! Content of files over SFTP with many requests under way: a round trip through an emulated VM is
//! long (P§4.4).

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, bail};

use super::client::{Client, Handle};
use super::wire::{Writer, kind};

/// Bytes per request, which every server accepts.
pub const PIECE: usize = 32 * 1024;
/// Most requests under way.
const WINDOW: usize = 64;

/// Writes all of `source`. Calls `progress` with the number of bytes that the server accepted.
pub fn upload<S: Read + Write>(
    client: &mut Client<S>,
    handle: &Handle,
    source: &mut impl Read,
    mut progress: impl FnMut(u64),
) -> Result<u64> {
    let mut waiting: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut offset, mut is_over) = (0u64, false);
    let mut piece = vec![0; PIECE];
    let mut failed = None;
    while !is_over || !waiting.is_empty() {
        if !is_over && waiting.len() < WINDOW {
            let count = fill(source, &mut piece).context("reading the data to send")?;
            let bytes = piece.get(..count).unwrap_or_default();
            if bytes.is_empty() {
                is_over = true;
                continue;
            }
            let body = Writer::default().bytes(&handle.0).u64(offset).bytes(bytes);
            let count = u64::try_from(count)?;
            waiting.insert(client.ask(kind::WRITE, body)?, count);
            offset += count;
            continue;
        }
        let (id, answer) = client.any_answer()?;
        let Some(count) = waiting.remove(&id) else { bail!("an unrequested answer") };
        match answer.done() {
            Ok(()) => progress(count),
            Err(error) => {
                // The other answers are still read, so that the session can continue.
                is_over = true;
                failed.get_or_insert(error);
            }
        }
    }
    failed.map_or(Ok(offset), Err)
}

/// Fills the buffer as far as the source has data: servers are fastest with pieces of equal size.
fn fill(source: &mut impl Read, piece: &mut [u8]) -> std::io::Result<usize> {
    let mut count = 0;
    while let Some(rest) = piece.get_mut(count..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

/// A download. Parts arrive in any order and are written in the right one.
struct Download<'a, S> {
    client: &'a mut Client<S>,
    handle: &'a Handle,
    /// Parts by their offsets; `None` until they arrive.
    parts: BTreeMap<u64, Option<Vec<u8>>>,
    /// Requests under way: offset and length.
    waiting: BTreeMap<u32, (u64, usize)>,
    next: u64,
    window: usize,
    is_over: bool,
}

/// Reads all of a file into `sink`. Calls `progress` with the number of bytes received.
pub fn download<S: Read + Write>(
    client: &mut Client<S>,
    handle: &Handle,
    sink: &mut impl Write,
    mut progress: impl FnMut(u64),
) -> Result<u64> {
    let mut download = Download {
        client,
        handle,
        parts: BTreeMap::new(),
        waiting: BTreeMap::new(),
        next: 0,
        window: 1,
        is_over: false,
    };
    let mut total = 0;
    loop {
        // Parts that wait for an earlier one use memory too, so they count.
        while !download.is_over
            && download.waiting.len() < download.window
            && download.parts.len() < 2 * WINDOW
        {
            let at = download.next;
            download.ask(at, PIECE)?;
            download.next += u64::try_from(PIECE)?;
        }
        if download.waiting.is_empty() {
            return Ok(total);
        }
        if let Err(error) = download.answer() {
            // The other answers are still read, so that the session can continue.
            for _ in 0..download.waiting.len() {
                download.client.any_answer()?;
            }
            return Err(error);
        }
        while let Some((at, bytes)) = download.first() {
            if at != total {
                bail!("the file grew while it was read");
            }
            sink.write_all(&bytes).context("writing the received data")?;
            let count = u64::try_from(bytes.len())?;
            total += count;
            progress(count);
        }
    }
}

impl<S: Read + Write> Download<'_, S> {
    fn ask(&mut self, at: u64, length: usize) -> Result<()> {
        let body = Writer::default().bytes(&self.handle.0).u64(at).u32(u32::try_from(length)?);
        let id = self.client.ask(kind::READ, body)?;
        self.waiting.insert(id, (at, length));
        self.parts.insert(at, None);
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        let (id, answer) = self.client.any_answer()?;
        let Some((at, length)) = self.waiting.remove(&id) else { bail!("an unrequested answer") };
        match answer.data()? {
            None => {
                self.is_over = true;
                self.parts.remove(&at);
            }
            Some(bytes) if bytes.is_empty() || bytes.len() > length => {
                bail!("{} bytes instead of up to {length}", bytes.len())
            }
            Some(bytes) => {
                self.parts.insert(at, Some(bytes.to_vec()));
                if bytes.len() < length {
                    // Asks for the rest, unless the file ends here.
                    self.ask(at + u64::try_from(bytes.len())?, length - bytes.len())?;
                } else {
                    // Two requests at first, for small files; doubled with each answer.
                    self.window = (self.window * 2).min(WINDOW);
                }
            }
        }
        Ok(())
    }

    fn first(&mut self) -> Option<(u64, Vec<u8>)> {
        let mut first = self.parts.first_entry()?;
        let bytes = first.get_mut().take()?;
        Some((first.remove_entry().0, bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sftp::client::send;
    use crate::files::sftp::wire::Reader;

    /// A server with one file. It answers reads newest first, with at most `most` bytes each.
    #[derive(Default)]
    struct Server {
        file: Vec<u8>,
        most: usize,
        refuse_after: usize,
        asked: Vec<(u8, Vec<u8>)>,
        said: Vec<u8>,
        deepest: usize,
    }

    impl Write for Server {
        fn write(&mut self, packet: &[u8]) -> std::io::Result<usize> {
            // The client writes whole packets.
            self.asked.push((packet[4], packet[5..].to_vec()));
            self.deepest = self.deepest.max(self.asked.len());
            Ok(packet.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Read for Server {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            if self.said.is_empty() {
                let (asked, body) = self.asked.pop().expect("a request");
                self.answer(asked, &body);
            }
            let count = buffer.len().min(self.said.len());
            buffer[..count].copy_from_slice(&self.said[..count]);
            self.said.drain(..count);
            Ok(count)
        }
    }

    impl Server {
        fn answer(&mut self, asked: u8, body: &[u8]) {
            if asked == kind::INIT {
                return self.say(kind::VERSION, Writer::default().u32(3));
            }
            let mut body = Reader(body);
            let id = Writer::default().u32(body.u32().unwrap());
            body.bytes().unwrap();
            let at = usize::try_from(body.u64().unwrap()).unwrap();
            if asked == kind::READ {
                let length = usize::try_from(body.u32().unwrap()).unwrap().min(self.most);
                let rest = self.file.get(at..).unwrap_or_default();
                let bytes = rest[..length.min(rest.len())].to_vec();
                return match bytes.len() {
                    0 => self.say(kind::STATUS, id.u32(1)),
                    _ => self.say(kind::DATA, id.bytes(&bytes)),
                };
            }
            let bytes = body.bytes().unwrap();
            if at >= self.refuse_after {
                return self.say(kind::STATUS, id.u32(4).bytes(b"full"));
            }
            self.file.resize(self.file.len().max(at + bytes.len()), 0);
            self.file[at..at + bytes.len()].copy_from_slice(bytes);
            self.say(kind::STATUS, id.u32(0));
        }

        fn say(&mut self, kind: u8, body: Writer) {
            send(&mut self.said, kind, &body.0).unwrap();
        }
    }

    fn content(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at * 7 % 251).unwrap()).collect()
    }

    fn handle() -> Handle {
        Handle(b"h".to_vec())
    }

    #[test]
    fn assembles_short_and_unordered_parts() {
        for (length, most) in [(0, 9), (1, 9), (PIECE, PIECE), (1_000_000, PIECE), (90_000, 1000)] {
            let server = Server { file: content(length), most, ..Server::default() };
            let mut client = Client::start(server).unwrap();
            let (mut received, mut seen) = (Vec::new(), 0);
            let total = download(&mut client, &handle(), &mut received, |count| seen += count);
            assert_eq!(total.unwrap(), u64::try_from(length).unwrap());
            assert_eq!((received == content(length), seen), (true, u64::try_from(length).unwrap()));
            assert!(client.into_inner().deepest <= WINDOW);
        }
    }

    #[test]
    fn limits_the_writes_in_flight() {
        let server = Server { refuse_after: usize::MAX, ..Server::default() };
        let mut client = Client::start(server).unwrap();
        let sent = content(64 * WINDOW * 1024);
        upload(&mut client, &handle(), &mut sent.as_slice(), |_| {}).unwrap();
        let server = client.into_inner();
        assert!(server.file == sent);
        assert_eq!(server.deepest, WINDOW);
    }

    #[test]
    fn reports_a_refused_write_and_continues() {
        let server = Server { refuse_after: 100_000, ..Server::default() };
        let mut client = Client::start(server).unwrap();
        let sent = content(1_000_000);
        let error = upload(&mut client, &handle(), &mut sent.as_slice(), |_| {}).unwrap_err();
        assert_eq!(error.to_string(), "failure: full");
        upload(&mut client, &handle(), &mut &sent[..10], |_| {}).unwrap();
    }
}
