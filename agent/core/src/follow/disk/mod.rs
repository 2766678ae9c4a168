//! A disk that the host has made larger: which partition may follow, and what is to be written for that, in an order
//! in which a power cut after any sector leaves a table that is whole, the old one or the new one.

mod bytes;
mod gpt;
mod mbr;
mod shape;

use shape::SECTOR;
pub use shape::{Disk, Last, Shape, Step, Table};

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
            mbr::write(self, shape, disk)
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
