//! The server's side of one connection, sans-IO: bytes and time in, events out. The only owner of
//! HTTP transitions.
//!
//! ```text
//!   buf: [ head of the current request | undecoded input ............. | space ]
//!        0                             head                            len
//! ```
//! The head stays where it is until the request is answered, so that it can be looked at; the body
//! is taken out of the rest piece by piece, so that one of any size passes in bounded memory.

use core::time::Duration;

use super::body::Decoder;
use super::head::{self, Framing, HeadError, Request};
use crate::limits;
use crate::time::Uptime;

/// What is kept for one connection, bytes: a whole head and as much again for its body.
const BUFFER: usize = 2 * limits::HEAD;

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
    /// Read into [`Connection::space`], at most until [`Connection::deadline`].
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
    /// It was silent for too long: close.
    TimedOut,
    /// It is over: close.
    Closed,
}

/// One connection.
pub struct Connection {
    buf: [u8; BUFFER],
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
    /// No byte of the next request yet.
    Idle { deadline: Uptime },
    /// Some bytes of a head.
    Head { deadline: Uptime },
    /// A head was given out; its body is next.
    Body { deadline: Uptime, decoder: Decoder, waits: bool },
    /// The request is whole, the answer is not written.
    Answer,
    /// Nothing more will be read.
    Over,
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_struct("Connection").field("state", &self.state).finish_non_exhaustive()
    }
}

impl Connection {
    /// A connection that was accepted at `now`.
    #[must_use]
    pub fn new(now: Uptime, timeouts: Timeouts) -> Self {
        // The first head is due soon: a client that connects has something to say.
        let state = State::Idle { deadline: now + timeouts.head };
        Self { buf: [0; BUFFER], head: 0, at: 0, end: 0, ended: false, timeouts, state }
    }

    /// Where to read into; never empty after [`Event::NeedData`].
    pub fn space(&mut self) -> &mut [u8] {
        self.buf.get_mut(self.end..).unwrap_or_default()
    }

    /// So much was read into [`Connection::space`]; 0 is the end of input.
    pub fn filled(&mut self, now: Uptime, count: usize) {
        self.ended |= count == 0;
        self.end = (self.end + count).min(BUFFER);
        if let State::Idle { .. } = self.state
            && count > 0
        {
            self.state = State::Head { deadline: now + self.timeouts.head };
        }
    }

    /// When [`Connection::poll`] may say something new without input.
    #[must_use]
    pub fn deadline(&self) -> Option<Uptime> {
        match &self.state {
            State::Idle { deadline } | State::Head { deadline } | State::Body { deadline, .. } => {
                Some(*deadline)
            }
            State::Answer | State::Over => None,
        }
    }

    /// The current request, from [`Event::Request`] until [`Connection::done`].
    #[must_use]
    pub fn request(&self) -> Option<Request<'_>> {
        let head = self.buf.get(..self.head)?;
        // It was parsed before, so it parses again.
        head::request(head).ok().flatten().map(|(request, _)| request)
    }

    /// What is to be done now.
    pub fn poll(&mut self, now: Uptime) -> Event<'_> {
        match &self.state {
            State::Over => Event::Closed,
            State::Answer => Event::EndOfBody,
            State::Idle { .. } | State::Head { .. } => self.poll_head(now),
            State::Body { .. } => self.poll_body(now),
        }
    }

    /// The answer is written. Bytes of a next request are kept. An answer that comes before the
    /// request was whole ends the connection: what follows could be taken for a request.
    pub fn done(&mut self, now: Uptime, keep_alive: bool) {
        if !keep_alive || !matches!(self.state, State::Answer) {
            self.state = State::Over;
            return;
        }
        self.buf.copy_within(self.at..self.end, 0);
        self.end -= self.at;
        (self.head, self.at) = (0, 0);
        self.state = if self.end > 0 {
            State::Head { deadline: now + self.timeouts.head }
        } else {
            State::Idle { deadline: now + self.timeouts.idle }
        };
    }

    fn poll_head(&mut self, now: Uptime) -> Event<'_> {
        let input = self.buf.get(..self.end).unwrap_or_default();
        let parsed = head::request(input).and_then(|parsed| match parsed {
            Some((_, length)) if length > limits::HEAD => Err(HeadError::TooLong),
            other => Ok(other.map(|(it, length)| (length, it.framing, it.expect_continue))),
        });
        match parsed {
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
            Ok(None) if self.ended => self.over(),
            Ok(None) => match self.state {
                State::Idle { deadline } if now >= deadline => {
                    self.state = State::Over;
                    Event::TimedOut
                }
                State::Head { deadline } if now >= deadline => {
                    self.refuse(408, "Request head took too long")
                }
                _ => Event::NeedData,
            },
        }
    }

    fn poll_body(&mut self, now: Uptime) -> Event<'_> {
        let State::Body { deadline, decoder, waits } = &mut self.state else {
            return Event::Closed;
        };
        let input = self.buf.get(self.at..self.end).unwrap_or_default();
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
            return Event::Body(self.buf.get(end - data..end).unwrap_or_default());
        }
        if finished {
            self.state = State::Answer;
            return Event::EndOfBody;
        }
        if self.ended {
            return self.over();
        }
        if late {
            return self.refuse(408, "Request body took too long");
        }
        // Room for more: what was decoded is not needed again.
        self.buf.copy_within(self.at..self.end, self.head);
        self.end -= self.at - self.head;
        self.at = self.head;
        Event::NeedData
    }

    fn refuse(&mut self, status: u16, text: &'static str) -> Event<'_> {
        self.state = State::Over;
        Event::Refuse { status, text }
    }

    fn over(&mut self) -> Event<'_> {
        self.state = State::Over;
        Event::Closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{format, string::String, vec, vec::Vec};

    fn at(millis: u64) -> Uptime {
        Uptime::from_millis(millis)
    }

    /// Feeds `input` in pieces and answers every request; gives what happened, in words.
    fn run(input: &[u8], size: usize) -> Vec<String> {
        let mut connection = Connection::new(at(0), Timeouts::default());
        let mut pieces = input.chunks(size);
        let (mut seen, mut body) = (Vec::new(), Vec::new());
        loop {
            match connection.poll(at(0)) {
                Event::NeedData => {
                    let piece = pieces.next().unwrap_or_default();
                    let mut rest = piece;
                    // A piece larger than the space goes in several times.
                    let count = rest.len().min(connection.space().len());
                    connection.space()[..count].copy_from_slice(&rest[..count]);
                    rest = &rest[count..];
                    assert!(rest.is_empty(), "the test's pieces fit");
                    connection.filled(at(0), count);
                }
                Event::Request => {
                    let request = connection.request().unwrap();
                    seen.push(format!("{} {}", request.method_text, request.path));
                }
                Event::Continue => seen.push("continue".into()),
                Event::Body(data) => body.extend_from_slice(data),
                Event::EndOfBody => {
                    seen.push(format!("body {}", String::from_utf8_lossy(&body)));
                    body.clear();
                    let keep_alive = connection.request().unwrap().keep_alive;
                    connection.done(at(0), keep_alive);
                }
                Event::Refuse { status, .. } => seen.push(format!("refuse {status}")),
                Event::TimedOut => seen.push("timed out".into()),
                Event::Closed => break,
            }
        }
        seen
    }

    const TWO: &[u8] = b"PATCH /1.0 HTTP/1.1\r\nContent-Length: 17\r\n\r\n{\"state\":\"Ready\"}\
        POST /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
        GET / HTTP/1.1\r\n\r\n";

    #[test]
    fn pipelined_requests_are_the_same_at_every_cut() {
        let whole = run(TWO, TWO.len());
        let expected = ["PATCH /1.0", "body {\"state\":\"Ready\"}", "POST /x", "body abc", "GET /"];
        assert_eq!(whole[..5], expected);
        for size in 1..TWO.len() {
            assert_eq!(run(TWO, size), whole, "in pieces of {size}");
        }
    }

    #[test]
    fn a_client_that_waits_is_told_to_go_on_once() {
        let head = b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";
        let mut connection = Connection::new(at(0), Timeouts::default());
        connection.space()[..head.len()].copy_from_slice(head);
        connection.filled(at(0), head.len());
        assert_eq!(connection.poll(at(0)), Event::Request);
        assert_eq!(connection.poll(at(0)), Event::Continue);
        assert_eq!(connection.poll(at(0)), Event::NeedData);
        connection.space()[..2].copy_from_slice(b"hi");
        connection.filled(at(0), 2);
        assert_eq!(connection.poll(at(0)), Event::Body(b"hi"));
        assert_eq!(connection.poll(at(0)), Event::EndOfBody);
        // A client that did not wait is not told.
        let eager = [&head[..], b"hi"].concat();
        assert_eq!(run(&eager, eager.len()), ["PUT /", "body hi"]);
    }

    #[test]
    fn what_is_answered_early_ends_the_connection() {
        let mut connection = Connection::new(at(0), Timeouts::default());
        let head = b"PUT / HTTP/1.1\r\nContent-Length: 200\r\n\r\n";
        connection.space()[..head.len()].copy_from_slice(head);
        connection.filled(at(0), head.len());
        assert_eq!(connection.poll(at(0)), Event::Request);
        connection.done(at(0), true);
        assert_eq!(connection.poll(at(0)), Event::Closed);
    }

    #[test]
    fn broken_requests_are_refused_and_end_it() {
        assert_eq!(run(b"\x16\x03\x01hello\r\n", 3), ["refuse 400"]);
        let smuggled =
            b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(run(smuggled, 9), ["refuse 400"]);
        let long = [b"GET /".as_slice(), &vec![b'x'; limits::HEAD]].concat();
        assert_eq!(run(&long, 1000), ["refuse 431"]);
        let chunk = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        assert_eq!(run(chunk, 5), ["POST /", "refuse 400"]);
    }

    #[test]
    fn an_end_in_the_middle_closes_without_an_answer() {
        assert_eq!(run(b"GET / HT", 3), Vec::<String>::new());
        assert_eq!(run(b"PUT / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", 3), ["PUT /"]);
    }

    #[test]
    fn a_dripping_client_runs_into_its_deadline() {
        let mut connection = Connection::new(at(0), Timeouts::default());
        assert_eq!(connection.deadline(), Some(at(3000)));
        let mut now = 0;
        let refused = loop {
            match connection.poll(at(now)) {
                Event::NeedData => {
                    now += 500;
                    connection.space()[0] = b'G';
                    connection.filled(at(now), 1);
                }
                other => break format!("{other:?}"),
            }
        };
        assert!(refused.contains("408"), "{refused}");
        // The head's time counts from its first byte, which came at 500.
        assert_eq!(now, 3500);
    }

    #[test]
    fn a_silent_client_is_closed_without_a_word() {
        let mut connection = Connection::new(at(0), Timeouts::default());
        assert_eq!(connection.poll(at(2999)), Event::NeedData);
        assert_eq!(connection.poll(at(3000)), Event::TimedOut);
        assert_eq!(connection.poll(at(3000)), Event::Closed);
    }

    #[test]
    fn between_requests_the_idle_time_counts() {
        let mut connection = Connection::new(at(0), Timeouts::default());
        let head = b"GET / HTTP/1.1\r\n\r\n";
        connection.space()[..head.len()].copy_from_slice(head);
        connection.filled(at(0), head.len());
        assert_eq!(connection.poll(at(0)), Event::Request);
        assert_eq!(connection.poll(at(0)), Event::EndOfBody);
        connection.done(at(1000), true);
        assert_eq!(connection.deadline(), Some(at(31_000)));
        assert_eq!(connection.poll(at(31_000)), Event::TimedOut);
    }

    #[test]
    fn a_large_body_passes_in_pieces_through_the_bounded_buffer() {
        let mut input = b"PUT / HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n".to_vec();
        input.resize(input.len() + 1_000_000, b'z');
        let seen = run(&input, 4000);
        assert_eq!((seen.len(), seen[1].len()), (2, 5 + 1_000_000));
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_always_come_to_an_end(
            input in proptest::collection::vec(proptest::num::u8::ANY, 0..600),
            size in 1usize..80,
        ) {
            run(&input, size);
        }

        #[test]
        fn generated_requests_give_the_same_events_at_any_cut(
            bodies in proptest::collection::vec("[a-z]{0,40}", 1..5),
            size in 1usize..200,
        ) {
            let input: String = bodies
                .iter()
                .map(|body| format!("PUT /b HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len()))
                .collect();
            let expected: Vec<_> = bodies
                .iter()
                .flat_map(|body| ["PUT /b".into(), format!("body {body}")])
                .collect();
            proptest::prop_assert_eq!(run(input.as_bytes(), size), expected);
        }
    }
}
