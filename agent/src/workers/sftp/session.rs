//! The main loop of a session: reads available frames, answers them in order, and writes the
//! replies together.
//!
//! Both buffers are allocated once, and the kernel provides pages at first use. A long frame is
//! read to its end and no further: the next frame then starts at the front of an empty buffer, so
//! no data is copied.

use std::os::fd::OwnedFd;

use mote_core::sftp::handles::Handles;
use mote_core::sftp::reply::{self, Full};
use mote_core::sftp::request::{Malformed, Packet};
use mote_core::sftp::{PACKET, REPLY, SMALL_REPLY, frame_length};
use rustix::io::{Errno, retry_on_intr};
use rustix::stdio::{stdin, stdout};

use crate::print::write_all;
use crate::workers::sftp::acts::Acts;
use crate::workers::sftp::perform::{Open, handle_table, perform};
use crate::workers::sftp::refusal::Refusal;
use crate::workers::sftp::rules::Rules;

/// Number of bytes read at a time while frames are short: two WRITEs of the usual 32 KiB.
const AHEAD: usize = 64 * 1024;

enum End {
    /// The client closed the connection.
    Gone,
    /// The session cannot continue: the client violates the protocol, or input or output failed.
    Broken(String),
}

pub(super) fn serve(rules: &Rules<'_>, names: Option<OwnedFd>) -> Result<(), String> {
    let mut input = Input { bytes: vec![0; 4 + PACKET], start: 0, end: 0 };
    let mut output = Output { bytes: vec![0; REPLY], used: 0 };
    let mut handles = handle_table();
    let mut acts = Acts::begin(names);
    loop {
        match round(rules, &mut input, &mut handles, &mut acts, &mut output) {
            Ok(()) => {}
            Err(End::Gone) => return Ok(()),
            Err(End::Broken(why)) => {
                // Send the replies to earlier requests. Fails if the output itself is broken.
                let _sent = output.flush();
                return Err(why);
            }
        }
    }
}

/// Answers all complete frames, then waits for more input.
fn round(
    rules: &Rules<'_>,
    input: &mut Input,
    handles: &mut Handles<Open>,
    acts: &mut Acts,
    output: &mut Output,
) -> Result<(), End> {
    while let Some(frame) = input.frame()? {
        answer(rules, frame, handles, acts, output)?;
    }
    output.flush()?;
    input.fill()
}

fn answer(
    rules: &Rules<'_>,
    frame: &[u8],
    handles: &mut Handles<Open>,
    acts: &mut Acts,
    output: &mut Output,
) -> Result<(), End> {
    let (id, refusal) = match Packet::parse(frame, rules.modes()) {
        Ok(Packet::Init) => return output.add(reply::version),
        Ok(Packet::Request { id, request }) => {
            let room = output.room(request.reply_room())?;
            let allowed = rules.check(&request);
            if allowed.is_ok() {
                Acts::wait(&request);
            }
            let answer = allowed.and_then(|()| perform(rules, handles, id, &request, room));
            match answer.and_then(|answer| Ok(answer.write(id, room)?)) {
                Ok(length) => {
                    output.used += length;
                    acts.did(&request, handles);
                    return Ok(());
                }
                Err(refusal) => (id, rules.explain(refusal)),
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

/// Unanswered input: `start..end` of the buffer.
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
        frame_length(self.waiting()).map_err(|_| broken("a packet with an invalid length"))
    }

    /// Returns the next frame's content; `None` if it is incomplete.
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

    /// Reads more input after the incomplete frame.
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

/// Unsent replies: the first `used` bytes of the buffer.
struct Output {
    bytes: Vec<u8>,
    used: usize,
}

impl Output {
    /// Returns the free part of the buffer; flushes first if it is shorter than `least` bytes.
    fn room(&mut self, least: usize) -> Result<&mut [u8], End> {
        if self.bytes.len() - self.used < least {
            self.flush()?;
        }
        Ok(self.bytes.get_mut(self.used..).unwrap_or_default())
    }

    fn add(&mut self, write: impl FnOnce(&mut [u8]) -> Result<usize, Full>) -> Result<(), End> {
        let length = write(self.room(SMALL_REPLY)?);
        self.used += length.map_err(|Full| broken("a reply does not fit"))?;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        let replies = self.bytes.get(..self.used).unwrap_or_default();
        write_all(stdout(), replies).map_err(failed)?;
        self.used = 0;
        Ok(())
    }
}
