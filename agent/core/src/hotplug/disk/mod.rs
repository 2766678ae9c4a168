//! A disk that the host has made larger: which partition may follow, and what is to be written for that, in an order
//! in which a power cut after any sector leaves a table that is whole, the old one or the new one.

mod bytes;
mod geometry;
mod gpt;
mod mbr;

use geometry::SECTOR;
pub use geometry::{Disk, DiskGeometry, Last, Step, Table};

impl Table {
    /// Reads the table, and finds the last partition; `None` if there is no table that is whole, or no partition in it.
    pub fn read(&mut self, geometry: &DiskGeometry, disk: Disk<'_>) -> Option<Last> {
        if !matches!(geometry.sector, 512 | 1024 | 2048 | SECTOR) || geometry.sectors == 0 {
            return None;
        }
        let last = mbr::read(self, geometry, disk)?;
        if last.number > 0 { Some(last) } else { gpt::read(self, geometry, disk) }
    }

    /// Writes it with that partition up to the sector `most`; false if the disk fails. Not for one behind which room is
    /// [reserved](Last::is_reserved).
    pub fn grow(&mut self, geometry: &DiskGeometry, last: &Last, disk: Disk<'_>) -> bool {
        if self.length == 0 {
            mbr::stretch(self, self.place, last.most + 1 - last.first);
            mbr::write(self, geometry, disk)
        } else {
            gpt::grow(self, geometry, last, disk)
        }
    }

    /// Says in it that the file system has grown, too; false if the disk fails. Until then it is torn. A table of DOS cannot
    /// say it.
    pub fn finish(&mut self, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
        self.length == 0 || mbr::finish(self, geometry, disk)
    }
}

#[cfg(test)]
mod tests;
