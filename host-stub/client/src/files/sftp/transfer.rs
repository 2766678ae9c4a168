//! Content of files over SFTP with many requests in flight: a round trip through an emulated VM is
//! long (P§4.4).

use std::collections::BTreeMap;
use std::io::{Read, Write};

use anyhow::{Context, Result, bail};

use super::client::{Client, Handle};
use super::wire::{Writer, kind};

/// Bytes per request, which every server accepts.
pub const PIECE: usize = 32 * 1024;
/// Maximum number of requests in flight.
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

/// A download. Parts of [`PIECE`] bytes arrive in any order and are written in the correct order.
struct Download<'a, S> {
    client: &'a mut Client<S>,
    handle: &'a Handle,
    /// Parts by their offsets. Each holds all its bytes, however small the guest's answers are.
    parts: BTreeMap<u64, Part>,
    /// Requests in flight, with the offsets of their parts.
    waiting: BTreeMap<u32, u64>,
    next: u64,
    window: usize,
    is_over: bool,
}

#[derive(Default)]
struct Part {
    bytes: Vec<u8>,
    /// Whether the part has its full length, or the file ends within it.
    is_whole: bool,
}

/// Reads all of a file into `sink`. Calls `progress` with the number of bytes received.
pub fn download<S: Read + Write>(
    client: &mut Client<S>,
    handle: &Handle,
    sink: &mut impl Write,
    mut progress: impl FnMut(u64),
) -> Result<u64> {
    let mut download = Download::new(client, handle);
    let mut total = 0;
    loop {
        download.ask_for_more()?;
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
            if at != total && !bytes.is_empty() {
                bail!("the file grew while it was read");
            }
            sink.write_all(&bytes).context("writing the received data")?;
            let count = u64::try_from(bytes.len())?;
            total += count;
            progress(count);
        }
    }
}

impl<'a, S: Read + Write> Download<'a, S> {
    fn new(client: &'a mut Client<S>, handle: &'a Handle) -> Self {
        let (parts, waiting) = (BTreeMap::new(), BTreeMap::new());
        Self { client, handle, parts, waiting, next: 0, window: 1, is_over: false }
    }

    fn ask_for_more(&mut self) -> Result<()> {
        // Parts that wait for an earlier one also use memory, so they count.
        while !self.is_over && self.waiting.len() < self.window && self.parts.len() < 2 * WINDOW {
            self.ask(self.next)?;
            self.next += u64::try_from(PIECE)?;
        }
        Ok(())
    }

    /// Asks for the rest of a part.
    fn ask(&mut self, at: u64) -> Result<()> {
        let count = self.parts.entry(at).or_default().bytes.len();
        let (begin, length) = (at + u64::try_from(count)?, u32::try_from(PIECE - count)?);
        let body = Writer::default().bytes(&self.handle.0).u64(begin).u32(length);
        self.waiting.insert(self.client.ask(kind::READ, body)?, at);
        Ok(())
    }

    fn answer(&mut self) -> Result<()> {
        let (id, answer) = self.client.any_answer()?;
        let Some(at) = self.waiting.remove(&id) else { bail!("an unrequested answer") };
        let part = self.parts.entry(at).or_default();
        let length = PIECE - part.bytes.len();
        match answer.data()? {
            None => (self.is_over, part.is_whole) = (true, true),
            Some(bytes) if bytes.is_empty() || bytes.len() > length => {
                bail!("{} bytes instead of at most {length}", bytes.len())
            }
            Some(bytes) => {
                part.bytes.extend_from_slice(bytes);
                part.is_whole = bytes.len() == length;
                if !part.is_whole {
                    return self.ask(at);
                }
                // Begin with two requests, for small files; double them with each answer.
                self.window = (self.window * 2).min(WINDOW);
            }
        }
        Ok(())
    }

    fn first(&mut self) -> Option<(u64, Vec<u8>)> {
        let first = self.parts.first_entry().filter(|first| first.get().is_whole)?;
        let (at, part) = first.remove_entry();
        Some((at, part.bytes))
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
            assert!(client.stream.deepest <= WINDOW);
        }
    }

    #[test]
    fn limits_the_memory_for_answers_of_one_byte() {
        let server = Server { file: content(2 * WINDOW * PIECE), most: 1, ..Server::default() };
        let (mut client, handle) = (Client::start(server).unwrap(), handle());
        let mut download = Download::new(&mut client, &handle);
        download.window = WINDOW;
        for _ in 0..2 * PIECE {
            download.ask_for_more().unwrap();
            download.answer().unwrap();
            assert!(download.parts.len() <= 2 * WINDOW, "{} parts", download.parts.len());
        }
    }

    #[test]
    fn limits_the_writes_in_flight() {
        let server = Server { refuse_after: usize::MAX, ..Server::default() };
        let mut client = Client::start(server).unwrap();
        let sent = content(64 * WINDOW * 1024);
        upload(&mut client, &handle(), &mut sent.as_slice(), |_| {}).unwrap();
        assert!(client.stream.file == sent);
        assert_eq!(client.stream.deepest, WINDOW);
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
