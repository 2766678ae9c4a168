//! What a disk is, and what a table on it.

/// Largest sector, bytes.
pub(super) const SECTOR: usize = 4096;
/// Most bytes of all entries of a table: 128 of 128, which all tools make.
pub(super) const ENTRIES: usize = 16 * 1024;
/// A partition that ends this near to the disk's end, in bytes, ends there: many are aligned to it.
const NEAR: u64 = 1 << 20;

/// Most sectors of a table at the disk's end, with its header.
pub(super) const MOST: u64 = 33;

/// One access to the disk, at a sector's number.
#[derive(Debug)]
pub enum Step<'s> {
    /// Fill this with sectors.
    Read(u64, &'s mut [u8]),
    /// Write these.
    Write(u64, &'s [u8]),
    /// Wait until all that was written is kept.
    Flush,
}

/// Does a step; false if it cannot.
pub type Disk<'d> = &'d mut dyn FnMut(Step<'_>) -> bool;

/// What is known of the disk itself.
#[derive(Clone, Copy, Debug)]
pub struct DiskGeometry {
    /// Bytes of a sector.
    pub sector: usize,
    /// Number of sectors.
    pub sectors: u64,
    /// Their number before it grew; 0 if that is not known.
    pub before: u64,
}

impl DiskGeometry {
    pub(super) fn near(&self) -> u64 {
        NEAR / self.sector as u64
    }

    /// Whether a partition with this last sector ended where the disk ended before it grew, as far as that is known.
    pub(super) fn was_at_end(&self, end: u64) -> bool {
        self.before != 0 && end.saturating_add(self.near() + MOST) >= self.before
    }
}

/// The partition behind which there is no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "answers that have nothing in common")]
pub struct Last {
    /// Its number, from 1 on.
    pub number: u32,
    /// Its first sector.
    pub first: u64,
    /// Its last sector.
    pub end: u64,
    /// The last sector that it could have.
    pub most: u64,
    /// Whether it ended where the disk ended before that grew.
    pub was_at_end: bool,
    /// Whether something is kept between the last block that partitions may use and the copy of the table: nothing may be
    /// written.
    pub is_reserved: bool,
    /// Whether what was begun another time was cut off, its writes or the file system's growth, and is to be done again.
    pub is_torn: bool,
}

impl Last {
    /// Whether there is room behind it that is worth a write.
    #[must_use]
    pub fn has_room(&self, geometry: &DiskGeometry) -> bool {
        self.most.saturating_sub(self.end) >= geometry.near()
    }
}

/// A disk's table. Its parts are aligned as reads and writes past the kernel's cache must be.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Table {
    pub(super) mbr: [u8; SECTOR],
    pub(super) header: [u8; SECTOR],
    pub(super) entries: [u8; ENTRIES],
    pub(super) piece: [u8; ENTRIES],
    /// Bytes of the entries; 0 in a table of DOS.
    pub(super) length: usize,
    /// The same with what is left of their last sector.
    pub(super) padded: usize,
    /// Place of the last partition's.
    pub(super) place: usize,
}

impl Default for Table {
    fn default() -> Self {
        let (mbr, entries) = ([0; SECTOR], [0; ENTRIES]);
        Self { mbr, header: mbr, entries, piece: entries, length: 0, padded: 0, place: 0 }
    }
}

/// Writes sectors, and waits until they are kept: what is written later needs what was written before.
#[inline(never)] // its size
pub(super) fn write(disk: Disk<'_>, at: u64, bytes: Option<&[u8]>) -> bool {
    bytes.is_some_and(|bytes| disk(Step::Write(at, bytes)) && disk(Step::Flush))
}
