//! Body framing: a length, chunks (RFC 9112 §7.1), or the end of the connection. All framing bytes
//! are checked.

use super::head::Framing;

/// Maximum length of a chunk head or trailer line, in bytes. No known client sends extensions.
const LINE: usize = 256;
/// Maximum number of trailer lines. Their contents are ignored.
const TRAILERS: usize = 32;

/// Invalid framing: the connection must be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// Chunk framing that violates RFC 9112: bad digits, a size over 64 bits, a bare line feed, a
    /// control character.
    BadChunk,
    /// A line is too long, or there are too many trailer lines.
    TooLong,
    Truncated,
}

/// Result of one call to [`Decoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'i> {
    /// Number of processed input bytes.
    pub consumed: usize,
    /// Body bytes among them; may be empty.
    pub data: &'i [u8],
}

/// Removes the framing from a body.
#[derive(Clone, Debug)]
pub struct Decoder {
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Finished,
    Length(u64),
    UntilClose,
    // Within a chunk's size line.
    Size { size: Option<u64>, part: Part, seen: usize },
    Data(u64),
    // Expects the `\r\n` after a chunk's data.
    DataEnd { cr: bool },
    // In the trailer; `empty` at the start of a line.
    Trailer { empty: bool, cr: bool, seen: usize, lines: usize },
}

/// Position within a chunk's size line.
#[derive(Clone, Copy, Debug)]
enum Part {
    Digits,
    /// Blanks after the digits. Only an extension may follow; otherwise `4 5` could be read as 45.
    Blank,
    Extension,
    /// After `\r`.
    End,
}

const SIZE: State = State::Size { size: None, part: Part::Digits, seen: 0 };

impl Decoder {
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Finished,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => SIZE,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state }
    }

    /// Returns whether the framing shows that at most `most` bytes follow.
    pub const fn is_within(&self, most: u64) -> bool {
        self.finished() || matches!(self.state, State::Length(left) if left <= most)
    }

    pub const fn finished(&self) -> bool {
        matches!(self.state, State::Finished)
    }

    /// Reports the end of the input. Errors: [`BodyError::Truncated`] if the body is not complete.
    pub fn eof(&mut self) -> Result<(), BodyError> {
        if !matches!(self.state, State::Finished | State::UntilClose) {
            return Err(BodyError::Truncated);
        }
        self.state = State::Finished;
        Ok(())
    }

    /// Takes bytes from the front of `input`, up to the end of one piece of data. If it consumes
    /// nothing, more input is needed or the body is finished.
    /// Errors: [`BodyError::BadChunk`] or [`BodyError::TooLong`].
    pub fn decode<'i>(&mut self, input: &'i [u8]) -> Result<Step<'i>, BodyError> {
        let mut at = 0;
        loop {
            let rest = input.get(at..).unwrap_or_default();
            match &mut self.state {
                State::Finished => return Ok(Step { consumed: at, data: &[] }),
                State::UntilClose => return Ok(Step { consumed: at + rest.len(), data: rest }),
                State::Length(left) => {
                    let data = take(left, rest);
                    if *left == 0 {
                        self.state = State::Finished;
                    }
                    return Ok(Step { consumed: at + data.len(), data });
                }
                State::Data(left) => {
                    let data = take(left, rest);
                    if *left == 0 {
                        self.state = State::DataEnd { cr: false };
                    }
                    return Ok(Step { consumed: at + data.len(), data });
                }
                State::Size { .. } | State::DataEnd { .. } | State::Trailer { .. } => {
                    let Some(byte) = rest.first() else {
                        return Ok(Step { consumed: at, data: &[] });
                    };
                    at += 1;
                    self.frame(*byte)?;
                }
            }
        }
    }

    fn frame(&mut self, byte: u8) -> Result<(), BodyError> {
        match &mut self.state {
            State::Size { size, part, seen } => {
                *seen += 1;
                if *seen > LINE {
                    return Err(BodyError::TooLong);
                }
                match (*part, byte) {
                    (Part::End, b'\n') => {
                        self.state = match size.ok_or(BodyError::BadChunk)? {
                            0 => State::Trailer { empty: true, cr: false, seen: 0, lines: 0 },
                            size => State::Data(size),
                        };
                    }
                    (Part::End, _) => return Err(BodyError::BadChunk),
                    (Part::Digits | Part::Blank | Part::Extension, b'\r') => *part = Part::End,
                    (Part::Digits | Part::Blank, b' ' | b'\t') if size.is_some() => {
                        *part = Part::Blank;
                    }
                    (Part::Digits | Part::Blank, b';') if size.is_some() => *part = Part::Extension,
                    (Part::Digits, digit) => *size = Some(append(*size, digit)?),
                    (Part::Blank, _) => return Err(BodyError::BadChunk),
                    (Part::Extension, byte) => no_control(byte)?,
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
                    _ => {
                        no_control(byte)?;
                        *empty = false;
                    }
                }
            }
            State::Finished | State::Length(_) | State::UntilClose | State::Data(_) => {}
        }
        Ok(())
    }
}

/// Returns the data at the front of `input`, at most `left` bytes, and subtracts them from `left`.
fn take<'i>(left: &mut u64, input: &'i [u8]) -> &'i [u8] {
    let most = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
    let data = input.get(..most).unwrap_or_default();
    *left -= u64::try_from(most).unwrap_or(0);
    data
}

/// Appends a hex digit to a chunk's size. Refuses a size over 64 bits.
fn append(size: Option<u64>, digit: u8) -> Result<u64, BodyError> {
    let digit = char::from(digit).to_digit(16).ok_or(BodyError::BadChunk)?;
    let grown = size.unwrap_or(0).checked_mul(16).ok_or(BodyError::BadChunk)?;
    Ok(grown | u64::from(digit))
}

/// Refuses control characters in extensions and trailers: a bare line feed does not end a line.
fn no_control(byte: u8) -> Result<(), BodyError> {
    if (byte < b' ' && byte != b'\t') || byte == 0x7f { Err(BodyError::BadChunk) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
