//! Extends the last partition of an enlarged disk. The order of writes ensures that after a power
//! cut at any sector the table is valid, either the old or the new one.

mod geometry;
mod gpt;
mod mbr;

use geometry::SECTOR;
pub use geometry::{Disk, DiskGeometry, Last, Step, Table};

impl Table {
    /// Reads the table and finds the last partition; `None` without a valid table or partition.
    pub fn read(&mut self, geometry: &DiskGeometry, disk: Disk<'_>) -> Option<Last> {
        if !matches!(geometry.sector, 512 | 1024 | 2048 | SECTOR) || geometry.sectors == 0 {
            return None;
        }
        let last = mbr::read(self, geometry, disk)?;
        if last.number > 0 { Some(last) } else { gpt::read(self, geometry, disk) }
    }

    /// Extends that partition to the sector `most`; returns false if the disk fails. Do not call it
    /// if the space is [reserved](Last::is_reserved).
    pub fn grow(&mut self, geometry: &DiskGeometry, last: &Last, disk: Disk<'_>) -> bool {
        if self.length == 0 {
            mbr::stretch(self, self.place, last.most + 1 - last.first);
            mbr::write(self, geometry, disk)
        } else {
            gpt::grow(self, geometry, last, disk)
        }
    }

    /// Records that the file system has grown, too; returns false if the disk fails. Until then,
    /// [`Last::is_torn`] is set. An MBR cannot record this.
    pub fn finish(&mut self, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
        self.length == 0 || mbr::finish(self, geometry, disk)
    }
}

#[cfg(test)]
mod tests;
