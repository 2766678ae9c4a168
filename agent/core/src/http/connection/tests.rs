use super::Event::{Body, Closed, Continue, EndOfBody, NeedData, Request, TimedOut};
use super::*;
use crate::time::at;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const EXPECTS: &[u8] =
    b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";

fn connection() -> Connection {
    Connection::new(at(0))
}

fn put(connection: &mut Connection, now: u64, bytes: &[u8]) {
    connection.space()[..bytes.len()].copy_from_slice(bytes);
    connection.filled(at(now), bytes.len());
}

#[track_caller]
fn polls(connection: &mut Connection, now: u64, expected: &[Event<'_>]) {
    for event in expected {
        assert_eq!(connection.poll(at(now)), *event);
    }
}

/// Returns a connection that has received this input.
fn with(input: &[u8]) -> Connection {
    let mut connection = connection();
    put(&mut connection, 0, input);
    connection
}

/// Returns a connection whose first request, without a body, waits for its answer.
fn asked(input: &[u8]) -> Connection {
    let mut connection = with(input);
    polls(&mut connection, 0, &[Request, EndOfBody]);
    connection
}

#[derive(Clone, Copy, PartialEq)]
enum Answered {
    Whole,
    AtTheHead,
}

/// Feeds the pieces, then an end of input, and answers every request; returns the events as text.
/// A piece larger than the space is fed in parts.
fn feed<'p>(pieces: impl IntoIterator<Item = &'p [u8]>, when: Answered) -> Vec<String> {
    let mut connection = connection();
    let mut pieces = pieces.into_iter().filter(|piece| !piece.is_empty());
    let (mut seen, mut body, mut rest) = (Vec::new(), Vec::new(), &b""[..]);
    loop {
        match connection.poll(at(0)) {
            NeedData => {
                if rest.is_empty() {
                    rest = pieces.next().unwrap_or_default();
                }
                let count = rest.len().min(connection.space().len());
                assert!(count > 0 || rest.is_empty(), "no space for the request");
                put(&mut connection, 0, &rest[..count]);
                rest = &rest[count..];
            }
            Request => {
                let request = connection.request().unwrap();
                seen.push(format!("{} {}", request.method_text, request.path));
                drop(request);
                if when == Answered::AtTheHead {
                    connection.done(at(0), true);
                }
            }
            Continue => seen.push("continue".into()),
            Body(data) => {
                assert!(!data.is_empty(), "a piece of a body has bytes");
                body.extend_from_slice(data);
            }
            EndOfBody => {
                seen.push(format!("body {}", String::from_utf8_lossy(&body)));
                body.clear();
                let keep_alive = connection.request().unwrap().keep_alive;
                connection.done(at(0), keep_alive);
            }
            Event::Refuse { status, .. } => seen.push(format!("refuse {status}")),
            TimedOut => seen.push("timed out".into()),
            Closed => break,
        }
    }
    assert_eq!(connection.poll(at(0)), Closed, "over is over");
    assert_eq!(connection.deadline(), None);
    seen
}

fn run(input: &[u8], size: usize) -> Vec<String> {
    feed(input.chunks(size), Answered::Whole)
}

const THREE: &[u8] =
    b"PATCH /1.0 HTTP/1.1\r\nHost: h\r\nContent-Length: 17\r\n\r\n{\"state\":\"Ready\"}\
    \r\nPOST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n\
    GET / HTTP/1.0\r\n\r\nnever looked at";
const THREE_SEEN: [&str; 6] =
    ["PATCH /1.0", "body {\"state\":\"Ready\"}", "POST /x", "body abc", "GET /", "body "];

#[test]
fn reads_pipelined_requests_in_pieces_of_any_size() {
    for size in 1..=THREE.len() {
        assert_eq!(run(THREE, size), THREE_SEEN, "in pieces of {size}");
    }
}

#[test]
fn sends_one_continue_to_a_waiting_client() {
    let mut connection = with(EXPECTS);
    polls(&mut connection, 0, &[Request, Continue, NeedData]);
    put(&mut connection, 0, b"h");
    polls(&mut connection, 0, &[Body(b"h"), NeedData]);
    put(&mut connection, 0, b"i");
    polls(&mut connection, 0, &[Body(b"i"), EndOfBody]);
    // A client that did not wait, or has no body, gets no `100 Continue`.
    let eager = [EXPECTS, b"hi"].concat();
    assert_eq!(run(&eager, eager.len()), ["PUT /", "body hi"]);
    let bodiless = String::from_utf8_lossy(EXPECTS).replace(": 2", ": 0");
    assert_eq!(run(bodiless.as_bytes(), 7), ["PUT /", "body "]);
    // After an early answer, the body or another request may follow. They cannot be distinguished.
    let mut refused = with(EXPECTS);
    polls(&mut refused, 0, &[Request]);
    refused.done(at(0), true);
    polls(&mut refused, 0, &[Closed]);
}

#[test]
fn the_request_is_available_from_its_head_to_its_answer() {
    let mut connection = with(b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab");
    assert!(connection.request().is_none());
    polls(&mut connection, 0, &[Request, Body(b"ab"), NeedData]);
    put(&mut connection, 0, b"cGET /b");
    polls(&mut connection, 0, &[Body(b"c")]);
    assert_eq!(connection.request().unwrap().path, "/a");
    polls(&mut connection, 0, &[EndOfBody]);
    assert_eq!(connection.request().unwrap().path, "/a");
    assert_eq!(connection.leftover(), b"GET /b");
    connection.done(at(0), true);
    assert!(connection.request().is_none());
    put(&mut connection, 0, b" HTTP/1.1\r\nHost: h\r\n\r\n");
    polls(&mut connection, 0, &[Request]);
    assert_eq!(connection.request().unwrap().path, "/b");
}

#[test]
fn the_activity_shows_which_side_must_act() {
    let mut connection = connection();
    assert_eq!(connection.activity(), Activity::Silent);
    put(&mut connection, 0, b"PUT / HTTP/1.1\r\n");
    assert_eq!(connection.activity(), Activity::Head);
    put(&mut connection, 0, b"Host: h\r\nContent-Length: 2\r\n\r\nab");
    polls(&mut connection, 0, &[Request]);
    assert_eq!(connection.activity(), Activity::Body);
    polls(&mut connection, 0, &[Body(b"ab"), EndOfBody]);
    assert_eq!(connection.activity(), Activity::Served);
    connection.done(at(0), true);
    assert_eq!(connection.activity(), Activity::KeptAlive);
    // An answer without a request closes the connection.
    connection.done(at(0), true);
    assert_eq!(connection.activity(), Activity::Closing);
    polls(&mut connection, 0, &[Closed]);
}

#[test]
fn drains_a_short_request_that_was_answered_early() {
    for size in 1..THREE.len() {
        let seen = feed(THREE.chunks(size), Answered::AtTheHead);
        // The third answer also keeps the connection open, so the noise after it is parsed.
        assert_eq!(seen, ["PATCH /1.0", "POST /x", "GET /", "refuse 505"], "in pieces of {size}");
    }
}

#[test]
fn limits_how_much_is_drained() {
    for (length, goes_on) in
        [(limits::BODY - 1, true), (limits::BODY, true), (limits::BODY + 1, false)]
    {
        let mut input =
            format!("PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        input.resize(input.len() + length, b'z');
        input.extend(GET);
        let seen = feed(input.chunks(5000), Answered::AtTheHead);
        assert_eq!(seen.len(), if goes_on { 2 } else { 1 }, "{length}");
    }
}

#[test]
fn an_end_in_the_middle_closes_without_an_answer() {
    let put = |body| format!("PUT / HTTP/1.1\r\nHost: h\r\n{body}");
    let [known, chunked, broken] = [
        "Content-Length: 9\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n9\r\nab",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n",
    ]
    .map(put);
    // The same holds while draining.
    for body in [&known, &chunked, &broken] {
        assert_eq!(feed([body.as_bytes()], Answered::AtTheHead), ["PUT /"]);
    }
    assert_eq!(run(known.as_bytes(), 3), ["PUT /"]);
    for partial in [&b""[..], b"GET / HT"] {
        assert_eq!(run(partial, 3), [""; 0]);
    }
}

#[test]
fn an_answer_with_close_ends_the_connection() {
    let put_then_get = [b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", GET].concat();
    let mut early = with(&put_then_get);
    polls(&mut early, 0, &[Request]);
    for mut connection in [early, asked(&[GET, GET].concat())] {
        connection.done(at(0), false);
        polls(&mut connection, 0, &[Closed]);
    }
}

#[test]
fn the_head_shows_the_longest_body_unless_chunked() {
    for (framing, known) in
        [("Content-Length: 7", [false, true]), ("Transfer-Encoding: chunked", [false; 2])]
    {
        let head = format!("PUT / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
        let mut connection = with(head.as_bytes());
        polls(&mut connection, 0, &[Request]);
        assert_eq!([6, 7].map(|most| connection.is_within(most)), known, "{framing}");
    }
    assert!(asked(GET).is_within(0));
}

#[test]
fn refuses_invalid_requests_and_closes() {
    assert_eq!(run(b"\x16\x03\x01hello\r\n", 3), ["refuse 400"]);
    let smuggled =
        b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(run(smuggled, 9), ["refuse 400"]);
    assert_eq!(run(b"GET / HTTP/1.1\r\n\r\n", 9), ["refuse 400"]);
    assert_eq!(run(b"GET / HTTP/3.0\r\n\r\n", 9), ["refuse 505"]);
    let long = [b"GET /".as_slice(), &vec![b'x'; 3 * limits::HEAD]].concat();
    for size in [1000, long.len()] {
        assert_eq!(run(&long, size), ["refuse 431"]);
    }
    for framed in ["3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "3\r\nabc\r\n0\n\n", "zz\r\n"] {
        let head = "POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n";
        let input = format!("{head}{framed}GET /smuggled HTTP/1.1\nHost: h\n\n");
        assert_eq!(run(input.as_bytes(), 7), ["POST /", "refuse 400"], "{framed:?}");
    }
}

#[test]
fn a_half_closed_client_gets_all_its_answers() {
    let mut connection = with(&[GET, GET].concat());
    connection.filled(at(0), 0);
    for _ in 0..2 {
        polls(&mut connection, 0, &[Request, EndOfBody]);
        connection.done(at(0), true);
    }
    polls(&mut connection, 0, &[Closed]);
}

#[test]
fn a_large_body_passes_through_the_bounded_buffer() {
    // The longest head leaves the least space.
    let head = |fill: usize| {
        let fill = "x".repeat(fill);
        format!("PUT / HTTP/1.1\r\nHost: h\r\nA: {fill}\r\nContent-Length: 1000000\r\n\r\n")
    };
    let mut input = head(limits::HEAD - head(0).len()).into_bytes();
    assert_eq!(input.len(), limits::HEAD);
    input.resize(input.len() + 1_000_000, b'z');
    input.extend(GET);
    for size in [4000, input.len()] {
        let seen = run(&input, size);
        assert_eq!((seen.len(), seen[1].len()), (4, 5 + 1_000_000));
    }
}

/// Feeds one byte each half second; returns the event that ends this, and its time in ms.
fn drip(connection: &mut Connection, mut now: u64, bytes: &[u8]) -> (String, u64) {
    let mut bytes = bytes.iter();
    loop {
        match connection.poll(at(now)) {
            NeedData => {
                now += 500;
                if connection.deadline().is_some_and(|deadline| at(now) >= deadline) {
                    continue;
                }
                put(connection, now, &[*bytes.next().unwrap()]);
            }
            Request | Body(_) => {}
            Event::Refuse { status, text } => break (format!("{status} {text}"), now),
            other => panic!("{other:?}"),
        }
    }
}

/// Returns a connection whose first request was answered at that time.
fn answered(input: &[u8], when: u64) -> Connection {
    let mut connection = asked(input);
    connection.done(at(when), true);
    connection
}

#[test]
fn a_slow_head_or_body_has_one_deadline() {
    let put = |framing| format!("PUT / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
    let [known, chunked] = ["Content-Length: 99", "Transfer-Encoding: chunked"].map(put);
    let body = &b"18;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"[..];
    for (mut connection, begun, bytes, what, late) in [
        // The first head is timed from the connection, a later one from its first byte.
        (connection(), 0, &GET.repeat(2)[..], "head", 3000),
        (answered(GET, 0), 20_000, GET, "head", 23_500),
        (with(known.as_bytes()), 0, body, "body", 10_000),
        (with(chunked.as_bytes()), 0, body, "body", 10_000),
    ] {
        let expected = format!("408 Request {what} took too long");
        assert_eq!(drip(&mut connection, begun, bytes), (expected, late));
        polls(&mut connection, late, &[Closed]);
    }
}

#[test]
fn each_step_but_the_answer_has_its_deadline() {
    let mut drained = with(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    polls(&mut drained, 1000, &[Request, NeedData]);
    drained.done(at(2000), true);
    put(&mut drained, 2000, b"12345678");
    let late = Event::Refuse { status: 408, text: "Request head took too long" };
    for (mut connection, deadline, end) in [
        (connection(), 3000, TimedOut),
        (answered(GET, 1000), 31_000, TimedOut),
        // An empty line starts no request.
        (answered(&[GET, b"\r\n"].concat(), 0), 3000, TimedOut),
        // A pipelined head is timed from the previous answer.
        (answered(&[GET, b"GET"].concat(), 60_000), 63_000, late),
        // Draining keeps the deadline of the body.
        (drained, 11_000, TimedOut),
    ] {
        assert_eq!(connection.deadline(), Some(at(deadline)));
        polls(&mut connection, deadline - 1, &[NeedData]);
        polls(&mut connection, deadline, &[end, Closed]);
    }
    let mut connection = asked(GET);
    assert_eq!(connection.deadline(), None);
    polls(&mut connection, 3_600_000, &[EndOfBody]);
}

#[test]
fn input_that_arrived_in_time_counts_when_polled_late() {
    let mut connection = with(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
    polls(&mut connection, 9000, &[Request]);
    polls(&mut connection, 99_000, &[Body(b"ab"), EndOfBody]);
}
