//! Body framing: a length, chunks (RFC 9112 §7.1), or the connection's end. Bytes that are thrown
//! away are compared first, never merely counted.

use super::head::Framing;

/// Longest line of a chunk's head or trailer, bytes: a size, and extensions nobody uses.
const LINE: usize = 256;
/// Most trailer lines; they are read and dropped.
const TRAILERS: usize = 32;

/// A body that breaks its framing: the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// No hex digits, or too many, or a line feed alone.
    BadChunk,
    /// The line or the trailer is too long.
    TooLong,
    /// The input ended early.
    Truncated,
}

/// What one call gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'i> {
    /// Bytes of the input that are done with.
    pub consumed: usize,
    /// Body bytes among them; may be empty.
    pub data: &'i [u8],
}

/// Takes a body out of its framing.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Finished,
    Length(u64),
    UntilClose,
    /// In the line with the size.
    Size {
        size: Option<u64>,
        extension: bool,
        cr: bool,
        seen: usize,
    },
    Data(u64),
    /// Behind the data: `\r\n`.
    DataEnd {
        cr: bool,
    },
    /// In the trailer: `empty` while the line has nothing yet.
    Trailer {
        empty: bool,
        cr: bool,
        seen: usize,
        lines: usize,
    },
}

const SIZE: State = State::Size { size: None, extension: false, cr: false, seen: 0 };

impl Decoder {
    /// For a body framed like this.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Finished,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => SIZE,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Whether the body is complete.
    #[must_use]
    pub fn finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// The input has ended.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] if the body has not.
    pub fn eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Finished | State::UntilClose => {
                self.state = State::Finished;
                Ok(())
            }
            State::Length(_)
            | State::Size { .. }
            | State::Data(_)
            | State::DataEnd { .. }
            | State::Trailer { .. } => Err(BodyError::Truncated),
        }
    }

    /// Takes bytes from the front of `input`, up to the end of one piece of data. Nothing consumed
    /// means that more input is needed or the body is finished.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<Step<'i>, BodyError> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            let left = match &mut self.state {
                State::Finished => return Ok(Step { consumed: at, data: &[] }),
                State::UntilClose => return Ok(Step { consumed: at + rest.len(), data: rest }),
                State::Length(left) | State::Data(left) => left,
                State::Size { .. } | State::DataEnd { .. } | State::Trailer { .. } => {
                    let Some(byte) = rest.first() else {
                        return Ok(Step { consumed: at, data: &[] });
                    };
                    at += 1;
                    self.frame(*byte)?;
                    continue;
                }
            };
            let take = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
            let data = rest.get(..take).unwrap_or_default();
            *left -= u64::try_from(take).unwrap_or(0);
            if *left == 0 {
                self.state = match self.state {
                    State::Data(_) => State::DataEnd { cr: false },
                    _ => State::Finished,
                };
            }
            return Ok(Step { consumed: at + take, data });
        }
    }

    /// Takes one byte that is framing, not data.
    fn frame(&mut self, byte: u8) -> Result<(), BodyError> {
        match &mut self.state {
            State::Size { size, extension, cr, seen } => {
                *seen += 1;
                if *seen > LINE {
                    return Err(BodyError::TooLong);
                }
                match byte {
                    b'\n' if *cr => {
                        self.state = match size.ok_or(BodyError::BadChunk)? {
                            0 => State::Trailer { empty: true, cr: false, seen: 0, lines: 0 },
                            size => State::Data(size),
                        };
                    }
                    _ if *cr => return Err(BodyError::BadChunk),
                    b'\r' => *cr = true,
                    // A bare line feed, or any other control, ends nothing.
                    control if control < b' ' && control != b'\t' => {
                        return Err(BodyError::BadChunk);
                    }
                    _ if *extension => {}
                    b';' | b' ' | b'\t' if size.is_some() => *extension = true,
                    digit => {
                        let digit = char::from(digit).to_digit(16).ok_or(BodyError::BadChunk)?;
                        let grown = size.unwrap_or(0).checked_mul(16).ok_or(BodyError::BadChunk)?;
                        *size = Some(grown + u64::from(digit));
                    }
                }
            }
            State::DataEnd { cr } => match byte {
                b'\r' if !*cr => *cr = true,
                b'\n' if *cr => self.state = SIZE,
                _ => return Err(BodyError::BadChunk),
            },
            State::Trailer { empty, cr, seen, lines } => {
                *seen += 1;
                if *seen > LINE || *lines > TRAILERS {
                    return Err(BodyError::TooLong);
                }
                match byte {
                    b'\n' if *cr && *empty => self.state = State::Finished,
                    b'\n' if *cr => {
                        (*empty, *cr, *seen) = (true, false, 0);
                        *lines += 1;
                    }
                    _ if *cr => return Err(BodyError::BadChunk),
                    b'\r' => *cr = true,
                    b'\n' => return Err(BodyError::BadChunk),
                    _ => *empty = false,
                }
            }
            State::Finished | State::Length(_) | State::UntilClose | State::Data(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    /// Feeds the body cut into pieces of `size`; gives the data and the bytes left over.
    fn decode(
        framing: Framing,
        bytes: &[u8],
        size: usize,
    ) -> Result<(Vec<u8>, Vec<u8>), BodyError> {
        let mut decoder = Decoder::new(framing);
        let (mut data, mut pending) = (Vec::new(), Vec::new());
        for cut in bytes.chunks(size) {
            pending.extend_from_slice(cut);
            loop {
                let step = decoder.decode(&pending)?;
                data.extend_from_slice(step.data);
                let consumed = step.consumed;
                pending.drain(..consumed);
                if consumed == 0 || decoder.finished() {
                    break;
                }
            }
        }
        decoder.eof()?;
        Ok((data, pending))
    }

    const CHUNKED: &[u8] = b"4;ext=\"x\"\r\nWiki\r\n00005\r\npedia\r\n0\r\nA: b\r\n\r\nNEXT";

    #[test]
    fn every_framing_is_decoded_at_every_cut_and_keeps_what_follows() {
        for size in 1..CHUNKED.len() {
            let (data, rest) = decode(Framing::Chunked, CHUNKED, size).unwrap();
            assert_eq!((data.as_slice(), rest.as_slice()), (&b"Wikipedia"[..], &b"NEXT"[..]));
            let (data, rest) = decode(Framing::Length(4), b"WikiNEXT", size).unwrap();
            assert_eq!((data.as_slice(), rest.as_slice()), (&b"Wiki"[..], &b"NEXT"[..]));
            let (data, _) = decode(Framing::UntilClose, b"WikiNEXT", size).unwrap();
            assert_eq!(data, b"WikiNEXT");
        }
        assert_eq!(decode(Framing::None, b"NEXT", 2).unwrap().1, b"NEXT");
    }

    #[test]
    fn broken_chunks_are_refused_at_every_cut() {
        for bad in [
            &b"4\nWiki\r\n0\r\n\r\n"[..],
            b"4\r\nWikiXX0\r\n\r\n",
            b"4\r\nWiki\n0\r\n\r\n",
            b"\r\nWiki",
            b"+4\r\nWiki",
            b"0x4\r\nWiki",
            b"10000000000000000\r\n",
            b"4\r\rWiki",
            b"0\r\nA: b\n\r\n",
        ] {
            for size in 1..=bad.len() {
                let result = decode(Framing::Chunked, bad, size);
                assert_eq!(result, Err(BodyError::BadChunk), "{bad:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn a_body_that_ends_early_is_truncated() {
        for cut in 0..CHUNKED.len() - 4 {
            let result = decode(Framing::Chunked, &CHUNKED[..cut], 3);
            assert_eq!(result, Err(BodyError::Truncated), "cut at {cut}");
        }
        assert_eq!(decode(Framing::Length(5), b"Wiki", 2), Err(BodyError::Truncated));
    }

    #[test]
    fn endless_extensions_and_trailers_are_refused() {
        let mut extension = b"4;".to_vec();
        extension.resize(1000, b'x');
        assert_eq!(decode(Framing::Chunked, &extension, 7), Err(BodyError::TooLong));
        let mut trailers = b"0\r\n".to_vec();
        trailers.extend(b"A: b\r\n".repeat(100));
        assert_eq!(decode(Framing::Chunked, &trailers, 7), Err(BodyError::TooLong));
    }
}
