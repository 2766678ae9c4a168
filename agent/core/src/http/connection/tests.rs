mod deadlines;

use super::*;
use crate::time::at;

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n";
const EXPECTS: &[u8] =
    b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n";

fn connection() -> Connection {
    Connection::new(at(0), Timeouts::default())
}

fn put(connection: &mut Connection, now: u64, bytes: &[u8]) {
    connection.space()[..bytes.len()].copy_from_slice(bytes);
    connection.filled(at(now), bytes.len());
}

/// Returns a connection whose first request, without a body, waits for its answer.
fn asked(input: &[u8]) -> Connection {
    let mut connection = connection();
    put(&mut connection, 0, input);
    assert_eq!(connection.poll(at(0)), Event::Request);
    assert_eq!(connection.poll(at(0)), Event::EndOfBody);
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
            Event::NeedData => {
                if rest.is_empty() {
                    rest = pieces.next().unwrap_or_default();
                }
                let count = rest.len().min(connection.space().len());
                assert!(count > 0 || rest.is_empty(), "no space for what was asked for");
                put(&mut connection, 0, &rest[..count]);
                rest = &rest[count..];
            }
            Event::Request => {
                let request = connection.request().unwrap();
                seen.push(format!("{} {}", request.method_text, request.path));
                drop(request);
                if when == Answered::AtTheHead {
                    connection.done(at(0), true);
                }
            }
            Event::Continue => seen.push("continue".into()),
            Event::Body(data) => {
                assert!(!data.is_empty(), "a piece of a body has bytes");
                body.extend_from_slice(data);
            }
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
    assert_eq!(connection.poll(at(0)), Event::Closed, "over is over");
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
fn bare_line_feeds_end_heads_and_do_not_change_bodies() {
    let input = b"PATCH /1.0 HTTP/1.1\nHost: h\nContent-Length: 3\n\n\na\nGET / HTTP/1.0\n\n";
    for size in 1..=input.len() {
        assert_eq!(run(input, size), ["PATCH /1.0", "body \na\n", "GET /", "body "], "{size}");
    }
}

#[test]
fn sends_one_continue_to_a_waiting_client() {
    let mut connection = connection();
    put(&mut connection, 0, EXPECTS);
    assert_eq!(connection.poll(at(0)), Event::Request);
    assert_eq!(connection.poll(at(0)), Event::Continue);
    assert_eq!(connection.poll(at(0)), Event::NeedData);
    put(&mut connection, 0, b"h");
    assert_eq!(connection.poll(at(0)), Event::Body(b"h"));
    assert_eq!(connection.poll(at(0)), Event::NeedData);
    put(&mut connection, 0, b"i");
    assert_eq!(connection.poll(at(0)), Event::Body(b"i"));
    assert_eq!(connection.poll(at(0)), Event::EndOfBody);
    // A client that did not wait, or has no body, gets no Continue.
    let eager = [EXPECTS, b"hi"].concat();
    assert_eq!(run(&eager, eager.len()), ["PUT /", "body hi"]);
    let bodiless = String::from_utf8_lossy(EXPECTS).replace(": 2", ": 0");
    assert_eq!(run(bodiless.as_bytes(), 7), ["PUT /", "body "]);
}

#[test]
fn the_request_is_available_from_its_head_to_its_answer() {
    let mut connection = connection();
    assert!(connection.request().is_none());
    put(&mut connection, 0, b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nab");
    assert_eq!(connection.poll(at(0)), Event::Request);
    assert_eq!(connection.poll(at(0)), Event::Body(b"ab"));
    assert_eq!(connection.poll(at(0)), Event::NeedData);
    put(&mut connection, 0, b"cGET /b");
    assert_eq!(connection.poll(at(0)), Event::Body(b"c"));
    assert_eq!(connection.request().unwrap().path, "/a");
    assert_eq!(connection.poll(at(0)), Event::EndOfBody);
    assert_eq!(connection.request().unwrap().path, "/a");
    assert_eq!(connection.leftover(), b"GET /b");
    connection.done(at(0), true);
    assert!(connection.request().is_none());
    put(&mut connection, 0, b" HTTP/1.1\r\nHost: h\r\n\r\n");
    assert_eq!(connection.poll(at(0)), Event::Request);
    assert_eq!(connection.request().unwrap().path, "/b");
}

#[test]
fn the_activity_shows_which_side_must_act() {
    let mut connection = connection();
    assert_eq!(connection.activity(), Activity::Silent);
    put(&mut connection, 0, b"PUT / HTTP/1.1\r\n");
    assert_eq!(connection.activity(), Activity::Head);
    put(&mut connection, 0, b"Host: h\r\nContent-Length: 2\r\n\r\na");
    assert_eq!(connection.poll(at(0)), Event::Request);
    assert_eq!(connection.activity(), Activity::Body);
    assert_eq!(connection.poll(at(0)), Event::Body(b"a"));
    put(&mut connection, 0, b"b");
    assert_eq!(connection.poll(at(0)), Event::Body(b"b"));
    assert_eq!(connection.poll(at(0)), Event::EndOfBody);
    assert_eq!(connection.activity(), Activity::Served);
    connection.done(at(0), true);
    assert_eq!(connection.activity(), Activity::KeptAlive);
    connection.done(at(0), true);
    assert_eq!(connection.activity(), Activity::Closing);
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
fn an_end_while_draining_closes() {
    for body in ["Content-Length: 9\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n9\r\nab"] {
        let input = format!("PUT / HTTP/1.1\r\nHost: h\r\n{body}");
        assert_eq!(feed([input.as_bytes()], Answered::AtTheHead), ["PUT /"]);
    }
    let broken =
        b"PUT / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n";
    assert_eq!(feed([&broken[..]], Answered::AtTheHead), ["PUT /"]);
}

#[test]
fn closes_when_a_waiting_client_is_refused() {
    let mut connection = connection();
    put(&mut connection, 0, EXPECTS);
    assert_eq!(connection.poll(at(0)), Event::Request);
    // Next may come the body or another request; they cannot be distinguished.
    connection.done(at(0), true);
    assert_eq!(connection.poll(at(0)), Event::Closed);
}

#[test]
fn an_answer_with_close_ends_the_connection() {
    let mut connection = connection();
    let put_then_get = [b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab", GET].concat();
    put(&mut connection, 0, &put_then_get);
    assert_eq!(connection.poll(at(0)), Event::Request);
    connection.done(at(0), false);
    assert_eq!(connection.poll(at(0)), Event::Closed);
    let mut connection = asked(&[GET, GET].concat());
    connection.done(at(0), false);
    assert_eq!(connection.poll(at(0)), Event::Closed);
}

#[test]
fn the_head_shows_the_longest_body_unless_chunked() {
    for (framing, known) in
        [("Content-Length: 7", [false, true]), ("Transfer-Encoding: chunked", [false; 2])]
    {
        let mut connection = connection();
        let head = format!("PUT / HTTP/1.1\r\nHost: h\r\n{framing}\r\n\r\n");
        put(&mut connection, 0, head.as_bytes());
        assert_eq!(connection.poll(at(0)), Event::Request);
        assert_eq!([6, 7].map(|most| connection.is_within(most)), known, "{framing}");
    }
    assert!(asked(GET).is_within(0));
}

#[test]
fn an_answer_without_a_request_closes() {
    let mut connection = connection();
    connection.done(at(0), true);
    assert_eq!(connection.poll(at(0)), Event::Closed);
}

#[test]
fn continues_after_a_bodiless_request_answered_early() {
    let twice = [GET, GET].concat();
    assert_eq!(feed(twice.chunks(3), Answered::AtTheHead), ["GET /", "GET /"]);
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
    for framed in ["3\nabc\r\n0\r\n\r\n", "3\r\nabc\n0\r\n\r\n", "3\r\nabc\r\n0\n\n"] {
        let head = "POST / HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n";
        let input = format!("{head}{framed}GET /smuggled HTTP/1.1\nHost: h\n\n");
        assert_eq!(run(input.as_bytes(), 7), ["POST /", "refuse 400"], "{framed:?}");
    }
    let chunk = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    assert_eq!(run(chunk, 5), ["POST /", "refuse 400"]);
}

#[test]
fn an_end_in_the_middle_closes_without_an_answer() {
    assert_eq!(run(b"GET / HT", 3), Vec::<String>::new());
    assert_eq!(run(b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nabc", 3), ["PUT /"]);
    assert_eq!(run(b"", 1), Vec::<String>::new());
}

#[test]
fn a_half_closed_client_gets_all_its_answers() {
    let mut connection = connection();
    put(&mut connection, 0, &[GET, GET].concat());
    connection.filled(at(0), 0);
    for _ in 0..2 {
        assert_eq!(connection.poll(at(0)), Event::Request);
        assert_eq!(connection.poll(at(0)), Event::EndOfBody);
        connection.done(at(0), true);
    }
    assert_eq!(connection.poll(at(0)), Event::Closed);
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
