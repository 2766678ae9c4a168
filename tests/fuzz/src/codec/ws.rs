//! Websocket frames with arbitrary cuts. Invariants: every byte is consumed once unless the peer
//! breaks the protocol, the result does not depend on the cuts, messages do not overlap, and
//! control payloads obey RFC 6455.

use mote_core::ws::{CONTROL, Incoming, Reader, Violation};

/// Returns all output as one byte string: kinds and concatenated payloads.
fn read(data: &[u8], cut: usize) -> (Vec<u8>, Option<Violation>) {
    let (mut reader, mut out) = (Reader::default(), Vec::new());
    let mut open = None;
    for piece in data.chunks(cut) {
        let mut piece = piece.to_vec();
        let mut rest = piece.as_mut_slice();
        while !rest.is_empty() {
            let (used, incoming) = match reader.take(rest) {
                Ok(step) => step,
                // The reader returns nothing of the piece that contains the error.
                Err(Violation::BadText) => return (Vec::new(), Some(Violation::BadText)),
                Err(violation) => return (out, Some(violation)),
            };
            assert!(used > 0, "no progress");
            match incoming {
                Incoming::More => {}
                Incoming::Data { text, bytes, last } => {
                    // Messages of different kinds must not overlap.
                    assert_eq!(*open.get_or_insert(text), text);
                    out.extend_from_slice(bytes);
                    if last {
                        open = None;
                        out.extend_from_slice(if text { b"<text>" } else { b"<bytes>" });
                    }
                }
                Incoming::Pong => out.extend_from_slice(b"<pong>"),
                Incoming::Ping(payload) => {
                    assert!(payload.len() <= CONTROL);
                    out.extend_from_slice(b"<ping>");
                }
                Incoming::Close(_) => out.extend_from_slice(b"<close>"),
            }
            rest = &mut rest[used..];
        }
    }
    (out, None)
}

pub fn run(data: &[u8]) {
    let Some((cut, data)) = data.split_first() else { return };
    assert_eq!(read(data, data.len().max(1)), read(data, usize::from(*cut).max(1)));
}
