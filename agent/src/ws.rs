//! WebSocket frames (RFC 6455), server side, as pure byte work. Source for what peers expect: P§4.1
//! and P§4.3.
//!
//! Out go whole frames; in come frames of any size, given out piece by piece as they arrive and
//! unmasked where they lie, so that a message of gigabytes needs no memory. Never allocates.

use core::fmt::Write;

/// Appended to the client's key before hashing (RFC 6455 §1.3).
pub const ACCEPT_SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// Longest payload of a control frame, bytes (RFC 6455 §5.5).
pub const CONTROL: usize = 125;
/// Longest header we write, bytes: no mask, 64-bit length.
pub const HEADER: usize = 10;

/// Frame kinds (RFC 6455 §11.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opcode {
    /// More of a fragmented message.
    Continuation,
    /// UTF-8 text.
    Text,
    /// Bytes.
    Binary,
    /// The end.
    Close,
    /// Answer me.
    Ping,
    /// The answer.
    Pong,
}

impl Opcode {
    fn bits(self) -> u8 {
        match self {
            Self::Continuation => 0x0,
            Self::Text => 0x1,
            Self::Binary => 0x2,
            Self::Close => 0x8,
            Self::Ping => 0x9,
            Self::Pong => 0xa,
        }
    }

    fn parse(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return None,
        })
    }
}

/// Writes the header of one final, unmasked frame (a server never masks); gives its length.
#[must_use]
pub fn header(opcode: Opcode, payload: usize, out: &mut [u8; HEADER]) -> usize {
    let length = u64::try_from(payload).unwrap_or(u64::MAX).to_be_bytes();
    let [_, _, _, _, _, _, high, low] = length;
    let mut all = [0u8; HEADER];
    all[0] = 0x80 | opcode.bits();
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
        for (place, byte) in all.iter_mut().skip(2).zip(length) {
            *place = byte;
        }
        HEADER
    };
    *out = all;
    size
}

/// What a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'i> {
    /// Nothing whole in these bytes.
    More,
    /// Part of a message; an empty one has one empty part.
    Data {
        /// Text rather than bytes.
        text: bool,
        /// The part.
        bytes: &'i [u8],
        /// Whether the message ends with it.
        last: bool,
    },
    /// It answered a ping.
    Pong,
    /// It wants this payload back in a pong.
    Ping(heapless::Vec<u8, CONTROL>),
    /// It is leaving.
    Close,
}

/// The peer broke RFC 6455: hang up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A client must mask (§5.1).
    NotMasked,
    /// Reserved bits or an unknown opcode.
    Reserved,
    /// A control frame that is long or in pieces (§5.5).
    BadControl,
    /// A continuation of nothing, or a new message within another (§5.4).
    BadFragment,
}

/// Reads a client's frames from bytes cut anywhere.
#[derive(Debug)]
pub struct Reader {
    state: Reading,
    /// A fragmented message has begun: whether it is text.
    message: Option<bool>,
}

#[derive(Debug)]
enum Reading {
    Header(heapless::Vec<u8, 14>),
    Payload { frame: Header, at: usize, kept: heapless::Vec<u8, CONTROL> },
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: Reading::Header(heapless::Vec::new()), message: None }
    }
}

impl Reader {
    /// Takes bytes from the front of `input` up to the end of one frame or of the input, and says
    /// how many. Call again with the rest until there is none.
    ///
    /// # Errors
    /// [`Violation`]: the connection must be closed.
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
            return Ok((used, control(opcode, payload)));
        }
        if most == 0 && !whole {
            return Ok((used, Incoming::More));
        }
        let last = whole && frame.last;
        let text = self.message.unwrap_or(false);
        if last {
            self.message = None;
        }
        if whole {
            self.state = Reading::Header(heapless::Vec::new());
        }
        Ok((used, Incoming::Data { text, bytes: piece, last }))
    }

    /// Checks a frame's place among the others.
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

fn control(opcode: Opcode, payload: heapless::Vec<u8, CONTROL>) -> Incoming<'static> {
    match opcode {
        Opcode::Ping => Incoming::Ping(payload),
        Opcode::Pong => Incoming::Pong,
        Opcode::Close | Opcode::Continuation | Opcode::Text | Opcode::Binary => Incoming::Close,
    }
}

/// Takes the mask off bytes that begin `at` bytes into their frame (§5.3), eight at a time: this is
/// the agent's only own work on each byte of an exec's input.
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
    /// Whether it ends its message.
    last: bool,
    /// What is left of the payload.
    length: u64,
    mask: [u8; 4],
}

impl Header {
    /// `None` while bytes are missing.
    fn parse(bytes: &[u8]) -> Result<Option<Self>, Violation> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        if first & 0x70 != 0 {
            return Err(Violation::Reserved);
        }
        let opcode = Opcode::parse(first & 0x0f).ok_or(Violation::Reserved)?;
        if second & 0x80 == 0 {
            return Err(Violation::NotMasked);
        }
        let (length, rest) = match second & 0x7f {
            126 => {
                let [a, b, rest @ ..] = rest else { return Ok(None) };
                (u64::from(u16::from_be_bytes([*a, *b])), rest)
            }
            127 => {
                let Some((eight, rest)) = rest.split_first_chunk::<8>() else { return Ok(None) };
                (u64::from_be_bytes(*eight), rest)
            }
            short => (u64::from(short), rest),
        };
        if is_control(opcode) && (length > 125 || first & 0x80 == 0) {
            return Err(Violation::BadControl);
        }
        let Some((mask, _)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        Ok(Some(Self { opcode, last: first & 0x80 != 0, length, mask: *mask }))
    }
}

/// Writes standard base64 with padding (for `Sec-WebSocket-Accept`).
///
/// # Errors
/// Only those of `out`.
pub fn write_base64(out: &mut impl Write, bytes: &[u8]) -> core::fmt::Result {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |value: u32| {
        let index = usize::try_from(value & 63).unwrap_or(0);
        char::from(ALPHABET.get(index).copied().unwrap_or(b'='))
    };
    for three in bytes.chunks(3) {
        let byte = |index: usize| u32::from(three.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        out.write_char(digit(bits >> 18))?;
        out.write_char(digit(bits >> 12))?;
        out.write_char(if three.len() > 1 { digit(bits >> 6) } else { '=' })?;
        out.write_char(if three.len() > 2 { digit(bits) } else { '=' })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{string::String, vec, vec::Vec};

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

    /// All that came, with the parts of messages put together.
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
                            seen.push(std::format!("{text} {:?}", core::mem::take(&mut message)));
                        }
                    }
                    Incoming::Pong | Incoming::Ping(_) | Incoming::Close => {
                        seen.push(std::format!("{incoming:?}"));
                    }
                }
                rest = &mut rest[used..];
            }
        }
        Ok(seen)
    }

    #[test]
    fn frames_are_read_at_every_cut() {
        let long: Vec<u8> = (0..=255).chain(0..=99).collect();
        let mut bytes = frame(0x81, b"text");
        bytes.extend(frame(0x82, &long));
        bytes.extend(frame(0x81, b""));
        bytes.extend(frame(0x02, b"in"));
        bytes.extend(frame(0x89, b"hello"));
        bytes.extend(frame(0x80, b"two"));
        bytes.extend(frame(0x8a, b""));
        bytes.extend(frame(0x88, b"\x03\xe8"));
        let expected = [
            std::format!("true {:?}", b"text"),
            std::format!("false {long:?}"),
            "true []".into(),
            std::format!("Ping({:?})", b"hello"),
            std::format!("false {:?}", b"intwo"),
            "Pong".into(),
            "Close".into(),
        ];
        for size in 1..=bytes.len() {
            assert_eq!(read(&bytes, size).unwrap(), expected, "pieces of {size}");
        }
    }

    #[test]
    fn what_breaks_the_rules_is_a_violation() {
        let take = |bytes: &[u8]| read(bytes, 1);
        assert_eq!(take(&[0x81, 0x01, b'x']), Err(Violation::NotMasked));
        assert_eq!(take(&[0xf1, 0x81]), Err(Violation::Reserved));
        assert_eq!(take(&[0x83, 0x81]), Err(Violation::Reserved));
        assert_eq!(take(&[0x09, 0x81]), Err(Violation::BadControl));
        assert_eq!(take(&[0x89, 0xfe, 0, 200]), Err(Violation::BadControl));
        assert_eq!(take(&frame(0x80, b"x")), Err(Violation::BadFragment));
        let within = [frame(0x01, b"a"), frame(0x81, b"b")].concat();
        assert_eq!(take(&within), Err(Violation::BadFragment));
    }

    #[test]
    fn headers_take_the_shortest_form() {
        let mut out = [0; HEADER];
        for (length, size) in [(0, 2), (125, 2), (126, 4), (65535, 4), (65536, 10)] {
            assert_eq!(header(Opcode::Text, length, &mut out), size, "{length}");
        }
        assert_eq!(header(Opcode::Ping, 0, &mut out), 2);
        assert_eq!(out[..2], [0x89, 0]);
    }

    #[test]
    fn base64_matches_rfc_4648() {
        for (plain, encoded) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            let mut out = String::new();
            write_base64(&mut out, plain.as_bytes()).unwrap();
            assert_eq!(out, encoded);
        }
    }
}
