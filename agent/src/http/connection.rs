//! The server's side of one connection, sans-IO: bytes and time in, events out. The only owner of
//! HTTP transitions.
//!
//! ```text
//!   buf: [ head of the current request | undecoded input ............. | space ]
//!        0                             head                            len
//! ```
//! The head stays where it is until the request is answered, so that it can be looked at; the body
//! is taken out of the rest piece by piece, so that one of any size passes in bounded memory.
//!
//! ```text
//!   Fresh ──▶ Head ──▶ Body ──▶ Answer ──▶ Idle ──▶ Head …
//!                       └─ answered early ─▶ Drain ─┘        anything wrong: Over
//! ```
//! An end of input (half-close) ends nothing that is already here: whole requests are answered.
//! A deadline counts for the whole of what it names, so a client gains nothing by dripping.

use core::time::Duration;

use super::body::Decoder;
use super::head::{self, Framing, Request};
use crate::limits;
use crate::time::Uptime;

/// The most that is kept for one connection, bytes: a whole head and as much again for its body.
pub const BUFFER: usize = 2 * limits::HEAD;

/// How long the peer may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// Between two requests.
    pub idle: Duration,
    /// For a whole head, from its first byte (the first one: from the connection).
    pub head: Duration,
    /// For a whole body.
    pub body: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { idle: limits::IDLE_TIMEOUT, head: limits::HEAD_TIMEOUT, body: limits::BODY_TIMEOUT }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Read into [`Connection::space`], at most until [`Connection::deadline`]. Where there is no space,
    /// the buffer has to grow first.
    NeedData,
    /// A head is complete: [`Connection::request`].
    Request,
    /// The client waits for `100 Continue` before it sends its body.
    Continue,
    /// Part of the body.
    Body(&'a [u8]),
    /// The request is complete: answer it, then call [`Connection::done`].
    EndOfBody,
    /// Answer this, then close.
    Refuse {
        /// The status.
        status: u16,
        /// What to say.
        text: &'static str,
    },
    /// It was silent for too long, and no answer is owed: close.
    TimedOut,
    /// It is over: close.
    Closed,
}

/// One connection, in a buffer of its owner's: most requests are short, and there may be many.
pub struct Connection<B = [u8; BUFFER]> {
    buf: B,
    /// Where the current request's head ends.
    head: usize,
    /// Where undecoded input begins.
    at: usize,
    /// Where input ends.
    end: usize,
    /// The peer has said all it will.
    ended: bool,
    timeouts: Timeouts,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    /// Just connected. The first head is due soon: who connects has something to say.
    Fresh { deadline: Uptime },
    /// No byte of the next request yet.
    Idle { deadline: Uptime },
    /// Some bytes of a head.
    Head { deadline: Uptime },
    /// A head was given out; its body is next.
    Body { deadline: Uptime, decoder: Decoder, waits: bool },
    /// The request is whole, the answer is not written.
    Answer,
    /// It was answered before it was whole: so many bytes of it may still be thrown away.
    Drain { deadline: Uptime, decoder: Decoder, left: usize },
    /// Nothing more will be read.
    Over,
}

impl<B> core::fmt::Debug for Connection<B> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Connection").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection that was accepted at `now`, with as much room as one ever needs.
    #[must_use]
    pub fn new(now: Uptime, timeouts: Timeouts) -> Self {
        Self::with_buffer(now, timeouts, [0; BUFFER])
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Connection<B> {
    /// The same in a buffer that may grow.
    pub fn with_buffer(now: Uptime, timeouts: Timeouts, buf: B) -> Self {
        let state = State::Fresh { deadline: now + timeouts.head };
        Self { buf, head: 0, at: 0, end: 0, ended: false, timeouts, state }
    }

    /// The buffer, to be made larger: what is in it must stay where it is. More than [`BUFFER`] is
    /// never needed.
    pub fn buffer(&mut self) -> &mut B {
        &mut self.buf
    }

    /// Where to read into; in a buffer of [`BUFFER`] bytes never empty after [`Event::NeedData`].
    pub fn space(&mut self) -> &mut [u8] {
        self.buf.as_mut().get_mut(self.end..).unwrap_or_default()
    }

    /// So much was read into [`Connection::space`]; 0 is the end of input.
    pub fn filled(&mut self, now: Uptime, count: usize) {
        self.ended |= count == 0;
        self.end = self.end.saturating_add(count).min(self.buf.as_ref().len());
        if count == 0 {
            return;
        }
        match self.state {
            State::Fresh { deadline } => self.state = State::Head { deadline },
            State::Idle { .. } => {
                self.state = State::Head { deadline: now + self.timeouts.head };
            }
            State::Head { .. }
            | State::Body { .. }
            | State::Answer
            | State::Drain { .. }
            | State::Over => {}
        }
    }

    /// When [`Connection::poll`] may say something new without input.
    #[must_use]
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

    /// The current request, from [`Event::Request`] until [`Connection::done`].
    #[must_use]
    pub fn request(&self) -> Option<Request<'_>> {
        let head = self.buf.as_ref().get(..self.head)?;
        // It was parsed before, so it parses again.
        head::request(head).ok().flatten().map(|(request, _)| request)
    }

    /// What has come behind the request: the first bytes of what a connection is upgraded to.
    /// Meaningful from [`Event::EndOfBody`] until [`Connection::done`].
    #[must_use]
    pub fn leftover(&self) -> &[u8] {
        self.buf.as_ref().get(self.at..self.end).unwrap_or_default()
    }

    /// What is to be done now.
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

    /// The answer is written. Bytes of a next request are kept. An answer that came before the
    /// request was whole goes on only if what is missing is short ([`limits::BODY`]) and was surely
    /// sent: otherwise what follows could be taken for a request.
    pub fn done(&mut self, now: Uptime, keep_alive: bool) {
        self.state = match core::mem::replace(&mut self.state, State::Over) {
            State::Answer if keep_alive => return self.next(now),
            // It still waits for `100 Continue`, and may send its body or not.
            State::Body { waits: true, .. } => State::Over,
            State::Body { deadline, decoder, waits: false } if keep_alive => {
                State::Drain { deadline, decoder, left: limits::BODY }
            }
            State::Body { waits: false, .. }
            | State::Answer
            | State::Fresh { .. }
            | State::Idle { .. }
            | State::Head { .. }
            | State::Drain { .. }
            | State::Over => State::Over,
        };
        self.head = 0;
    }

    /// The next request begins behind the last one.
    fn next(&mut self, now: Uptime) {
        self.head = 0;
        self.compact();
        self.state = if self.end > 0 {
            State::Head { deadline: now + self.timeouts.head }
        } else {
            State::Idle { deadline: now + self.timeouts.idle }
        };
    }

    /// Makes room: what was decoded is not needed again.
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
                    deadline: now + self.timeouts.body,
                    decoder: Decoder::new(framing),
                    waits: expects && framing != Framing::None,
                };
                (self.head, self.at) = (length, length);
                Event::Request
            }
            Err(error) => self.refuse(error.status(), error.text()),
            Ok(None) if self.ended => self.over(Event::Closed),
            Ok(None) if self.deadline().is_none_or(|deadline| now < deadline) => Event::NeedData,
            // Old clients send an empty line behind a body: that begins no request.
            Ok(None) if input.iter().all(|byte| b"\r\n".contains(byte)) => {
                self.over(Event::TimedOut)
            }
            Ok(None) => self.refuse(408, "Request head took too long"),
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
            return self.refuse(400, "Malformed body");
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
            return self.refuse(408, "Request body took too long");
        }
        self.compact();
        Event::NeedData
    }

    /// Throws away what is left of an answered request; nothing to say once it is gone.
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

    fn refuse(&mut self, status: u16, text: &'static str) -> Event<'_> {
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
