//! Little-endian numbers in sectors, and checksums.

pub(super) fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    chunk(bytes, at).map(u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    chunk(bytes, at).map(u64::from_le_bytes)
}

pub(super) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    let place = bytes.get_mut(at..).and_then(|rest| rest.get_mut(..value.len()));
    if let Some(place) = place {
        place.copy_from_slice(value);
    }
}

/// Returns the CRC-32 of IEEE 802.3, bit by bit: only 16 KiB are checked.
pub(super) fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for byte in parts.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}
