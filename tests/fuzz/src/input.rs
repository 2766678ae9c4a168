//! Converts an input to numbers and texts.

use mote_core::flavour::Flavour;
use mote_core::http::head::Method;

#[rustfmt::skip] // several in a line
pub(crate) const METHODS: [Method; 8] = [
    Method::Get, Method::Head, Method::Post, Method::Put, Method::Patch, Method::Delete,
    Method::Options, Method::Other,
];

/// The rest of an input; after its end everything is 0 or empty.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Input<'i>(pub(crate) &'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    pub(crate) fn array<const N: usize>(&mut self) -> [u8; N] {
        core::array::from_fn(|_| self.byte())
    }

    pub(crate) fn short(&mut self) -> u32 {
        u16::from_be_bytes(self.array()).into()
    }

    pub(crate) fn word(&mut self) -> u32 {
        u32::from_be_bytes(self.array())
    }

    /// Returns a number; small ones are as likely as large ones.
    pub(crate) fn long(&mut self) -> u64 {
        let shift = self.byte() % 64;
        u64::from_be_bytes(self.array()) >> shift
    }

    /// Returns up to 255 bytes, which follow their length.
    pub(crate) fn bytes(&mut self) -> &'i [u8] {
        let length = usize::from(self.byte()).min(self.0.len());
        let (bytes, rest) = self.0.split_at(length);
        self.0 = rest;
        bytes
    }

    /// Returns the valid UTF-8 at the start of [`Self::bytes`].
    pub(crate) fn text(&mut self) -> &'i str {
        text(self.bytes())
    }

    pub(crate) fn flavour(&mut self) -> Flavour {
        [Flavour::Incus, Flavour::Lxd, Flavour::LxdOld][usize::from(self.byte() % 3)]
    }
}

pub(crate) fn text(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

/// Returns whether JSON may be nested deeper than mote's limit.
pub(crate) fn is_deep(json: &[u8]) -> bool {
    json.iter().filter(|byte| b"[{".contains(byte)).count() > 30
}

/// Decodes percent-encoding; `None` if it is invalid.
pub(crate) fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut pieces = text.as_bytes().split(|byte| *byte == b'%');
    let mut out = pieces.next()?.to_vec();
    for piece in pieces {
        let digits = core::str::from_utf8(piece.get(..2)?).ok()?;
        let true = digits.bytes().all(|digit| digit.is_ascii_hexdigit()) else { return None };
        out.push(u8::from_str_radix(digits, 16).ok()?);
        out.extend_from_slice(&piece[2..]);
    }
    Some(out)
}

pub(crate) fn segments(path: &str) -> Option<Vec<Vec<u8>>> {
    let inner = path.strip_prefix('/').unwrap_or(path);
    let parts = if inner.is_empty() { Vec::new() } else { inner.split('/').collect() };
    parts.into_iter().map(decoded).collect()
}
