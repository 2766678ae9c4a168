//! Encodes base64 (RFC 4648).

/// Returns `bytes` as base64 digits without padding. `last` has the digits for 62 and 63.
pub fn base64(bytes: &[u8], last: [char; 2]) -> impl Iterator<Item = char> {
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    (0..bytes.len() * 8).step_by(6).map(move |bit| {
        // The six bits of a digit are in one byte or across two.
        let two = byte(bit / 8) << 8 | byte(bit / 8 + 1);
        let [_, value] = (two >> (10 - bit % 8) & 63).to_be_bytes();
        match value {
            0..26 => char::from(b'A' + value),
            26..52 => char::from(b'a' + value - 26),
            52..62 => char::from(b'0' + value - 52),
            62 => last[0],
            _ => last[1],
        }
    })
}
