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
const A: Attrs = Attrs {
    size: Some(1 << 40),
    owner: Some((1, 2)),
    permissions: Some(0o644),
    times: Some((3, 4)),
};

fn attrs() -> [Field<'static>; 7] {
    [Int(15), Long(1 << 40), Int(1), Int(2), Int(0o644), Int(3), Int(4)]
}

fn with_attrs<'a>(fields: impl IntoIterator<Item = Field<'a>>) -> Vec<Field<'a>> {
    fields.into_iter().chain(attrs()).collect()
}

/// A complete frame for each request.
fn each() -> Vec<(Vec<u8>, Request<'static>)> {
    let (path, from, to): (&[u8], &[u8], &[u8]) = (b"/a\xff", b"x", b"y");
    let (handle, attrs) = (H, A);
    let fields = |head: &[Field<'static>]| with_attrs(head.iter().copied());
    let all: [(u8, Vec<Field<'static>>, Request<'static>); 18] = [
        (
            3,
            fields(&[Text(path), Int(0x1a)]),
            Request::Open { path, flags: OpenFlags(0x1a), attrs },
        ),
        (4, vec![HANDLE], Request::Close { handle }),
        (
            5,
            vec![HANDLE, Long(1 << 33), Int(9)],
            Request::Read { handle, offset: 1 << 33, length: 9 },
        ),
        (6, vec![HANDLE, Long(5), Text(b"x")], Request::Write { handle, offset: 5, data: b"x" }),
        (7, vec![Text(path)], Request::Lstat { path }),
        (8, vec![HANDLE], Request::Fstat { handle }),
        (9, fields(&[Text(path)]), Request::Setstat { path, attrs }),
        (10, fields(&[HANDLE]), Request::Fsetstat { handle, attrs }),
        (11, vec![Text(path)], Request::Opendir { path }),
        (12, vec![HANDLE], Request::Readdir { handle }),
        (13, vec![Text(path)], Request::Remove { path }),
        (14, fields(&[Text(path)]), Request::Mkdir { path, attrs }),
        (15, vec![Text(path)], Request::Rmdir { path }),
        (16, vec![Text(path)], Request::Realpath { path }),
        (17, vec![Text(path)], Request::Stat { path }),
        (18, vec![Text(from), Text(to)], Request::Rename { from, to }),
        (19, vec![Text(path)], Request::Readlink { path }),
        (20, vec![Text(from), Text(to)], Request::Symlink { target: from, link: to }),
    ];
    let extended: [(&str, Vec<Field<'static>>, Request<'static>); 8] = [
        ("posix-rename@openssh.com", vec![Text(from), Text(to)], Request::PosixRename { from, to }),
        ("hardlink@openssh.com", vec![Text(from), Text(to)], Request::Hardlink { from, to }),
        ("statvfs@openssh.com", vec![Text(path)], Request::Statvfs { path }),
        ("fstatvfs@openssh.com", vec![HANDLE], Request::Fstatvfs { handle }),
        ("fsync@openssh.com", vec![HANDLE], Request::Fsync { handle }),
        ("lsetstat@openssh.com", fields(&[Text(path)]), Request::Lsetstat { path, attrs }),
        ("limits@openssh.com", vec![], Request::Limits),
        ("vendor-id", vec![Text(from), Text(to)], Request::Unknown),
    ];
    let all = all.into_iter().map(|(kind, fields, request)| (frame(kind, &fields), request));
    let extended = extended.into_iter().map(|(name, fields, request)| {
        (frame(200, &[&[Text(name.as_bytes())], &*fields].concat()), request)
    });
    all.chain(extended).collect()
}

#[test]
fn reads_each_request() {
    for (frame, request) in each() {
        assert_eq!(Packet::parse(&frame, MODES), Ok(Packet::Request { id: 7, request }));
    }
}

#[test]
fn accepts_any_init() {
    for frame in [&b"\x01\0\0\0\x03"[..], b"\x01\0\0\0\x06\0\0\0\x01x\0\0\0\0"] {
        assert_eq!(Packet::parse(frame, MODES), Ok(Packet::Init));
    }
    assert_eq!(Packet::parse(b"\x01\0\0\0", MODES), Err(Malformed::Nameless));
}

#[test]
fn reports_types_of_other_versions_as_unsupported() {
    for kind in (0..=255).filter(|kind| !matches!(kind, 1 | 3..=20 | 200)) {
        let expected = Packet::Request { id: 7, request: Request::Unknown };
        assert_eq!(Packet::parse(&[kind, 0, 0, 0, 7], MODES), Ok(expected));
    }
}

#[test]
fn rejects_handles_of_another_length() {
    for text in [&b""[..], b"abcd", b"abcdefg", b"abcdefghi", &[b'a'; 256]] {
        let frame = frame(4, &[Text(text)]);
        let request = Request::Close { handle: Handle::NONE };
        assert_eq!(Packet::parse(&frame, MODES), Ok(Packet::Request { id: 7, request }));
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
    // Version 4's bits, without their fields.
    assert_eq!(of(&[Int(0x70)]), Some(none));
    let extended = Int(0x8000_0004);
    let pairs = [extended, Int(1), Int(2), Text(b"a"), Text(b"b"), Text(b"c"), Text(b"")];
    assert_eq!(of(&pairs), Some(Attrs { permissions: Some(1), ..none }));
    assert_eq!(of(&[Int(0x8000_0000), Int(u32::MAX), Text(b"a"), Text(b"b")]), None);
}

#[test]
fn reserves_the_requested_length_up_to_the_limit() {
    let read = |length| Request::Read { handle: H, offset: 0, length }.reply_room();
    assert_eq!(read(0), 13);
    assert_eq!(read(100), 113);
    assert_eq!(read(u32::MAX), 13 + DATA);
    assert!(read(u32::MAX) <= REPLY);
    assert!(Request::Readdir { handle: H }.reply_room() <= REPLY);
    assert!(Request::Limits.reply_room() <= REPLY);
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
