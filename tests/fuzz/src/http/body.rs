//! HTTP bodies. Invariants: a step's data lies in its input, and data, remainder and verdict do not
//! depend on the cuts.

use mote_core::http::body::{BodyError, Decoder};
use mote_core::http::head::Framing;

fn decode<'i>(
    framing: Framing,
    pieces: impl Iterator<Item = &'i [u8]>,
) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
    let mut decoder = Decoder::new(framing);
    let (mut data, mut pending) = (Vec::new(), Vec::new());
    for piece in pieces {
        pending.extend_from_slice(piece);
        loop {
            let step = decoder.decode(&pending)?;
            assert!(step.consumed <= pending.len() && step.data.len() <= step.consumed);
            assert!(pending[..step.consumed].ends_with(step.data));
            data.extend_from_slice(step.data);
            let consumed = step.consumed;
            drop(pending.drain(..consumed));
            if consumed == 0 || decoder.finished() {
                break;
            }
        }
    }
    let finished = decoder.finished();
    decoder.eof()?;
    assert!(finished || framing == Framing::UntilClose);
    Ok((data, pending))
}

pub fn run(data: &[u8]) {
    let [kind, size, input @ ..] = data else { return };
    let framing = match kind % 8 {
        0 => Framing::None,
        1 => Framing::Length(u64::from(kind / 8)),
        2 => Framing::UntilClose,
        3.. => Framing::Chunked,
    };
    let whole = decode(framing, core::iter::once(input));
    let cut = decode(framing, input.chunks(usize::from(*size).max(1)));
    assert_eq!(whole, cut, "{framing:?} in pieces of {size}");
    if let (Ok((data, rest)), Framing::None | Framing::Length(_) | Framing::UntilClose) =
        (whole, framing)
    {
        assert_eq!([data, rest].concat(), input);
    }
}
