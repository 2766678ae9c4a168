//! SFTP packets. Invariants: a request with an id gets an answer with that id, every prefix and
//! extension is malformed or reads the same, borrowed data lies in the frame, and replies fit their
//! buffer.

use mote_core::sftp::attrs::Attrs;
use mote_core::sftp::longname::Listed;
use mote_core::sftp::reply::{self, Full, Names};
use mote_core::sftp::request::{Malformed, Packet, Request};
use mote_core::sftp::{MODES, PACKET, REPLY, frame_length};

/// Splits like a session and checks each packet.
fn stream(input: &[u8]) {
    let mut rest = input;
    while let Ok(Some(length)) = frame_length(rest) {
        assert!((5..=PACKET + 4).contains(&length));
        let Some((whole, after)) = rest.split_at_checked(length) else { break };
        packet(&whole[4..]);
        rest = after;
    }
}

fn packet(content: &[u8]) {
    let parsed = Packet::parse(content, MODES);
    assert_eq!(parsed == Err(Malformed::Nameless), content.len() < 5);
    if let Err(Malformed::Fields { id }) = parsed {
        assert_eq!(id.to_be_bytes(), content[1..5]);
    }
    if let Ok(Packet::Request { id, request }) = parsed {
        assert_eq!(id.to_be_bytes(), content[1..5]);
        assert!(request.reply_room() <= REPLY);
        if let Request::Write { data, .. } = request {
            assert!(content.as_ptr_range().contains(&data.as_ptr()) || data.is_empty());
        }
        let longer = [content, b"\0\0\0\x01x"].concat();
        assert_eq!(Packet::parse(&longer, MODES), parsed);
    }
}

fn prefixes(content: &[u8], cut: usize) {
    if let Ok(whole) = Packet::parse(content, MODES) {
        let prefix = Packet::parse(&content[..cut], MODES);
        let unknown = matches!(prefix, Ok(Packet::Request { request: Request::Unknown, .. }));
        assert!(prefix.is_err() || prefix == Ok(whole) || unknown, "cut at {cut}");
    }
}

fn replies(input: &[u8], room: usize) {
    let mut out = vec![0; room];
    let number = input.iter().fold(0u64, |sum, byte| sum.rotate_left(8) ^ u64::from(*byte));
    let [a, b] = [number as u32, (number >> 32) as u32];
    let attrs = Attrs {
        size: Some(number),
        owner: Some((a, b)),
        permissions: Some(a),
        times: (b & 1 == 0).then_some((b, a)),
    };
    check(&out.clone(), reply::path(&mut out, a, input));
    check(&out.clone(), reply::attrs(&mut out, a, &attrs));
    check(&out.clone(), reply::numbers(&mut out, a, &[number; 11]));
    let mut names = Names::new(&mut out, a);
    for name in input.split(|byte| *byte == b'/') {
        names.push(name, &Listed { attrs, links: b }, number >> 8);
    }
    let length = names.finish();
    check(&out, length);
    let read = |place: &mut [u8]| {
        assert!(place.len() <= 100);
        Ok::<_, ()>(place.len())
    };
    if let Ok(length) = reply::data(&mut out, a, 100, read) {
        check(&out, length);
    }
}

fn check(out: &[u8], length: Result<usize, Full>) {
    if let Ok(length) = length {
        assert!((9..=out.len()).contains(&length));
    }
}

pub fn run(data: &[u8]) {
    let [high, low, input @ ..] = data else { return };
    let number = usize::from(u16::from_be_bytes([*high, *low]));
    stream(input);
    packet(input);
    prefixes(input, number % (input.len() + 1));
    replies(input, number);
}
