//! Framing of packets: four bytes of length, then that many bytes (filexfer-02 §3).

use super::PACKET;

/// A length of zero or over [`PACKET`]: the session must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// Returns the size of the frame at the front, bytes, including its length field; `None` if that
/// field is incomplete. Errors: [`BadLength`] if the field is zero or over [`PACKET`].
pub fn length(bytes: &[u8]) -> Result<Option<usize>, BadLength> {
    let Some((length, _)) = bytes.split_first_chunk() else { return Ok(None) };
    match usize::try_from(u32::from_be_bytes(*length)) {
        Ok(length @ 1..=PACKET) => Ok(Some(4 + length)),
        _ => Err(BadLength),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_exact_to_the_byte() {
        let of = |length: usize| self::length(&u32::try_from(length).unwrap().to_be_bytes());
        assert_eq!(of(0), Err(BadLength));
        assert_eq!(of(1), Ok(Some(5)));
        assert_eq!(of(PACKET), Ok(Some(PACKET + 4)));
        assert_eq!(of(PACKET + 1), Err(BadLength));
        assert_eq!(of(0xffff_ffff), Err(BadLength));
    }

    #[test]
    fn a_partial_length_needs_more_input() {
        for cut in 0..4 {
            assert_eq!(length(&b"\xff\xff\xff"[..cut.min(3)]), Ok(None), "cut at {cut}");
        }
        assert_eq!(length(b"\0\0\0\x05then whatever"), Ok(Some(9)));
    }
}
