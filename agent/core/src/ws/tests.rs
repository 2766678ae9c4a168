use super::*;

fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [1u8, 2, 3, 4];
    let mut frame = vec![first];
    match payload.len() {
        short @ ..126 => frame.push(0x80 | u8::try_from(short).unwrap()),
        long => {
            frame.push(0xfe);
            frame.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// Reads frames in pieces of `size` bytes; returns them as text, with each message joined.
fn read(bytes: &[u8], size: usize) -> Result<Vec<String>, Violation> {
    let mut reader = Reader::default();
    let mut seen = Vec::new();
    let mut message = Vec::new();
    for cut in bytes.chunks(size) {
        let mut cut = cut.to_vec();
        let mut rest = cut.as_mut_slice();
        while !rest.is_empty() {
            let (used, incoming) = reader.take(rest)?;
            match incoming {
                Incoming::More => {}
                Incoming::Data { text, bytes, last } => {
                    message.extend_from_slice(bytes);
                    if last {
                        seen.push(format!("{text} {:?}", core::mem::take(&mut message)));
                    }
                }
                _ => seen.push(format!("{incoming:?}")),
            }
            rest = &mut rest[used..];
        }
    }
    Ok(seen)
}

#[test]
fn rejects_invalid_frames() {
    let take = |bytes: &[u8]| read(bytes, 1);
    assert_eq!(take(&[0x81, 0x01, b'x']), Err(Violation::NotMasked));
    assert_eq!(take(&[0xf1, 0x81]), Err(Violation::Reserved));
    assert_eq!(take(&[0x83, 0x81]), Err(Violation::Reserved));
    assert_eq!(take(&[0x09, 0x81]), Err(Violation::BadControl));
    for length in [126, 127, 0x80 | 126, 0x80 | 127] {
        let expected = if length < 0x80 { Violation::NotMasked } else { Violation::BadControl };
        // The frame is refused before its extended length is read, even if that is small.
        assert_eq!(take(&[0x89, length]), Err(expected));
    }
    assert_eq!(take(&[0x88, 0x00]), Err(Violation::NotMasked));
    for bits in [0xb, 0xf, 0x3, 0x7] {
        assert_eq!(take(&[0x80 | bits, 0x80]), Err(Violation::Reserved), "{bits}");
    }
    for bit in [0x40, 0x20, 0x10] {
        assert_eq!(take(&[0x82 | bit, 0x80]), Err(Violation::Reserved), "{bit}");
    }
    assert_eq!(take(&frame(0x80, b"x")), Err(Violation::BadFragment));
    let within = [frame(0x01, b"a"), frame(0x81, b"b")].concat();
    assert_eq!(take(&within), Err(Violation::BadFragment));
}

/// Creates a header with this length form and extended length.
fn with_length(form: u8, length: u64) -> Vec<u8> {
    let bytes = length.to_be_bytes();
    let size = if form == 126 { 2 } else { 8 };
    [&[0x82, 0x80 | form], &bytes[8 - size..], &[0; 4]].concat()
}

#[test]
fn lengths_have_the_shortest_form_and_63_bits() {
    for (form, length) in
        [(126, 0), (126, 125), (127, 0), (127, 125), (127, 0xffff), (127, 1 << 63)]
    {
        let seen = read(&with_length(form, length), 1);
        assert_eq!(seen, Err(Violation::BadLength), "{form} {length}");
    }
    for (form, length) in [(126, 126), (126, 0xffff), (127, 0x1_0000), (127, (1 << 63) - 1)] {
        assert_eq!(read(&with_length(form, length), 1), Ok(vec![]), "{form} {length}");
    }
}

#[test]
fn returns_the_code_of_a_close_frame_or_rejects_it() {
    let close = |payload: &[u8]| read(&frame(0x88, payload), 1);
    let with = |code: u16, reason: &[u8]| close(&[&code.to_be_bytes(), reason].concat());
    assert_eq!(close(b"").unwrap(), ["Close(None)"]);
    for code in [1000, 1001, 1003, 1007, 1011, 1014, 3000, 4999] {
        assert_eq!(with(code, b"why").unwrap(), [format!("Close(Some({code}))")]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535] {
        assert_eq!(with(code, b""), Err(Violation::BadClose), "{code}");
    }
    assert_eq!(close(b"x"), Err(Violation::BadClose));
    assert_eq!(with(1000, b"\xff"), Err(Violation::BadText));
    assert_eq!(with(1000, "\u{1f600}".as_bytes()).unwrap(), ["Close(Some(1000))"]);
}

#[test]
fn checks_utf8_of_text_cut_anywhere() {
    let text = "a\u{e4}\u{20ac}\u{1f600}b".as_bytes();
    for cut in 0..=text.len() {
        // The cut may lie between two fragments, with a ping between them.
        let (left, right) = text.split_at(cut);
        let bytes = [frame(0x01, left), frame(0x89, b""), frame(0x80, right)].concat();
        for size in [1, 2, 3, bytes.len()] {
            let seen = read(&bytes, size).unwrap();
            assert_eq!(seen.last(), Some(&format!("true {text:?}")), "{cut} {size}");
        }
    }
    for bad in [&b"\xff"[..], b"a\x80", b"\xc3", b"\xe2\x82", b"\xe2a\x82", b"\xed\xa0\x80"] {
        for size in [1, 99] {
            assert_eq!(read(&frame(0x81, bad), size), Err(Violation::BadText), "{bad:?}");
        }
        assert!(read(&frame(0x82, bad), 1).is_ok(), "bytes may be anything");
        let cut = [frame(0x01, bad), frame(0x80, b"")].concat();
        assert_eq!(read(&cut, 1), Err(Violation::BadText), "{bad:?}");
    }
    // A cut character does not carry over to the next message.
    assert!(read(&[frame(0x81, b"a"), frame(0x81, b"b")].concat(), 1).is_ok());
}

#[test]
fn violations_close_with_1002_and_bad_text_with_1007() {
    use Violation::{BadClose, BadControl, BadFragment, BadLength, NotMasked, Reserved};
    let all = [NotMasked, Reserved, BadControl, BadFragment, BadLength, BadClose];
    assert_eq!((all.map(Violation::code), Violation::BadText.code()), ([1002; 6], 1007));
}

#[test]
fn headers_have_the_shortest_form() {
    let mut out = [0; HEADER];
    for (length, size) in [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)] {
        assert_eq!(header(Opcode::Text, length, &mut out), size, "{length}");
    }
    assert_eq!(header(Opcode::Ping, 0, &mut out), 2);
    assert_eq!(out[..2], [0x89, 0]);
}
