use super::*;
use crate::sftp::request::{Packet, Request};
use crate::sftp::{LISTING, MODES, REPLY};

const A: Attrs = Attrs {
    size: Some(0x0102_0304_0506_0708),
    owner: Some((1, 2)),
    permissions: Some(0o100_644),
    times: Some((3, 4)),
};
const A_BYTES: &[u8] =
    b"\0\0\0\x0f\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\x01\0\0\0\x02\0\0\x81\xa4\0\0\0\x03\0\0\0\x04";

type Write = Box<dyn Fn(&mut [u8]) -> Result<usize, Full>>;

/// Each reply, and its bytes after the length.
fn each() -> Vec<(Write, Vec<u8>)> {
    let with_attrs = |head: &[u8]| [head, A_BYTES].concat();
    let listed = |out: &mut [u8]| {
        let mut names = Names::new(out, 7);
        names.push(b"\xff", &Listed::default(), 0);
        names.finish()
    };
    vec![
        (
            Box::new(|out: &mut [u8]| status(out, 7, Code::OpUnsupported, &"no")) as Write,
            b"\x65\0\0\0\x07\0\0\0\x08\0\0\0\x02no\0\0\0\0".to_vec(),
        ),
        (
            Box::new(|out: &mut [u8]| handle(out, 7, Handle(0x0a0b_0c0d_0e0f_1011))),
            b"\x66\0\0\0\x07\0\0\0\x08\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11".to_vec(),
        ),
        (
            Box::new(|out: &mut [u8]| {
                let read = |room: &mut [u8]| {
                    assert_eq!(room.len(), 5);
                    room[..3].copy_from_slice(b"abc");
                    Ok::<_, Full>(3)
                };
                data(out, 7, 5, read)?
            }),
            b"\x67\0\0\0\x07\0\0\0\x03abc".to_vec(),
        ),
        (
            Box::new(|out: &mut [u8]| path(out, 7, b"/x")),
            b"\x68\0\0\0\x07\0\0\0\x01\0\0\0\x02/x\0\0\0\x02/x\0\0\0\0".to_vec(),
        ),
        (Box::new(|out: &mut [u8]| attrs(out, 7, &A)), with_attrs(b"\x69\0\0\0\x07")),
        (
            Box::new(|out: &mut [u8]| numbers(out, 7, &[1, 0x0203])),
            b"\xc9\0\0\0\x07\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\x02\x03".to_vec(),
        ),
        (
            Box::new(listed),
            b"\x68\0\0\0\x07\0\0\0\x01\0\0\0\x01\xff\0\0\0\x0c?????????? \xff\0\0\0\0".to_vec(),
        ),
    ]
}

#[test]
fn formats_replies_like_the_draft() {
    for (write, bytes) in each() {
        let mut out = [0xee; 512];
        let length = write(&mut out).unwrap();
        let prefix = u32::try_from(bytes.len()).unwrap().to_be_bytes();
        assert_eq!(out[..4], prefix);
        assert_eq!(out[4..length], bytes);
        assert!(out[length..].iter().all(|byte| *byte == 0xee), "{bytes:?} wrote past its end");
    }
}

#[test]
fn reports_a_reply_that_does_not_fit() {
    for (write, bytes) in each() {
        // READ needs space for the requested length, two bytes more than it reads here.
        let need = 4 + bytes.len() + if bytes[0] == READ { 2 } else { 0 };
        for room in 0..need {
            assert_eq!(write(&mut vec![0; room]), Err(Full), "{bytes:?} in {room}");
        }
        assert_eq!(write(&mut vec![0; need]), Ok(4 + bytes.len()));
    }
}

#[test]
fn announces_version_3_and_its_extensions() {
    let mut out = [0; 512];
    let length = version(&mut out).unwrap();
    assert_eq!(out[4..9], *b"\x02\0\0\0\x03");
    let mut rest = crate::sftp::wire::Reader(&out[9..length]);
    let mut count = 0;
    while let Some(name) = rest.string() {
        let mut frame = vec![200, 0, 0, 0, 1, 0, 0, 0, u8::try_from(name.len()).unwrap()];
        frame.extend(name);
        // A known name without fields is malformed, or LIMITS.
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
