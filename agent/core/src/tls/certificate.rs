//! Finds the public key in a certificate (X.509, RFC 5280). The agent needs nothing else, because
//! it compares certificates byte for byte.

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
/// `[0] EXPLICIT Version`, absent only in version 1.
const VERSION: u8 = 0xa0;

/// Returns the whole `SubjectPublicKeyInfo` element; `None` if `der` is not a certificate.
pub fn public_key(der: &[u8]) -> Option<&[u8]> {
    let certificate = Element::first(der)?.of(SEQUENCE)?;
    let mut fields = Element::first(certificate.content)?.of(SEQUENCE)?.content;
    let mut next = || -> Option<Element<'_>> {
        let element = Element::first(fields)?;
        fields = fields.get(element.whole.len()..)?;
        Some(element)
    };
    let first = next()?;
    let serial = if first.tag == VERSION { next()? } else { first };
    serial.of(INTEGER)?;
    // Signature algorithm, issuer, validity and subject precede the key.
    for _ in 0..4 {
        next()?.of(SEQUENCE)?;
    }
    Some(next()?.of(SEQUENCE)?.whole)
}

#[derive(Clone, Copy)]
struct Element<'d> {
    tag: u8,
    whole: &'d [u8],
    content: &'d [u8],
}

impl<'d> Element<'d> {
    fn first(der: &'d [u8]) -> Option<Self> {
        let (&tag, rest) = der.split_first()?;
        let (&length, rest) = rest.split_first()?;
        // Up to 127 it is the length, else the number of length bytes that follow, here one or two.
        let (length, rest) = match length {
            0..=0x7f => (usize::from(length), rest),
            0x81 => rest.split_first().map(|(&one, rest)| (usize::from(one), rest))?,
            0x82 => rest
                .split_first_chunk()
                .map(|(&two, rest)| (usize::from(u16::from_be_bytes(two)), rest))?,
            _ => return None,
        };
        let content = rest.get(..length)?;
        let whole = der.get(..der.len() - rest.len() + length)?;
        Some(Self { tag, whole, content })
    }

    fn of(self, tag: u8) -> Option<Self> {
        (self.tag == tag).then_some(self)
    }
}
