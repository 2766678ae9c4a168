//! Integers and strings of SSH (RFC 4251 §5): big-endian; a string follows its length.

/// Takes values off the front; `None` if bytes are missing.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.clone();
        let length = usize::try_from(rest.u32()?).ok()?;
        let (taken, rest) = rest.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_string_beyond_the_packet() {
        for bytes in [&b"\0\0\0\x02a"[..], b"\xff\xff\xff\xffabc", b"\0\0\0", b""] {
            let mut reader = Reader(bytes);
            assert_eq!(reader.string(), None);
            assert_eq!(reader.0, bytes);
        }
        let mut reader = Reader(b"\0\0\0\x02abc");
        assert_eq!((reader.string(), reader.0), (Some(&b"ab"[..]), &b"c"[..]));
    }
}
