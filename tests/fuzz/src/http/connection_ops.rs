//! One HTTP connection under arbitrary operations. Invariants: `NeedData` provides space and a
//! future deadline, polling ends, no more body comes out than went in, a request is readable until
//! its answer, and closed is final. Without operations, cuts do not change the events.

use mote_core::http::connection::{Connection, Event};

use crate::prelude::*;

#[expect(clippy::struct_excessive_bools, reason = "two unrelated facts")]
struct Run {
    connection: Connection,
    now: Uptime,
    fed: usize,
    body: usize,
    /// Whether a request waits for its answer.
    open: bool,
    over: bool,
}

#[derive(PartialEq)]
enum Wait {
    Data,
    Answer,
    Nothing,
}

impl Run {
    /// Polls until the connection needs input, time or an answer.
    fn settle(&mut self, answer_early: bool) -> Wait {
        // Except for a constant number, each poll before the wait consumes a byte.
        for _ in 0..(2 * limits::HEAD + 8) {
            let event = self.connection.poll(self.now);
            assert!(!self.over || event == Event::Closed, "{event:?} after the end");
            match event {
                Event::NeedData => {
                    assert!(!self.connection.space().is_empty());
                    assert!(self.connection.deadline().is_some_and(|deadline| deadline > self.now));
                    return Wait::Data;
                }
                Event::Request => {
                    assert!(!self.open, "a request within a request");
                    self.open = true;
                    assert!(self.connection.request().is_some());
                    if answer_early {
                        self.done(true);
                    }
                }
                Event::Continue => assert!(self.open),
                Event::Body(data) => {
                    assert!(self.open && !data.is_empty());
                    self.body += data.len();
                    assert!(self.body < self.fed);
                    assert!(self.connection.request().is_some());
                }
                Event::EndOfBody => {
                    assert!(self.open && self.connection.request().is_some());
                    assert!(self.connection.leftover().len() < self.fed);
                    return Wait::Answer;
                }
                Event::Refuse { status, text } => {
                    assert!((400..=505).contains(&status) && !text.is_empty());
                    self.over = true;
                }
                Event::TimedOut => self.over = true,
                Event::Closed => {
                    self.over = true;
                    assert_eq!(self.connection.deadline(), None);
                    return Wait::Nothing;
                }
            }
        }
        panic!("polled for ever");
    }

    fn done(&mut self, keep_alive: bool) {
        self.connection.done(self.now, keep_alive);
        self.open = false;
        assert!(self.connection.request().is_none());
    }

    fn feed(&mut self, bytes: &[u8]) -> usize {
        let space = self.connection.space();
        let count = space.len().min(bytes.len());
        space[..count].copy_from_slice(&bytes[..count]);
        if count > 0 {
            self.connection.filled(self.now, count);
            self.fed += count;
        }
        count
    }
}

fn new() -> Run {
    let now = Uptime::default();
    let connection = Connection::new(now);
    Run { connection, now, fed: 0, body: 0, open: false, over: false }
}

fn operations(data: &[u8]) {
    let mut run = new();
    let mut rest = data;
    while let [operation, after @ ..] = rest {
        let amount = usize::from(*operation >> 3);
        rest = after;
        match operation & 7 {
            0..=3 => {
                let count = (amount * amount / 4 + 1).min(rest.len());
                let taken = run.feed(&rest[..count]);
                rest = &rest[taken..];
                if taken == 0 && count > 0 {
                    rest = &rest[count..];
                }
            }
            4 => run.now = run.now + Duration::from_millis(50 * amount as u64 * amount as u64),
            5 => run.done(amount > 3),
            6 => run.connection.filled(run.now, 0),
            _ => {}
        }
        if run.settle(amount == 31) == Wait::Answer && amount % 2 == 1 {
            run.done(amount % 4 != 3);
        }
    }
}

/// Returns the events as text when `input` arrives in pieces of this size and time stands still.
fn events(input: &[u8], size: usize, answer_early: bool) -> Vec<String> {
    let mut connection = Connection::new(Uptime::default());
    let now = Uptime::default();
    let (mut seen, mut body, mut rest) = (Vec::new(), Vec::new(), input);
    loop {
        match connection.poll(now) {
            Event::NeedData => {
                let space = connection.space();
                let count = rest.len().min(space.len()).min(size);
                space[..count].copy_from_slice(&rest[..count]);
                connection.filled(now, count);
                rest = &rest[count..];
            }
            Event::Request => {
                seen.push(format!("{:?}", connection.request()));
                if answer_early {
                    connection.done(now, true);
                }
            }
            // This event depends on whether the body has arrived.
            Event::Continue => {}
            Event::Body(data) => body.extend_from_slice(data),
            Event::EndOfBody => {
                seen.push(format!("{:?}", core::mem::take(&mut body)));
                connection.done(now, true);
            }
            Event::Refuse { status, .. } => seen.push(format!("{status}")),
            Event::TimedOut => unreachable!("time stands still"),
            Event::Closed => return seen,
        }
    }
}

pub fn run(data: &[u8]) {
    operations(data);
    let [size, input @ ..] = data else { return };
    let (size, early) = (usize::from(size >> 1) + 1, size & 1 == 1);
    // If a client waits for `100 Continue` and gets an early answer, the agent drains the body only
    // if it has arrived.
    if !early || !input.windows(6).any(|word| word.eq_ignore_ascii_case(b"expect")) {
        assert_eq!(
            events(input, size, early),
            events(input, usize::MAX, early),
            "pieces of {size}"
        );
    }
}
