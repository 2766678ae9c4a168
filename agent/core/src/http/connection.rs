//! The server side of one connection, sans-IO: bytes and time in, events out. All HTTP state
//! transitions are in this file.
//!
//! The head stays in the buffer until the request is answered. The body is decoded piece by piece
//! behind it, so a body of any size needs bounded memory.
//!
//! Complete requests received before the end of input (half-close) are answered. A deadline covers
//! the whole head or body, so sending byte by byte gains no time.

use super::admission::Activity;
use super::body::Decoder;
use super::head::{self, Framing, Request};
use crate::limits;
use crate::time::Uptime;

/// Maximum size of a connection's buffer, in bytes: a complete head, and as much for its body.
pub const BUFFER: usize = 2 * limits::HEAD;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Read into [`Connection::space`] until [`Connection::deadline`]. If the space is empty,
    /// enlarge the buffer first.
    NeedData,
    /// A head is complete; [`Connection::request`] has it.
    Request,
    /// The client waits for `100 Continue` before it sends its body.
    Continue,
    Body(&'a [u8]),
    /// The request is complete: answer it, then call [`Connection::done`].
    EndOfBody,
    /// Answer this, then close.
    Refuse {
        status: u16,
        text: &'static str,
    },
    /// Close: the deadline has passed without a request to answer.
    TimedOut,
    Closed,
}

/// One connection. Its owner provides the buffer and can keep it small, because most requests are
/// short and there are many connections.
pub struct Connection<B = [u8; BUFFER]> {
    buf: B,
    /// End of the current request's head.
    head: usize,
    /// Start of the undecoded input.
    at: usize,
    end: usize,
    /// The peer has closed its sending side.
    ended: bool,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    // The client has just connected. The first head is due soon.
    Fresh { deadline: Uptime },
    // Between requests: no byte of the next one has arrived.
    Idle { deadline: Uptime },
    // Part of a head has been received.
    Head { deadline: Uptime },
    // The head was reported; the body follows. `waits`: the client expects `100 Continue` first.
    Body { deadline: Uptime, decoder: Decoder, waits: bool },
    // The request is complete but not answered.
    Answer,
    // Answered before it was complete; up to `left` bytes of its body are ignored.
    Drain { deadline: Uptime, decoder: Decoder, left: usize },
    Over,
}

impl<B> core::fmt::Debug for Connection<B> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Connection").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Connection {
    /// Creates a connection accepted at `now`, with a full-size buffer.
    pub fn new(now: Uptime) -> Self {
        Self::with_buffer(now, [0; BUFFER])
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Connection<B> {
    /// Creates a connection with the caller's buffer, which may grow.
    pub fn with_buffer(now: Uptime, buf: B) -> Self {
        let state = State::Fresh { deadline: now + limits::HEAD_TIMEOUT };
        Self { buf, head: 0, at: 0, end: 0, ended: false, state }
    }

    /// Returns the buffer for resizing: it may grow up to [`BUFFER`], and shrink by the free
    /// [`Connection::space`] at its end.
    pub fn buffer(&mut self) -> &mut B {
        &mut self.buf
    }

    /// Returns free space to read into. With [`BUFFER`] bytes it is never empty after
    /// [`Event::NeedData`].
    pub fn space(&mut self) -> &mut [u8] {
        self.buf.as_mut().get_mut(self.end..).unwrap_or_default()
    }

    /// Reports that `count` bytes were read into [`Connection::space`]; 0: the end of input.
    pub fn filled(&mut self, now: Uptime, count: usize) {
        self.ended |= count == 0;
        self.end = self.end.saturating_add(count).min(self.buf.as_ref().len());
        if count == 0 {
            return;
        }
        if let State::Fresh { deadline } = self.state {
            self.state = State::Head { deadline };
        } else if let State::Idle { .. } = self.state {
            self.state = State::Head { deadline: now + limits::HEAD_TIMEOUT };
        }
    }

    /// Returns when to call [`Connection::poll`] even without input.
    pub fn deadline(&self) -> Option<Uptime> {
        match &self.state {
            State::Fresh { deadline }
            | State::Idle { deadline }
            | State::Head { deadline }
            | State::Body { deadline, .. }
            | State::Drain { deadline, .. } => Some(*deadline),
            State::Answer | State::Over => None,
        }
    }

    pub fn activity(&self) -> Activity {
        match &self.state {
            State::Fresh { .. } => Activity::Silent,
            State::Idle { .. } => Activity::KeptAlive,
            State::Head { .. } => Activity::Head,
            State::Body { .. } | State::Drain { .. } => Activity::Body,
            State::Answer => Activity::Served,
            State::Over => Activity::Closing,
        }
    }

    /// Returns the current request, from [`Event::Request`] until [`Connection::done`].
    pub fn request(&self) -> Option<Request<'_>> {
        let head = self.buf.as_ref().get(..self.head)?;
        // The head was parsed successfully before.
        head::request(head).ok().flatten().map(|(request, _)| request)
    }

    /// Returns whether the rest of the body is known to have at most `most` bytes.
    pub const fn is_within(&self, most: u64) -> bool {
        let State::Body { decoder, .. } = &self.state else { return true };
        decoder.is_within(most)
    }

    /// Returns bytes received after the request, the start of an upgraded protocol. Valid from
    /// [`Event::EndOfBody`] until [`Connection::done`].
    pub fn leftover(&self) -> &[u8] {
        self.buf.as_ref().get(self.at..self.end).unwrap_or_default()
    }

    pub fn poll(&mut self, now: Uptime) -> Event<'_> {
        if let State::Drain { .. } = self.state
            && let Some(event) = self.poll_drain(now)
        {
            return event;
        }
        match &self.state {
            State::Over => Event::Closed,
            State::Answer => Event::EndOfBody,
            State::Fresh { .. } | State::Idle { .. } | State::Head { .. } => self.poll_head(now),
            State::Body { .. } => self.poll_body(now),
            State::Drain { .. } => Event::NeedData,
        }
    }

    /// Reports that the answer has been written. Keeps the bytes of the next request. After an
    /// early answer the connection continues only if the rest of the request is short
    /// ([`limits::BODY`]) and certain to be sent; otherwise a body could be mistaken for a request.
    pub fn done(&mut self, now: Uptime, keep_alive: bool) {
        let state = core::mem::replace(&mut self.state, State::Over);
        if keep_alive && matches!(state, State::Answer) {
            return self.next(now);
        }
        // A client that still waits for `100 Continue` may or may not send its body.
        if keep_alive && let State::Body { deadline, decoder, waits: false } = state {
            self.state = State::Drain { deadline, decoder, left: limits::BODY };
        }
        self.head = 0;
    }

    /// Begins the next request with the bytes received so far.
    fn next(&mut self, now: Uptime) {
        self.head = 0;
        self.compact();
        self.state = if self.end > 0 {
            State::Head { deadline: now + limits::HEAD_TIMEOUT }
        } else {
            State::Idle { deadline: now + limits::IDLE_TIMEOUT }
        };
    }

    /// Makes space by dropping decoded bytes.
    fn compact(&mut self) {
        self.buf.as_mut().copy_within(self.at..self.end, self.head);
        self.end -= self.at - self.head;
        self.at = self.head;
    }

    fn poll_head(&mut self, now: Uptime) -> Event<'_> {
        let input = self.buf.as_ref().get(..self.end).unwrap_or_default();
        let parsed = head::request(input);
        match parsed.map(|it| it.map(|(it, length)| (length, it.framing, it.expect_continue))) {
            Ok(Some((length, framing, expects))) => {
                self.state = State::Body {
                    deadline: now + limits::BODY_TIMEOUT,
                    decoder: Decoder::new(framing),
                    waits: expects && framing != Framing::None,
                };
                (self.head, self.at) = (length, length);
                Event::Request
            }
            Err(error) => self.refuse(error.reply()),
            Ok(None) if self.ended => self.over(Event::Closed),
            Ok(None) if self.deadline().is_none_or(|deadline| now < deadline) => Event::NeedData,
            // Old clients send an empty line after a body. It does not begin a request.
            Ok(None) if input.iter().all(|byte| b"\r\n".contains(byte)) => {
                self.over(Event::TimedOut)
            }
            Ok(None) => self.refuse((408, "Request head took too long")),
        }
    }

    fn poll_body(&mut self, now: Uptime) -> Event<'_> {
        let State::Body { deadline, decoder, waits } = &mut self.state else {
            return Event::Closed;
        };
        let input = self.buf.as_ref().get(self.at..self.end).unwrap_or_default();
        if core::mem::take(waits) && input.is_empty() {
            return Event::Continue;
        }
        let Ok(step) = decoder.decode(input) else {
            return self.refuse((400, "Malformed body"));
        };
        let (consumed, data) = (step.consumed, step.data.len());
        let finished = decoder.finished();
        let late = now >= *deadline;
        self.at += consumed;
        if data > 0 {
            let end = self.at;
            return Event::Body(self.buf.as_ref().get(end - data..end).unwrap_or_default());
        }
        if finished {
            self.state = State::Answer;
            return Event::EndOfBody;
        }
        if self.ended {
            return self.over(Event::Closed);
        }
        if late {
            return self.refuse((408, "Request body took too long"));
        }
        self.compact();
        Event::NeedData
    }

    /// Drops the rest of an answered request; returns `None` when done.
    fn poll_drain(&mut self, now: Uptime) -> Option<Event<'static>> {
        loop {
            let State::Drain { deadline, decoder, left } = &mut self.state else { return None };
            let input = self.buf.as_ref().get(self.at..self.end).unwrap_or_default();
            let Ok(step) = decoder.decode(input) else { return Some(self.over(Event::Closed)) };
            let Some(still) = left.checked_sub(step.consumed) else {
                return Some(self.over(Event::Closed));
            };
            *left = still;
            self.at += step.consumed;
            if decoder.finished() {
                self.next(now);
                return None;
            }
            if step.consumed == 0 {
                let late = now >= *deadline;
                return Some(match (self.ended, late) {
                    (true, _) => self.over(Event::Closed),
                    (false, true) => self.over(Event::TimedOut),
                    (false, false) => {
                        self.compact();
                        Event::NeedData
                    }
                });
            }
        }
    }

    fn refuse(&mut self, (status, text): (u16, &'static str)) -> Event<'_> {
        self.state = State::Over;
        Event::Refuse { status, text }
    }

    fn over(&mut self, event: Event<'static>) -> Event<'static> {
        self.state = State::Over;
        event
    }
}

#[cfg(test)]
mod tests;
