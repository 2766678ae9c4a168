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
        let all = [1, PACKET, 0, PACKET + 1, 0xffff_ffff].map(of);
        let bad = Err(BadLength);
        assert_eq!(all, [Ok(Some(5)), Ok(Some(PACKET + 4)), bad, bad, bad]);
        assert_eq!(length(b"\xff\xff\xff"), Ok(None));
        assert_eq!(length(b"\0\0\0\x05then whatever"), Ok(Some(9)));
    }
}
