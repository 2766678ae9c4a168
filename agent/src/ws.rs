//! WebSocket frames (RFC 6455), server side, as pure byte work. Source for what peers expect: P§4.3.
//!
//! Only what the agent's event streams need: whole text frames out, and the small frames that a
//! listener sends back (pong, ping, close) in. A listener has nothing else to say, so data frames
//! are skipped without being kept. Never allocates.

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

/// What a listener sent.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    /// Nothing of interest in these bytes.
    More,
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
}

/// Reads a client's frames from bytes cut anywhere.
#[derive(Debug)]
pub struct Reader {
    state: Reading,
}

#[derive(Debug)]
enum Reading {
    Header(heapless::Vec<u8, 14>),
    Payload {
        opcode: Opcode,
        left: u64,
        mask: [u8; 4],
        at: usize,
        kept: heapless::Vec<u8, CONTROL>,
    },
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: Reading::Header(heapless::Vec::new()) }
    }
}

impl Reader {
    /// Takes bytes from the front of `input`; stops after each frame. Call until `input` is empty.
    ///
    /// # Errors
    /// [`Violation`]: the connection must be closed.
    pub fn take(&mut self, input: &mut &[u8]) -> Result<Incoming, Violation> {
        loop {
            match &mut self.state {
                Reading::Header(bytes) => {
                    if let Some(header) = Header::parse(bytes)? {
                        self.state = Reading::Payload {
                            opcode: header.opcode,
                            left: header.length,
                            mask: header.mask,
                            at: 0,
                            kept: heapless::Vec::new(),
                        };
                        continue;
                    }
                    let Some((first, rest)) = input.split_first() else {
                        return Ok(Incoming::More);
                    };
                    *input = rest;
                    if bytes.push(*first).is_err() {
                        return Err(Violation::Reserved);
                    }
                }
                Reading::Payload { opcode, left, mask, at, kept } => {
                    let control = is_control(*opcode);
                    while *left > 0 {
                        let Some((first, rest)) = input.split_first() else {
                            return Ok(Incoming::More);
                        };
                        if control {
                            let key = mask.get(*at % 4).copied().unwrap_or(0);
                            kept.push(first ^ key).map_err(|_| Violation::BadControl)?;
                            *input = rest;
                            *left -= 1;
                            *at += 1;
                        } else {
                            let skip =
                                usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                            *input = input.get(skip..).unwrap_or(&[]);
                            *left -= u64::try_from(skip).unwrap_or(0);
                        }
                    }
                    let frame = (*opcode, core::mem::take(kept));
                    *self = Self::default();
                    match frame {
                        (Opcode::Pong, _) => return Ok(Incoming::Pong),
                        (Opcode::Ping, payload) => return Ok(Incoming::Ping(payload)),
                        (Opcode::Close, _) => return Ok(Incoming::Close),
                        (Opcode::Text | Opcode::Binary | Opcode::Continuation, _) => {}
                    }
                }
            }
        }
    }
}

fn is_control(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Close | Opcode::Ping | Opcode::Pong)
}

struct Header {
    opcode: Opcode,
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
        Ok(Some(Self { opcode, length, mask: *mask }))
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

    fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1u8, 2, 3, 4];
        let mut frame = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).unwrap()];
        frame.extend(mask);
        frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, key)| byte ^ key));
        frame
    }

    #[test]
    fn control_frames_are_read_at_every_cut() {
        let mut bytes = masked(0x1, b"ignored text");
        bytes.extend(masked(0x9, b"hello"));
        bytes.extend(masked(0xa, b""));
        bytes.extend(masked(0x8, b"\x03\xe8"));
        for size in 1..bytes.len() {
            let mut reader = Reader::default();
            let mut seen = Vec::new();
            for mut cut in bytes.chunks(size) {
                while !cut.is_empty() {
                    let incoming = reader.take(&mut cut).unwrap();
                    if incoming != Incoming::More {
                        seen.push(incoming);
                    }
                }
            }
            let hello = heapless::Vec::from_slice(b"hello").unwrap();
            assert_eq!(seen, [Incoming::Ping(hello), Incoming::Pong, Incoming::Close], "{size}");
        }
    }

    #[test]
    fn what_breaks_the_rules_is_a_violation() {
        let take = |bytes: &[u8]| Reader::default().take(&mut &*bytes);
        assert_eq!(take(&[0x81, 0x01, b'x']), Err(Violation::NotMasked));
        assert_eq!(take(&[0xf1, 0x81]), Err(Violation::Reserved));
        assert_eq!(take(&[0x83, 0x81]), Err(Violation::Reserved));
        assert_eq!(take(&[0x09, 0x81]), Err(Violation::BadControl));
        assert_eq!(take(&[0x89, 0xfe, 0, 200]), Err(Violation::BadControl));
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
