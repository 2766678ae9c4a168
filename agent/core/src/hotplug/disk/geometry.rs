//! Describes a disk, its last partition and its partition table.

/// Maximum size of a sector, in bytes.
pub(super) const SECTOR: usize = 4096;
/// Maximum size of the list of entries, in bytes: 128 entries of 128 bytes, which all tools create.
pub(super) const ENTRIES: usize = 16 * 1024;
/// A partition that ends within this many bytes of the disk's end counts as ending there, because
/// many partitions end at a multiple of it.
const NEAR: u64 = 1 << 20;

/// Maximum number of sectors that a table at the disk's end takes, with its header.
pub(super) const MOST: u64 = 33;

/// An access to the disk, at the sector of this number.
#[derive(Debug)]
pub enum Step<'s> {
    Read(u64, &'s mut [u8]),
    Write(u64, &'s [u8]),
    /// Wait until all written data is durable.
    Flush,
}

/// Performs a step; returns false on failure.
pub type Disk<'d> = &'d mut dyn FnMut(Step<'_>) -> bool;

#[derive(Clone, Copy, Debug)]
pub struct DiskGeometry {
    /// Sector size, in bytes.
    pub sector: usize,
    pub sectors: u64,
    /// Number of sectors before the disk grew; 0 if unknown.
    pub before: u64,
}

impl DiskGeometry {
    pub(super) fn near(&self) -> u64 {
        NEAR / self.sector as u64
    }

    /// Returns whether a partition with this last sector ended at the disk's end before the disk
    /// grew; false if that is unknown.
    pub(super) fn was_at_end(&self, end: u64) -> bool {
        self.before != 0 && end.saturating_add(self.near() + MOST) >= self.before
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent answers")]
pub struct Last {
    /// Number, counted from 1.
    pub number: u32,
    pub first: u64,
    /// Last sector.
    pub end: u64,
    /// Highest possible last sector.
    pub most: u64,
    /// Whether the partition ended at the disk's end before the disk grew.
    pub was_at_end: bool,
    /// Whether the space between the last usable block and the copy of the table is reserved, so
    /// that nothing may be written there.
    pub is_reserved: bool,
    /// Whether an earlier growth of table or file system was interrupted and must be repeated.
    pub is_torn: bool,
}

impl Last {
    /// Returns whether enough space follows the partition.
    pub fn has_room(&self, geometry: &DiskGeometry) -> bool {
        self.most.saturating_sub(self.end) >= geometry.near()
    }
}

/// A disk's partition table, aligned for direct I/O.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Table {
    pub(super) mbr: [u8; SECTOR],
    pub(super) header: [u8; SECTOR],
    pub(super) entries: [u8; ENTRIES],
    pub(super) piece: [u8; ENTRIES],
    /// Length of the entries, in bytes; 0 for an MBR.
    pub(super) length: usize,
    /// `length` rounded up to whole sectors.
    pub(super) padded: usize,
    /// Offset of the last partition's entry.
    pub(super) place: usize,
}

impl Default for Table {
    fn default() -> Self {
        let (mbr, entries) = ([0; SECTOR], [0; ENTRIES]);
        Self { mbr, header: mbr, entries, piece: entries, length: 0, padded: 0, place: 0 }
    }
}

/// Writes sectors durably, because later writes depend on them.
#[inline(never)] // its size
pub(super) fn write(disk: Disk<'_>, at: u64, bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|bytes| disk(Step::Write(at, bytes)) && disk(Step::Flush))
}

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
