//! The table of DOS in a disk's first sector: four partitions, one of which may hold others, which are left alone.

use super::bytes::{chunk, put, u32_at};
use super::geometry::{Disk, DiskGeometry, Last, Step, Table};

/// Where the four entries are, and the length of one.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// The type that says that there is a table with GUIDs.
const PROTECTIVE: u8 = 0xee;
/// The end by cylinder, head and sector, of what is beyond these.
const FAR: [u8; 3] = [0xfe, 0xff, 0xff];

/// Reads it. `None` if there is none, or no partition of it is on the disk; number 0 if it says that there is a table with
/// GUIDs.
#[inline(never)] // its size
pub(super) fn read(table: &mut Table, geometry: &DiskGeometry, disk: Disk<'_>) -> Option<Last> {
    let bytes = table.mbr.get_mut(..geometry.sector)?;
    if !disk(Step::Read(0, bytes)) || chunk(bytes, 510)? != [0x55, 0xaa] {
        return None;
    }
    let mut last = Last::default();
    table.length = 0;
    for number in 1..5 {
        let place = ENTRIES + (number as usize - 1) * ENTRY;
        let [flag, _, _, _, kind] = chunk(bytes, place)?;
        let [first, count] = [u32_at(bytes, place + 8)?, u32_at(bytes, place + 12)?].map(u64::from);
        // The kernel's check too (block/partitions/msdos.c): a boot sector of FAT ends in the same way.
        if flag & 0x7f != 0 {
            return None;
        }
        if kind == PROTECTIVE {
            return Some(Last::default());
        }
        // Its length has 32 bits.
        let most = (first + u64::from(u32::MAX) - 1).min(geometry.sectors - 1);
        let end = (first + count).saturating_sub(1);
        if kind != 0 && count != 0 && end >= last.end {
            table.place = place;
            let was_at_end = geometry.was_at_end(end);
            last = Last { number, first, end, most, was_at_end, ..Last::default() };
        }
    }
    (last.first > 0 && last.end < geometry.sectors).then_some(last)
}

/// Gives the entry at that place a length.
pub(super) fn stretch(table: &mut Table, place: usize, count: u64) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    put(&mut table.mbr, place + 5, &FAR);
    put(&mut table.mbr, place + 12, &count.to_le_bytes());
}

/// Whether the entry that protects a table with GUIDs ends before this sector.
pub(super) fn is_short(table: &Table, end: u64) -> bool {
    // Of a disk that is too large it has the largest length.
    let length = u32_at(&table.mbr, ENTRIES + 12).filter(|length| *length < u32::MAX);
    protects(table) && length.is_some_and(|length| u64::from(length) < end)
}

/// One that stands beside others, for a system that knows no GUIDs, is left.
fn protects(table: &Table) -> bool {
    let rest = table.mbr.get(ENTRIES + ENTRY..ENTRIES + 4 * ENTRY);
    table.mbr.get(ENTRIES + 4) == Some(&PROTECTIVE) && rest == Some(&[0; 3 * ENTRY])
}

/// Has that entry end with this sector.
#[inline(never)] // its size
pub(super) fn cover(table: &mut Table, geometry: &DiskGeometry, end: u64, disk: Disk<'_>) -> bool {
    if !protects(table) {
        return true;
    }
    stretch(table, ENTRIES, end);
    write(table, geometry, disk)
}

/// Has it end with the disk, in the sector as it is by now: it has a boot loader's code, too.
pub(super) fn finish(table: &mut Table, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
    let end = geometry.sectors - 1;
    let bytes = table.mbr.get_mut(..geometry.sector);
    let is_read = bytes.is_some_and(|bytes| disk(Step::Read(0, bytes)));
    is_read && (!is_short(table, end) || cover(table, geometry, end, disk))
}

pub(super) fn write(table: &Table, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
    super::geometry::write(disk, 0, table.mbr.get(..geometry.sector))
}
