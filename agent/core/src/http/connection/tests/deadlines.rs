//! Deadlines, and steps that have none.

use super::*;

#[test]
fn draining_keeps_the_deadline_of_the_body() {
    let mut connection = connection();
    put(&mut connection, 0, b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n");
    assert_eq!(connection.poll(at(1000)), Event::Request);
    assert_eq!(connection.poll(at(1000)), Event::NeedData);
    connection.done(at(2000), true);
    assert_eq!(connection.deadline(), Some(at(11_000)));
    put(&mut connection, 2000, b"12345678");
    assert_eq!(connection.poll(at(10_999)), Event::NeedData);
    assert_eq!(connection.poll(at(11_000)), Event::TimedOut);
}

/// Feeds one byte each half second; returns the event that ends this, and its time in ms.
fn drip(connection: &mut Connection, mut now: u64, bytes: &[u8]) -> (String, u64) {
    let mut bytes = bytes.iter();
    loop {
        match connection.poll(at(now)) {
            Event::NeedData => {
                now += 500;
                if connection.deadline().is_some_and(|deadline| at(now) >= deadline) {
                    continue;
                }
                put(connection, now, &[*bytes.next().unwrap()]);
            }
            Event::Request | Event::Body(_) => {}
            Event::Refuse { status, text } => break (format!("{status} {text}"), now),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_first_head_is_timed_from_the_connection() {
    let mut connection = connection();
    let (end, when) = drip(&mut connection, 0, &GET.repeat(2));
    assert!(end.contains("408") && end.contains("head"), "{end}");
    assert_eq!(when, 3000);
    assert_eq!(connection.poll(at(when)), Event::Closed);
}

#[test]
fn a_later_head_is_timed_from_its_first_byte() {
    let mut connection = asked(GET);
    connection.done(at(0), true);
    assert_eq!(connection.poll(at(20_000)), Event::NeedData);
    let (end, when) = drip(&mut connection, 20_000, GET);
    assert!(end.contains("408") && end.contains("head"), "{end}");
    assert_eq!(when, 23_500);
}

#[test]
fn a_pipelined_head_is_timed_from_the_previous_answer() {
    let mut connection = asked(&[GET, b"GET"].concat());
    connection.done(at(60_000), true);
    assert_eq!(connection.deadline(), Some(at(63_000)));
    assert_eq!(connection.poll(at(62_999)), Event::NeedData);
    assert!(matches!(connection.poll(at(63_000)), Event::Refuse { status: 408, .. }));
}

#[test]
fn a_slow_body_has_one_deadline() {
    for head in ["Content-Length: 99", "Transfer-Encoding: chunked"] {
        let mut connection = connection();
        put(&mut connection, 0, format!("PUT / HTTP/1.1\r\nHost: h\r\n{head}\r\n\r\n").as_bytes());
        let (end, when) = drip(&mut connection, 0, b"18;xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
        assert!(end.contains("408") && end.contains("body"), "{end}");
        assert_eq!(when, 10_000);
    }
}

#[test]
fn answers_have_no_deadline() {
    let mut connection = asked(GET);
    assert_eq!(connection.deadline(), None);
    assert_eq!(connection.poll(at(3_600_000)), Event::EndOfBody);
}

#[test]
fn input_that_arrived_in_time_counts_when_polled_late() {
    let mut connection = connection();
    put(&mut connection, 2999, b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nab");
    assert_eq!(connection.poll(at(9000)), Event::Request);
    assert_eq!(connection.poll(at(99_000)), Event::Body(b"ab"));
    assert_eq!(connection.poll(at(99_000)), Event::EndOfBody);
}

#[test]
fn a_silent_client_is_closed_without_an_answer() {
    let mut connection = connection();
    assert_eq!(connection.deadline(), Some(at(3000)));
    assert_eq!(connection.poll(at(2999)), Event::NeedData);
    assert_eq!(connection.poll(at(3000)), Event::TimedOut);
    assert_eq!(connection.poll(at(3000)), Event::Closed);
}

#[test]
fn an_empty_line_starts_no_request() {
    let mut connection = asked(&[GET, b"\r\n"].concat());
    connection.done(at(0), true);
    assert_eq!(connection.poll(at(2999)), Event::NeedData);
    assert_eq!(connection.poll(at(3000)), Event::TimedOut);
}

#[test]
fn idle_time_limits_the_pause_between_requests() {
    let mut connection = asked(GET);
    connection.done(at(1000), true);
    assert_eq!(connection.deadline(), Some(at(31_000)));
    assert_eq!(connection.poll(at(30_999)), Event::NeedData);
    assert_eq!(connection.poll(at(31_000)), Event::TimedOut);
}
