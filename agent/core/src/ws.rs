//! WebSocket frames (RFC 6455), server side, sans-IO. Peers: P§4.1, P§4.3.
//!
//! Writes whole frames. Reads frames of any size piece by piece and unmasks them in place, so that
//! a message of gigabytes needs no memory. Never allocates.

/// Appended to the client's key before hashing (RFC 6455 §1.3).
pub const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Maximum payload of a control frame, in bytes (RFC 6455 §5.5).
pub const CONTROL: usize = 125;
/// Maximum length of a header that the agent writes, in bytes: no mask, 64-bit length.
pub const HEADER: usize = 10;

/// Frame types (RFC 6455 §11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// Next fragment of a message.
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    fn parse(bits: u8) -> Option<Self> {
        [Self::Continuation, Self::Text, Self::Binary, Self::Close, Self::Ping, Self::Pong]
            .into_iter()
            .find(|opcode| *opcode as u8 == bits)
    }
}

/// Writes a final, unmasked frame's header (a server never masks); returns its length in bytes.
#[must_use]
pub fn header(opcode: Opcode, payload: usize, out: &mut [u8; HEADER]) -> usize {
    let length = u64::try_from(payload).unwrap_or(u64::MAX).to_be_bytes();
    let [_, _, _, _, _, _, high, low] = length;
    let mut all = [0u8; HEADER];
    all[0] = 0x80 | opcode as u8;
    let size = if payload <= CONTROL {
        all[1] = low;
        2
    } else if payload <= 0xffff {
        all[1] = 126;
        all[2] = high;
        all[3] = low;
        4
    } else {
        all[1] = 127;
        for (slot, byte) in all.iter_mut().skip(2).zip(length) {
            *slot = byte;
        }
        HEADER
    };
    *out = all;
    size
}

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'i> {
    More,
    /// Part of a message; an empty message has one empty part.
    Data {
        text: bool,
        /// Unmasked bytes of the part.
        bytes: &'i [u8],
        last: bool,
    },
    /// A pong; the payload is ignored.
    Pong,
    /// A ping; answer with a pong with this payload.
    Ping(heapless::Vec<u8, CONTROL>),
    /// A close frame, with its status code, if any; answer with the same (§5.5.1).
    Close(Option<u16>),
}

/// The peer violates RFC 6455: close the connection with [`Violation::code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A client's frame without a mask (§5.1).
    NotMasked,
    /// Reserved bits or an unknown opcode.
    Reserved,
    /// A control frame that is too long or fragmented (§5.5).
    BadControl,
    /// A continuation without a message, or a new message within another (§5.4).
    BadFragment,
    /// A length with its top bit set, or not in its shortest form (§5.2).
    BadLength,
    /// A close frame with one byte of a status code, or with a code that must not be sent (§7.4).
    BadClose,
    /// Text, or the reason in a close frame, that is not UTF-8 (§8.1).
    BadText,
}

impl Violation {
    /// Returns the status code to close with (§7.4.1).
    pub fn code(self) -> u16 {
        if self == Self::BadText { 1007 } else { 1002 }
    }
}

/// Reads a client's frames from input that arrives in pieces of any size.
#[derive(Debug)]
pub struct Reader {
    state: Reading,
    /// Set while a message is incomplete; true if it is text.
    message: Option<bool>,
    /// Start of a character that the end of the input splits.
    character: heapless::Vec<u8, 4>,
}

#[derive(Debug)]
enum Reading {
    /// The bytes of a header read so far.
    Header(heapless::Vec<u8, 14>),
    /// `at` is the offset in the payload, in bytes; `kept` has the payload of a control frame.
    Payload { frame: Header, at: usize, kept: heapless::Vec<u8, CONTROL> },
}

impl Default for Reader {
    fn default() -> Self {
        let state = Reading::Header(heapless::Vec::new());
        Self { state, message: None, character: heapless::Vec::new() }
    }
}

impl Reader {
    /// Takes bytes from the front of `input`, up to the end of one frame or of the input; returns
    /// their number. Call it until no input is left.
    /// Errors: [`Violation`]: the connection must be closed.
    pub fn take<'i>(&mut self, input: &'i mut [u8]) -> Result<(usize, Incoming<'i>), Violation> {
        let mut used = 0;
        if let Reading::Header(bytes) = &mut self.state {
            let frame = loop {
                if let Some(frame) = Header::parse(bytes)? {
                    break frame;
                }
                let Some(byte) = input.get(used) else { return Ok((used, Incoming::More)) };
                bytes.push(*byte).map_err(|_| Violation::Reserved)?;
                used += 1;
            };
            self.begin(&frame)?;
            self.state = Reading::Payload { frame, at: 0, kept: heapless::Vec::new() };
        }
        let Reading::Payload { frame, at, kept } = &mut self.state else {
            return Ok((used, Incoming::More));
        };
        let rest = input.get_mut(used..).unwrap_or_default();
        let most = usize::try_from(frame.length).unwrap_or(usize::MAX).min(rest.len());
        let piece = rest.get_mut(..most).unwrap_or_default();
        unmask(piece, frame.mask, *at);
        *at = at.wrapping_add(most);
        frame.length -= u64::try_from(most).unwrap_or(0);
        let whole = frame.length == 0;
        used += most;
        if is_control(frame.opcode) {
            kept.extend_from_slice(piece).map_err(|_| Violation::BadControl)?;
            if !whole {
                return Ok((used, Incoming::More));
            }
            let (opcode, payload) = (frame.opcode, core::mem::take(kept));
            self.state = Reading::Header(heapless::Vec::new());
            return Ok((used, control(opcode, payload)?));
        }
        if most == 0 && !whole {
            return Ok((used, Incoming::More));
        }
        let last = whole && frame.last;
        let text = self.message.unwrap_or(false);
        if text {
            check_text(&mut self.character, piece)?;
        }
        if last {
            self.message = None;
            if !self.character.is_empty() {
                return Err(Violation::BadText);
            }
        }
        if whole {
            self.state = Reading::Header(heapless::Vec::new());
        }
        Ok((used, Incoming::Data { text, bytes: piece, last }))
    }

    /// Checks that the frame may follow the frames before it.
    fn begin(&mut self, frame: &Header) -> Result<(), Violation> {
        let text = match frame.opcode {
            Opcode::Close | Opcode::Ping | Opcode::Pong => return Ok(()),
            Opcode::Continuation if self.message.is_some() => return Ok(()),
            Opcode::Continuation => return Err(Violation::BadFragment),
            Opcode::Text => true,
            Opcode::Binary => false,
        };
        match self.message.replace(text) {
            None => Ok(()),
            Some(_) => Err(Violation::BadFragment),
        }
    }
}

fn control(
    opcode: Opcode,
    payload: heapless::Vec<u8, CONTROL>,
) -> Result<Incoming<'static>, Violation> {
    match opcode {
        Opcode::Ping => Ok(Incoming::Ping(payload)),
        Opcode::Pong => Ok(Incoming::Pong),
        Opcode::Close | Opcode::Continuation | Opcode::Text | Opcode::Binary => {
            close_code(&payload).map(Incoming::Close)
        }
    }
}

/// Returns the status code of a close frame. Checks and drops its reason.
fn close_code(payload: &[u8]) -> Result<Option<u16>, Violation> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return if payload.is_empty() { Ok(None) } else { Err(Violation::BadClose) };
    };
    let code = u16::from_be_bytes(*code);
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => {}
        // The code is unassigned, or must not be sent in a frame.
        _ => return Err(Violation::BadClose),
    }
    core::str::from_utf8(reason).map_err(|_| Violation::BadText)?;
    Ok(Some(code))
}

/// Checks the next piece of a text. `character` holds the start of a cut character.
fn check_text(character: &mut heapless::Vec<u8, 4>, mut piece: &[u8]) -> Result<(), Violation> {
    while let ([next, rest @ ..], false) = (piece, character.is_empty()) {
        character.push(*next).map_err(|_| Violation::BadText)?;
        piece = rest;
        match core::str::from_utf8(character) {
            Ok(_) => character.clear(),
            Err(error) if error.error_len().is_none() => {}
            Err(_) => return Err(Violation::BadText),
        }
    }
    match core::str::from_utf8(piece) {
        Ok(_) => Ok(()),
        Err(error) if error.error_len().is_none() => {
            let cut = piece.get(error.valid_up_to()..).unwrap_or_default();
            character.extend_from_slice(cut).map_err(|_| Violation::BadText)
        }
        Err(_) => Err(Violation::BadText),
    }
}

/// Unmasks bytes at offset `at` of their payload (§5.3). Eight at a time, because this is the
/// agent's only work on each byte of an exec's input.
fn unmask(bytes: &mut [u8], mut mask: [u8; 4], at: usize) {
    mask.rotate_left(at % 4);
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (eights, rest) = bytes.as_chunks_mut::<8>();
    for eight in eights {
        *eight = (u64::from_ne_bytes(*eight) ^ wide).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

fn is_control(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong)
}

#[derive(Debug)]
struct Header {
    opcode: Opcode,
    last: bool,
    /// Payload bytes still to be read.
    length: u64,
    mask: [u8; 4],
}

impl Header {
    /// Parses a header; `None` while bytes are missing.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(Violation::Reserved);
        }
        let opcode = Opcode::parse(first & 0x0f).ok_or(Violation::Reserved)?;
        if second & 0x80 == 0 {
            return Err(Violation::NotMasked);
        }
        let form = second & 0x7f;
        if is_control(opcode) && (form > 125 || first & 0x80 == 0) {
            return Err(Violation::BadControl);
        }
        let (length, least, rest) = match form {
            126 => {
                let [a, b, rest @ ..] = rest else { return Ok(None) };
                (u64::from(u16::from_be_bytes([*a, *b])), 126, rest)
            }
            127 => {
                let Some((eight, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                (u64::from_be_bytes(*eight), 0x1_0000, rest)
            }
            short => (u64::from(short), 0, rest),
        };
        if length < least || length > u64::MAX / 2 {
            return Err(Violation::BadLength);
        }
        let Some((mask, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        Ok(Some(Self { opcode, last: first & 0x80 != 0, length, mask: *mask }))
    }
}

#[cfg(test)]
mod tests;
