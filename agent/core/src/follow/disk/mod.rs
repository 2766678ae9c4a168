//! A disk that the host has made larger: which partition may follow, and what is to be written for that, in an order
//! in which a power cut after any sector leaves a table that is whole, the old one or the new one.

mod bytes;
mod gpt;
mod mbr;
pub mod mounted;

/// Largest sector, bytes.
const SECTOR: usize = 4096;
/// Most bytes of all entries of a table: 128 of 128, which all tools make.
const ENTRIES: usize = 16 * 1024;
/// A partition that ends this near to the disk's end, in bytes, ends there: many are aligned to it.
const NEAR: u64 = 1 << 20;

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
pub struct Shape {
    /// Bytes of a sector.
    pub sector: usize,
    /// Number of sectors.
    pub sectors: u64,
    /// Their number before it grew; 0 if that is not known.
    pub before: u64,
}

impl Shape {
    fn near(&self) -> u64 {
        NEAR / self.sector as u64
    }

    /// Whether a partition with this last sector ended where the disk ended before it grew, as far as that is known.
    fn was_at_end(&self, end: u64) -> bool {
        self.before != 0 && end.saturating_add(self.near() + gpt::MOST) >= self.before
    }
}

/// The partition behind which there is no other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "three answers that have nothing in common")]
pub struct Last {
    /// Its number, from 1 on.
    pub number: u32,
    /// Its first sector.
    pub first: u64,
    /// Its last sector.
    pub end: u64,
    /// The last sector that it could have.
    pub most: u64,
    /// Whether its type is one of Linux' file systems.
    pub is_linux: bool,
    /// Whether it ended where the disk ended before that grew.
    pub was_at_end: bool,
    /// Whether the writes of another time were cut off, and are to be done again.
    pub is_torn: bool,
}

impl Last {
    /// Whether there is room behind it that is worth a write.
    #[must_use]
    pub fn has_room(&self, shape: &Shape) -> bool {
        self.most.saturating_sub(self.end) >= shape.near()
    }
}

/// A disk's table. Its parts are aligned as reads and writes past the kernel's cache must be.
#[derive(Debug)]
#[repr(C, align(4096))]
pub struct Table {
    mbr: [u8; SECTOR],
    header: [u8; SECTOR],
    entries: [u8; ENTRIES],
    piece: [u8; ENTRIES],
    /// Bytes of the entries; 0 in a table of DOS.
    length: usize,
    /// The same with what is left of their last sector.
    padded: usize,
    /// Place of the last partition's.
    place: usize,
}

impl Default for Table {
    fn default() -> Self {
        let (mbr, entries) = ([0; SECTOR], [0; ENTRIES]);
        Self { mbr, header: mbr, entries, piece: entries, length: 0, padded: 0, place: 0 }
    }
}

impl Table {
    /// Reads the table, and finds the last partition; `None` if there is no table that is whole, or no partition in it.
    pub fn read(&mut self, shape: &Shape, disk: Disk<'_>) -> Option<Last> {
        if !matches!(shape.sector, 512 | 1024 | 2048 | SECTOR) || shape.sectors == 0 {
            return None;
        }
        let last = mbr::read(self, shape, disk)?;
        if last.number > 0 { Some(last) } else { gpt::read(self, shape, disk) }
    }

    /// Writes it with that partition up to the sector `most`; false if the disk fails.
    pub fn grow(&mut self, shape: &Shape, last: &Last, disk: Disk<'_>) -> bool {
        if self.length == 0 {
            mbr::stretch(self, self.place, last.most + 1 - last.first);
            mbr::write(self, shape, disk) && disk(Step::Flush)
        } else {
            gpt::grow(self, shape, last, disk)
        }
    }
}

/// Whether a kernel event tells of a disk that has another size.
#[must_use]
pub fn is_event(event: &[u8]) -> bool {
    event.split(|byte| *byte == 0).any(|word| word == b"RESIZE=1")
}

#[cfg(test)]
mod tests;
