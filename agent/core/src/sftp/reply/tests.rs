use super::*;
use crate::sftp::request::{Packet, Request};
use crate::sftp::{LISTING, MODES, REPLY};

#[test]
fn announces_version_3_and_its_extensions() {
    let mut out = [0; 512];
    let length = version(&mut out).unwrap();
    assert_eq!(out[4..9], *b"\x02\0\0\0\x03");
    let mut rest = crate::sftp::attrs::Reader(&out[9..length]);
    let mut count = 0;
    while let Some(name) = rest.string() {
        let mut frame = vec![200, 0, 0, 0, 1, 0, 0, 0, u8::try_from(name.len()).unwrap()];
        frame.extend(name);
        // A request with a known name but without fields is malformed, or LIMITS.
        let parsed = Packet::parse(&frame, MODES);
        let is_limits = matches!(parsed, Ok(Packet::Request { request: Request::Limits, .. }));
        assert!(is_limits || parsed.is_err(), "{parsed:?}");
        assert!(matches!(rest.string(), Some(b"1" | b"2")));
        count += 1;
    }
    assert_eq!((count, rest.0), (7, &b""[..]));
}

#[test]
fn limits_a_read_to_one_reply() {
    assert_eq!(data(&mut [0; 64], 1, 9, |_| Err("unreadable")), Err("unreadable"));
    let mut out = vec![0; 13 + DATA];
    let read = |room: &mut [u8]| Ok::<_, ()>(room.len());
    assert_eq!(data(&mut out, 1, u32::MAX, read), Ok(Ok(13 + DATA)));
}

#[test]
fn a_full_piece_of_a_directory_fits() {
    // The worst cases of LISTING bytes: names of four letters (24 bytes each) and of 255.
    let most = Attrs {
        size: Some(u64::MAX),
        owner: Some((u32::MAX, u32::MAX)),
        permissions: Some(u32::MAX),
        times: Some((u32::MAX, u32::MAX)),
    };
    for name in [4, 12, 255, 1023] {
        let count = LISTING / (19 + name + 1_usize).next_multiple_of(8);
        let mut out = vec![0; REPLY];
        let mut names = Names::new(&mut out, 1);
        for _ in 0..count {
            names.push(&vec![b'n'; name], &Listed { attrs: most, links: u32::MAX }, 0);
        }
        assert!(names.finish().is_ok(), "{count} names of {name}");
    }
}
