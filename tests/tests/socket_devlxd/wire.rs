//! HTTP and websockets as third-party clients use them, including invalid frames.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use mote_tests::Pair;

use super::{answered, lxd};

/// Opens an event websocket and reads its first ping.
fn websocket(pair: &Pair) -> (UnixStream, BufReader<UnixStream>) {
    let mut stream = pair.connect();
    let request = "GET /1.0/events HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\
                   Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).expect("an agent");
    let (head, mut frames) = answered(stream.try_clone().expect("an agent"));
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    let mut ping = [0; 2];
    frames.read_exact(&mut ping).expect("an agent");
    assert_eq!(ping, [0x89, 0]);
    (stream, frames)
}

/// Returns everything that the agent sends after these bytes.
fn said_to(pair: &Pair, bytes: &[u8]) -> Vec<u8> {
    let (mut stream, mut frames) = websocket(pair);
    stream.write_all(bytes).expect("an agent");
    let mut said = Vec::new();
    frames.read_to_end(&mut said).expect("an agent");
    said
}

#[test]
fn answers_a_close_frame_and_sends_nothing_after_it() {
    let pair = lxd();
    let close = |payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        said_to(&pair, &[&[0x88, 0x80 | length, 0, 0, 0, 0], payload].concat())
    };
    assert_eq!(close(&[]), [0x88, 0]);
    assert_eq!(close(&1000_u16.to_be_bytes()), [0x88, 2, 3, 0xe8]);
    assert_eq!(close(&[&4001_u16.to_be_bytes()[..], b"why"].concat()), [0x88, 2, 0x0f, 0xa1]);
}

#[test]
fn reports_an_invalid_frame_and_closes() {
    let pair = lxd();
    let told = |code: u16| [&[0x88, 2][..], &code.to_be_bytes()].concat();
    // Not masked, and not UTF-8. The core's tests cover each violation and its code.
    assert_eq!(said_to(&pair, &[0x81, 1, b'x']), told(1002));
    assert_eq!(said_to(&pair, &[0x81, 0x81, 0, 0, 0, 0, 0xff]), told(1007));
}
