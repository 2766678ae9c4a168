//! The MBR partition table in the first sector: four primary partitions; ignores logical ones.

use super::geometry::{Disk, DiskGeometry, Last, Step, Table, chunk, put, u32_at};

/// Offset of the four entries, and the length of one.
const ENTRIES: usize = 446;
const ENTRY: usize = 16;
/// Partition type of a protective entry, which announces a GPT.
const PROTECTIVE: u8 = 0xee;
/// End as cylinder, head and sector, if the real end exceeds their range.
const FAR: [u8; 3] = [0xfe, 0xff, 0xff];

/// Reads the table; `None` without one, or without a partition on the disk. A GPT has number 0.
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
        // Check this as the kernel does (msdos.c), because a FAT boot sector has the same
        // signature.
        if flag & 0x7f != 0 {
            return None;
        }
        if kind == PROTECTIVE {
            return Some(Last::default());
        }
        // The length has 32 bits.
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

/// Sets the length of the entry at this offset.
pub(super) fn stretch(table: &mut Table, place: usize, count: u64) {
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    put(&mut table.mbr, place + 5, &FAR);
    put(&mut table.mbr, place + 12, &count.to_le_bytes());
}

/// Returns whether the protective entry ends before this sector.
pub(super) fn is_short(table: &Table, end: u64) -> bool {
    // If the disk exceeds the entry's range, the entry has the largest length.
    let length = u32_at(&table.mbr, ENTRIES + 12).filter(|length| *length < u32::MAX);
    protects(table) && length.is_some_and(|length| u64::from(length) < end)
}

/// Returns whether the protective entry is the only one. A hybrid MBR is left unchanged.
fn protects(table: &Table) -> bool {
    let rest = table.mbr.get(ENTRIES + ENTRY..ENTRIES + 4 * ENTRY);
    table.mbr.get(ENTRIES + 4) == Some(&PROTECTIVE) && rest == Some(&[0; 3 * ENTRY])
}

/// Extends the protective entry to this sector.
#[inline(never)] // its size
pub(super) fn cover(table: &mut Table, geometry: &DiskGeometry, end: u64, disk: Disk<'_>) -> bool {
    if !protects(table) {
        return true;
    }
    stretch(table, ENTRIES, end);
    write(table, geometry, disk)
}

/// Extends the protective entry to the disk's end. Rereads the sector, which has the boot loader.
pub(super) fn finish(table: &mut Table, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
    let end = geometry.sectors - 1;
    let bytes = table.mbr.get_mut(..geometry.sector);
    let is_read = bytes.is_some_and(|bytes| disk(Step::Read(0, bytes)));
    is_read && (!is_short(table, end) || cover(table, geometry, end, disk))
}

pub(super) fn write(table: &Table, geometry: &DiskGeometry, disk: Disk<'_>) -> bool {
    super::geometry::write(disk, 0, table.mbr.get(..geometry.sector))
}
