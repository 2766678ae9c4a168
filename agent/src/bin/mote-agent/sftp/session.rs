//! The loop: read what is there, answer it in order, write the answers together.
//!
//! Two buffers, taken once; the kernel gives a page of them when it is first touched. A long frame
//! is read to its very end and no further, so that its data is written from where it was read to and
//! the next frame begins at the front of an empty buffer.

use mote_agent::sftp::reply::{self, Full};
use mote_agent::sftp::request::{Malformed, Packet};
use mote_agent::sftp::{PACKET, REPLY, SMALL_REPLY, frame};
use rustix::io::{Errno, retry_on_intr};
use rustix::stdio::{stdin, stdout};

use crate::sftp::fulfil;
use crate::sftp::handles::Handles;
use crate::sftp::refusal::Refusal;

/// Read at a time while frames are short, bytes: two WRITEs of the usual 32 KiB.
const AHEAD: usize = 64 * 1024;

/// Why a session ended.
enum End {
    /// The client has gone.
    Gone,
    /// It broke, and this is how.
    Broken(String),
}

/// Serves until the client goes.
pub(super) fn serve() -> Result<(), String> {
    let mut input = Input { bytes: vec![0; 4 + PACKET], start: 0, end: 0 };
    let mut output = Output { bytes: vec![0; REPLY], used: 0 };
    let mut handles = Handles::default();
    loop {
        match turn(&mut input, &mut handles, &mut output) {
            Ok(()) => {}
            Err(End::Gone) => return Ok(()),
            Err(End::Broken(why)) => {
                // What came before is answered. It may be the output that is broken.
                let _sent = output.flush();
                return Err(why);
            }
        }
    }
}

/// Answers every frame that is there, then waits for more.
fn turn(input: &mut Input, handles: &mut Handles, output: &mut Output) -> Result<(), End> {
    while let Some(frame) = input.frame()? {
        answer(frame, handles, output)?;
    }
    output.flush()?;
    input.fill()
}

fn answer(frame: &[u8], handles: &mut Handles, output: &mut Output) -> Result<(), End> {
    let (id, refusal) = match Packet::parse(frame) {
        Ok(Packet::Init) => return output.add(reply::version),
        Ok(Packet::Request { id, wish }) => {
            let room = output.room(wish.reply_room())?;
            let answer = fulfil(handles, id, &wish, room);
            match answer.and_then(|answer| Ok(answer.write(id, room)?)) {
                Ok(length) => {
                    output.used += length;
                    return Ok(());
                }
                Err(refusal) => (id, refusal),
            }
        }
        Err(Malformed::Fields { id }) => (id, Refusal::Malformed),
        Err(Malformed::Nameless) => return Err(broken("a packet without an id")),
    };
    output.add(|out| reply::status(out, id, refusal.code(), &refusal))
}

fn broken(why: &str) -> End {
    End::Broken(why.to_owned())
}

fn failed(errno: Errno) -> End {
    match errno {
        Errno::PIPE | Errno::CONNRESET => End::Gone,
        errno => End::Broken(errno.to_string()),
    }
}

/// What was read and not yet answered.
struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    fn waiting(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    fn next_length(&self) -> Result<Option<usize>, End> {
        frame::length(self.waiting()).map_err(|_| broken("a packet of an impossible length"))
    }

    /// The next whole frame's content.
    fn frame(&mut self) -> Result<Option<&[u8]>, End> {
        match self.next_length()? {
            Some(length) if length <= self.end - self.start => {
                let content = self.start + 4..self.start + length;
                self.start += length;
                Ok(self.bytes.get(content))
            }
            _ => Ok(None),
        }
    }

    /// Reads some more behind the begun frame, which there is at most one of.
    fn fill(&mut self) -> Result<(), End> {
        let wanted = self.next_length()?.unwrap_or(0).max(AHEAD);
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let Some(room) = self.bytes.get_mut(self.end..wanted) else { return Err(End::Gone) };
        match retry_on_intr(|| rustix::io::read(stdin(), &mut *room)).map_err(failed)? {
            0 => Err(End::Gone),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

/// What is to be sent.
struct Output {
    bytes: Vec<u8>,
    used: usize,
}

impl Output {
    /// All the room there is, but not less than `least`.
    fn room(&mut self, least: usize) -> Result<&mut [u8], End> {
        if self.bytes.len() - self.used < least {
            self.flush()?;
        }
        Ok(self.bytes.get_mut(self.used..).unwrap_or_default())
    }

    /// A reply that needs little room.
    fn add(&mut self, write: impl FnOnce(&mut [u8]) -> Result<usize, Full>) -> Result<(), End> {
        let length = write(self.room(SMALL_REPLY)?);
        self.used += length.map_err(|Full| broken("a reply does not fit"))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        let mut rest = self.bytes.get(..self.used).unwrap_or_default();
        while !rest.is_empty() {
            let count = retry_on_intr(|| rustix::io::write(stdout(), rest)).map_err(failed)?;
            rest = rest.get(count..).unwrap_or_default();
        }
        self.used = 0;
        Ok(())
    }
}
