use super::*;

/// Decodes a body in pieces of this size. The fuzz target `body` compares the data.
fn decode(framing: Framing, bytes: &[u8], size: usize) -> Result<(), BodyError> {
    let mut decoder = Decoder::new(framing);
    let mut pending = Vec::new();
    for piece in bytes.chunks(size) {
        pending.extend_from_slice(piece);
        loop {
            let consumed = decoder.decode(&pending)?.consumed;
            pending.drain(..consumed);
            if consumed == 0 || decoder.finished() {
                break;
            }
        }
    }
    decoder.eof()
}

#[test]
fn rejects_invalid_chunks_cut_anywhere() {
    for bad in [
        &b"4\nWiki\r\n0\r\n\r\n"[..],
        b"4\r\nWikiXX0\r\n\r\n",
        b"4\r\nWiki\n0\r\n\r\n",
        b"4\r\nWiki\r0\r\n\r\n",
        b"4\r\nWiki0\r\n\r\n",
        b"\r\nWiki",
        b" 4\r\nWiki",
        b";x\r\n",
        b"+4\r\nWiki",
        b"-4\r\nWiki",
        b"0x4\r\nWiki",
        b"4 5\r\nWiki",
        b"4_0\r\nWiki",
        b"4;a\nb\r\nWiki",
        b"4;a\0\r\nWiki",
        b"10000000000000000\r\n",
        b"fffffffffffffffff\r\n",
        b"4\r\rWiki",
        b"0\r\nA: b\n\r\n",
        b"0\r\nA: b\rc\r\n\r\n",
        b"0\r\n\n",
    ] {
        for size in 1..=bad.len() {
            let result = decode(Framing::Chunked, bad, size);
            assert_eq!(result, Err(BodyError::BadChunk), "{bad:?} in pieces of {size}");
        }
    }
}

#[test]
fn accepts_the_largest_chunk_size_and_no_further_digit() {
    let mut decoder = Decoder::new(Framing::Chunked);
    let step = decoder.decode(b"ffffffffffffffff\r\nabc").unwrap();
    assert_eq!((step.consumed, step.data), (21, &b"abc"[..]));
    assert!(!decoder.finished());
    let mut decoder = Decoder::new(Framing::Chunked);
    let step = decoder.decode(b"0000000000000000000003\r\nabcdef").unwrap();
    assert_eq!((step.consumed, step.data), (27, &b"abc"[..]));
    let mut decoder = Decoder::new(Framing::Length(u64::MAX));
    assert_eq!(decoder.decode(b"abc").unwrap(), Step { consumed: 3, data: b"abc" });
}

#[test]
fn a_body_that_ends_early_is_truncated() {
    const CHUNKED: &[u8] =
        b"4;ext=\"x\"\r\nWiki\r\n00005\r\npedia\r\nA \t; b=\t\xff\r\n0123456789\r\n0\r\nA: b\r\nC:\r\n\r\nNEXT";
    for cut in 0..CHUNKED.len() - 4 {
        let result = decode(Framing::Chunked, &CHUNKED[..cut], 3);
        assert_eq!(result, Err(BodyError::Truncated), "cut at {cut}");
    }
    assert_eq!(decode(Framing::Length(5), b"Wiki", 2), Err(BodyError::Truncated));
    assert!(decode(Framing::UntilClose, b"", 1).is_ok());
}

#[test]
fn lines_and_trailers_are_limited_at_their_edges() {
    // `line` counts all of `0;xxx\r\n`, or of `xxx\r\n`.
    let size = |line: usize| format!("0;{}\r\n\r\n", "x".repeat(line - 4));
    let trailer = |line: usize| format!("0\r\n{}\r\n\r\n", "x".repeat(line - 2));
    let trailers = |lines: usize| format!("0\r\n{}\r\n", "A: b\r\n".repeat(lines));
    let all: [(&dyn Fn(usize) -> String, usize); 3] =
        [(&size, LINE), (&trailer, LINE), (&trailers, TRAILERS)];
    for (body, most) in all {
        for length in [most - 1, most] {
            assert!(decode(Framing::Chunked, body(length).as_bytes(), 7).is_ok(), "{length}");
        }
        let longer = body(most + 1);
        assert_eq!(decode(Framing::Chunked, longer.as_bytes(), 7), Err(BodyError::TooLong));
    }
    let zeros = vec![b'0'; LINE + 1];
    assert_eq!(decode(Framing::Chunked, &zeros, 7), Err(BodyError::TooLong));
}
