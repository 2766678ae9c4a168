use super::*;
use crate::sftp::MODES;

/// A field as a client writes it.
#[derive(Clone, Copy)]
enum Field<'a> {
    Int(u32),
    Long(u64),
    Text(&'a [u8]),
}
use Field::{Int, Long, Text};

fn frame(kind: u8, fields: &[Field<'_>]) -> Vec<u8> {
    let mut out = vec![kind, 0, 0, 0, 7];
    for field in fields {
        match field {
            Int(value) => out.extend(value.to_be_bytes()),
            Long(value) => out.extend(value.to_be_bytes()),
            Text(text) => {
                out.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
                out.extend(*text);
            }
        }
    }
    out
}

const H: Handle = Handle(0x0102_0304_0506_0708);
const HANDLE: Field<'static> = Text(b"\x01\x02\x03\x04\x05\x06\x07\x08");

#[test]
fn reads_packets_that_no_client_of_version_3_sends() {
    for frame in [&b"\x01\0\0\0\x03"[..], b"\x01\0\0\0\x06\0\0\0\x01x\0\0\0\0"] {
        assert_eq!(Packet::parse(frame, MODES), Ok(Packet::Init));
    }
    let parsed = |frame: &[u8], request| {
        assert_eq!(Packet::parse(frame, MODES), Ok(Packet::Request { id: 7, request }));
    };
    for kind in (0..=255).filter(|kind| !matches!(kind, 1 | 3..=20 | 200)) {
        parsed(&[kind, 0, 0, 0, 7], Request::Unknown);
    }
    // Handles of an invalid length.
    for text in [&b""[..], b"abcd", b"abcdefg", b"abcdefghi", &[b'a'; 256]] {
        parsed(&frame(4, &[Text(text)]), Request::Close { handle: Handle::NONE });
    }
}

#[test]
fn reads_attributes_by_their_flags() {
    let of = |fields: &[Field<'_>]| match Packet::parse(
        &frame(10, &[&[HANDLE], fields].concat()),
        MODES,
    ) {
        Ok(Packet::Request { request: Request::Fsetstat { attrs, .. }, .. }) => Some(attrs),
        _ => None,
    };
    let none = Attrs::default();
    assert_eq!(of(&[Int(0)]), Some(none));
    assert_eq!(of(&[Int(1), Long(9)]), Some(Attrs { size: Some(9), ..none }));
    assert_eq!(of(&[Int(2), Int(1), Int(2)]), Some(Attrs { owner: Some((1, 2)), ..none }));
    assert_eq!(of(&[Int(4), Int(0o755)]), Some(Attrs { permissions: Some(0o755), ..none }));
    assert_eq!(of(&[Int(8), Int(1), Int(2)]), Some(Attrs { times: Some((1, 2)), ..none }));
    // Flags of version 4, without their fields.
    assert_eq!(of(&[Int(0x70)]), Some(none));
    let extended = Int(0x8000_0004);
    let pairs = [extended, Int(1), Int(2), Text(b"a"), Text(b"b"), Text(b"c"), Text(b"")];
    assert_eq!(of(&pairs), Some(Attrs { permissions: Some(1), ..none }));
    assert_eq!(of(&[Int(0x8000_0000), Int(u32::MAX), Text(b"a"), Text(b"b")]), None);
}

#[test]
fn reserves_the_requested_length_up_to_the_limit() {
    let read = |length| Request::Read { handle: H, offset: 0, length }.reply_room();
    assert_eq!([0, 100, u32::MAX].map(read), [13, 113, 13 + DATA]);
    assert!(read(u32::MAX) <= REPLY);
}

#[test]
fn recognises_requests_that_change_files() {
    let open =
        |flags| Request::Open { path: b"a", flags: OpenFlags(flags), attrs: Attrs::default() };
    assert!(!open(0).writes() && !open(OpenFlags::READ).writes());
    for flag in [2, 4, 8, 16, 32, 64, 1 << 31] {
        assert!(open(OpenFlags::READ | flag).writes(), "{flag}");
    }
    assert!(Request::Mkdir { path: b"a", attrs: Attrs::default() }.writes());
    assert!(!Request::Fsync { handle: Handle::NONE }.writes());
}
