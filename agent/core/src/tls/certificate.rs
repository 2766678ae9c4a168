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
    // Signature algorithm, issuer, validity, subject; then the key.
    for _ in 0..4 {
        next()?.of(SEQUENCE)?;
    }
    Some(next()?.of(SEQUENCE)?.whole)
}

/// A DER element (X.690).
#[derive(Clone, Copy)]
struct Element<'d> {
    tag: u8,
    whole: &'d [u8],
    content: &'d [u8],
}

impl<'d> Element<'d> {
    /// Parses the element at the front.
    fn first(der: &'d [u8]) -> Option<Self> {
        let (&tag, rest) = der.split_first()?;
        let (&length, rest) = rest.split_first()?;
        // Up to 127: the length; else how many bytes of length follow, here one or two.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn element(tag: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap();
        let mut out = match length {
            0..=127 => vec![tag, content.len().try_into().unwrap()],
            128..=255 => vec![tag, 0x81, content.len().try_into().unwrap()],
            _ => [&[tag, 0x82][..], &length.to_be_bytes()].concat(),
        };
        out.extend(content);
        out
    }

    /// A certificate whose key has `key` bytes of content, and the key.
    fn certificate(version: &[u8], key: usize) -> (Vec<u8>, Vec<u8>) {
        let key = element(SEQUENCE, &vec![7; key]);
        let serial = element(INTEGER, &[1, 2, 3]);
        let others = [0, 5, 130, 300].map(|size| element(SEQUENCE, &vec![9; size]));
        let extensions = element(0xa3, &[1]);
        let signed = [version, &serial, &others.concat(), &key, &extensions].concat();
        let signed = element(SEQUENCE, &signed);
        let signature = element(SEQUENCE, &[4, 4]);
        (element(SEQUENCE, &[signed, signature].concat()), key)
    }

    #[test]
    fn other_der_has_no_key() {
        let (der, _) = certificate(&[], 10);
        for at in [0, 4, 8] {
            let mut other = der.clone();
            other[at] ^= 1;
            assert_eq!(public_key(&other), None, "changed at {at}");
        }
        assert_eq!(public_key(&[SEQUENCE, 0x83, 0, 0, 2, SEQUENCE, 0]), None);
        assert_eq!(public_key(&[SEQUENCE, 0x80, SEQUENCE, 0]), None);
    }
}
