//! HTTP and websockets as other people's clients speak them, also where they are wrong.

use std::io::{BufReader, Read, Write};
use std::os::unix::net::UnixStream;

use mote_tests::agent::{Pair, split};

use super::{answered, lxd};

#[test]
fn http10_is_told_that_its_connection_goes_on() {
    let pair = lxd();
    let mut stream = pair.connect();
    // As ApacheBench asks with -k.
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: x\r\n\r\n").unwrap();
        let (head, mut reader) = answered(stream.try_clone().unwrap());
        assert!(head.contains("\r\nConnection: keep-alive\r\n"), "{head}");
        let mut body = [0; 9];
        reader.read_exact(&mut body).unwrap();
        assert_eq!(&body, b"[\"/1.0\"]\n");
    }
    let last = pair.talk(b"GET / HTTP/1.0\r\n\r\n");
    assert!(last.contains("\r\nConnection: close\r\n"), "{last}");
    let newer = pair.talk(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n");
    assert!(!newer.contains("Connection"), "{newer}");
    let error = pair.talk(b"GET /1.0/config/user.nope HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(
        error.starts_with("HTTP/1.1 404") && error.contains("Connection: keep-alive"),
        "{error}"
    );
}

#[test]
fn requests_typed_by_hand_are_read_and_smuggled_ones_are_not() {
    let pair = lxd();
    let status = |text: &str| split(&pair.talk(text.as_bytes())).0;
    assert_eq!(status("GET / HTTP/1.1\nHost: x\n\n"), 200);
    assert_eq!(status("GET / HTTP/1.0\n\n"), 200);
    let ready = "PATCH /1.0 HTTP/1.1\nHost: x\nContent-Length: 17\n\n{\"state\":\"Ready\"}";
    assert_eq!(status(ready), 200);
    for fields in [
        "Content-Length: 3\nTransfer-Encoding: chunked",
        "Content-Length: 3\nContent-Length: 4",
        "A: b\n Content-Length: 3",
        "Content-Length : 3",
        "A: b\rContent-Length: 3",
        "Host: y",
    ] {
        let text = format!("PATCH /1.0 HTTP/1.1\nHost: x\n{fields}\n\n{{}}");
        assert_eq!(status(&text), 400, "{fields:?}");
    }
    let head = "PATCH /1.0 HTTP/1.1\nHost: x\nTransfer-Encoding: chunked\n\n";
    for body in ["2\n{}\r\n0\r\n\r\n", "2\r\n{}\n0\r\n\r\n", "2\r\n{}\r\n0\n\n"] {
        assert_eq!(status(&format!("{head}{body}GET / HTTP/1.0\n\n")), 400, "{body:?}");
    }
}

#[test]
fn http11_needs_one_host() {
    for flavour in ["lxd", "incus"] {
        let pair = Pair::start(flavour, &[]);
        let client = pair.client();
        for (fields, status) in [
            ("", 400),
            ("Host: a\r\nHost: b\r\n", 400),
            ("Host: a b\r\n", 400),
            ("Host:\r\n", 200),
            ("Host: custom.socket\r\n", 200),
        ] {
            let text = format!("GET / HTTP/1.1\r\n{fields}Connection: close\r\n\r\n");
            assert_eq!(split(&pair.talk(text.as_bytes())).0, status, "{fields:?}");
            let mut wire = client.connect().unwrap();
            wire.send(text.as_bytes()).unwrap();
            assert_eq!(wire.answer().unwrap().status, status, "the host: {fields:?}");
        }
        assert_eq!(split(&pair.talk(b"GET / HTTP/1.0\r\n\r\n")).0, 200);
    }
}

/// A websocket for events, behind its first ping.
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

/// All that is said to these bytes, up to the end.
fn said_to(pair: &Pair, bytes: &[u8]) -> Vec<u8> {
    let (mut stream, mut frames) = websocket(pair);
    stream.write_all(bytes).expect("an agent");
    let mut said = Vec::new();
    frames.read_to_end(&mut said).expect("an agent");
    said
}

#[test]
fn a_goodbye_is_given_back_and_nothing_follows() {
    let pair = lxd();
    // Masked with zeros.
    let close = |payload: &[u8]| {
        let length = u8::try_from(payload.len()).unwrap();
        said_to(&pair, &[&[0x88, 0x80 | length, 0, 0, 0, 0], payload].concat())
    };
    assert_eq!(close(&[]), [0x88, 0]);
    assert_eq!(close(&1000_u16.to_be_bytes()), [0x88, 2, 3, 0xe8]);
    assert_eq!(close(&[&4001_u16.to_be_bytes()[..], b"why"].concat()), [0x88, 2, 0x0f, 0xa1]);
}

#[test]
fn a_broken_frame_is_told_so_and_ends_the_connection() {
    let pair = lxd();
    let told = |code: u16| [&[0x88, 2][..], &code.to_be_bytes()].concat();
    for (bytes, why) in [
        (&[0x81, 1, b'x'][..], "not masked"),
        (&[0xc1, 0x80, 0, 0, 0, 0], "a reserved bit"),
        (&[0x83, 0x80, 0, 0, 0, 0], "a reserved opcode"),
        (&[0x09, 0x80, 0, 0, 0, 0], "a ping in pieces"),
        (&[0x89, 0xfe, 0, 1, 0, 0, 0, 0, b'x'], "a ping with a long-form length"),
        (&[0x82, 0xfe, 0, 1, 0, 0, 0, 0, b'x'], "a length that is not minimal"),
        (&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "a length of 64 bits"),
        (&[0x80, 0x80, 0, 0, 0, 0], "a continuation of nothing"),
        (&[0x88, 0x81, 0, 0, 0, 0, 1], "half a status code"),
        (&[0x88, 0x82, 0, 0, 0, 0, 3, 0xed], "a status code that is never sent"),
    ] {
        assert_eq!(said_to(&pair, bytes), told(1002), "{why}");
    }
    assert_eq!(said_to(&pair, &[0x81, 0x81, 0, 0, 0, 0, 0xff]), told(1007));
}

#[test]
fn an_old_server_knows_no_other_paths() {
    let pair = Pair::start("lxd-5.0", &["user.foo=bar"]);
    let nothing = (404, "404 page not found\n".into());
    for path in ["/nope", "/1.0/nope", "/1.0/", "/1.0/config/user.a/b", "/1.0/ubuntu-pro"] {
        assert_eq!(pair.ask("GET", path), nothing, "{path}");
    }
    let whole = pair.talk(b"GET /nope HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(whole.contains("\r\nContent-Type: text/plain; charset=utf-8\r\n"), "{whole}");
    assert!(whole.contains("\r\nX-Content-Type-Options: nosniff\r\n"), "{whole}");
    // A key whose slash is encoded is a key.
    assert_eq!(pair.ask("GET", "/1.0/config/user.a%2Fb").0, 404);
    assert_ne!(pair.ask("GET", "/1.0/config/user.a%2Fb"), nothing);
    assert_eq!(pair.ask("GET", "/1.0/config/user.foo"), (200, "bar".into()));
    let answer = pair.client().ask("GET", "/1.0/nope", "").unwrap();
    assert_eq!(answer.short(), "404 404 page not found");
}

#[test]
fn a_dead_host_is_told_of_in_the_servers_own_words() {
    for (flavour, words, unverified) in [
        (
            "lxd",
            "Failed connecting to devLXD over vsock: ",
            "500 Failed verifying connection to LXD",
        ),
        ("lxd-5.0", "Failed connecting to LXD over vsock: ", "500 cannot reach"),
        ("incus", "Failed connecting to host over vsock: ", "500 cannot reach"),
    ] {
        let mut pair = Pair::start(flavour, &["user.foo=bar"]);
        let client = pair.client();
        let told = client.host_info().unwrap().to_string();
        pair.host.kill();
        let (status, text) = pair.ask("GET", "/1.0/config/user.foo");
        assert_eq!(status, 500);
        assert!(text.starts_with(words), "{text}");
        let answer = client.ask("PUT", "/1.0", &told).unwrap();
        assert!(answer.short().starts_with(unverified), "{}", answer.short());
    }
}
