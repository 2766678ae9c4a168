//! GPT (UEFI 2.10, chapter 5): a header in the second sector, the entries that it points to, and a
//! copy of both at the disk's end.
//!
//! Linux uses the copy only if the first header is valid, or if requested
//! (`block/partitions/efi.c`). So the first header must be valid after each write, and the entries
//! that it points to are never written: while its own entries are written, it points to those of
//! the new copy.
//!
//! The protective MBR entry is extended last, once the file system has grown. Nothing else
//! distinguishes an interrupted growth from a file system that is smaller than its partition on
//! purpose.

use super::geometry::{
    Disk, DiskGeometry, ENTRIES, Last, MOST, Step, Table, chunk, crc32, put, u32_at, u64_at, write,
};
use super::mbr;

/// Sectors of the first header, and of the first entries if their recorded place is unusable.
const HEADER: u64 = 1;
const HOME: u64 = 2;

/// Offsets in a header.
const LENGTH: usize = 12;
const SUM: usize = 16;
const MINE: usize = 24;
const OTHER: usize = 32;
const FIRST: usize = 40;
const LAST: usize = 48;
const DISK: usize = 56;
const AT: usize = 72;
const COUNT: usize = 80;
const SIZE: usize = 84;
const ENTRIES_SUM: usize = 88;
/// Minimum size of a header, in bytes.
const LEAST: usize = 92;

/// Returns whether these bytes are a valid header for this sector.
fn is_header(sector: &[u8], place: u64) -> bool {
    let is_whole = || {
        let length = u32_at(sector, LENGTH)? as usize;
        let bytes = sector.get(..length).filter(|_| length >= LEAST)?;
        let sum = crc32(&[bytes.get(..SUM)?, &[0; 4], bytes.get(SUM + 4..)?]);
        Some(u32_at(bytes, SUM)? == sum && u64_at(bytes, MINE)? == place)
    };
    sector.starts_with(b"EFI PART") && is_whole() == Some(true)
}

/// Reads the table; `None` without a partition, or if the first header or its entries are invalid.
#[inline(never)] // its size
pub(super) fn read(table: &mut Table, geometry: &DiskGeometry, disk: Disk<'_>) -> Option<Last> {
    let header = table.header.get_mut(..geometry.sector)?;
    if !disk(Step::Read(HEADER, header)) || !is_header(header, HEADER) {
        return None;
    }
    let (count, size) = (u32_at(header, COUNT)? as usize, u32_at(header, SIZE)? as usize);
    let length = count.checked_mul(size).filter(|length| *length <= ENTRIES)?;
    table.length = length;
    table.padded = length.next_multiple_of(geometry.sector);
    let [final_one, other, at] =
        [geometry.sectors.checked_sub(1)?, u64_at(header, OTHER)?, u64_at(header, AT)?];
    let (lowest, highest) = (u64_at(header, FIRST)?, u64_at(header, LAST)?);
    // `own`: sectors of the entries. `most`: highest last sector that leaves room for the copy of
    // the entries and the header.
    let own = (table.padded / geometry.sector) as u64;
    let has_grown = other != final_one;
    let most = if has_grown { final_one.checked_sub(own + 1)? } else { highest };
    // If there is a gap, the creator of the table has reserved it.
    let is_reserved = highest.checked_add(own + 1)? != other;
    let is_away = at > highest;
    let home = home(at, highest);
    let entries = table.entries.get_mut(..table.padded)?;
    let is_whole = size >= 128
        && lowest <= highest
        && highest <= final_one
        && other <= final_one
        && HOME <= home
        && home <= lowest.saturating_sub(own)
        && disk(Step::Read(at, entries))
        && u32_at(header, ENTRIES_SUM)? == crc32(&[entries.get(..length)?]);
    if !is_whole {
        return None;
    }
    let mut last = Last::default();
    for (number, entry) in (1..).zip(entries.get(..length)?.chunks_exact(size)) {
        let kind = u128::from_le_bytes(chunk(entry, 0)?);
        let (first, end) = (u64_at(entry, 32)?, u64_at(entry, 40)?);
        if kind != 0 && end >= last.end {
            table.place = (number as usize - 1) * size;
            last = Last { number, first, end, most, ..last };
        }
    }
    let fits = lowest <= last.first && last.first <= last.end && last.end <= highest.min(most);
    // Growing would overwrite the entries that the header points to.
    let is_stuck = is_away && has_grown && !last.has_room(geometry);
    if !fits || is_stuck {
        return None;
    }
    // A copy that is not at the end is from before the growth, unless the host has moved the copy.
    let is_moved = !has_grown && last.has_room(geometry);
    let left = if is_moved { copy_behind(table, geometry, last.end, disk) } else { None };
    last.is_torn = is_away || mbr::is_short(table, last.end);
    last.was_at_end = has_grown && last.end + geometry.near() >= highest || left.is_some();
    last.is_reserved = is_reserved || left == Some(true);
    Some(last)
}

/// Returns where the first entries belong, if a header with this last usable block points to `at`.
fn home(at: u64, highest: u64) -> u64 {
    if at > highest { HOME } else { at }
}

/// Looks for an old copy of the header directly after sector `end`, where the disk ended before the
/// host moved the copy. Returns whether space before its entries is reserved, which the host's new
/// header no longer shows.
#[inline(never)] // its size
fn copy_behind(
    table: &mut Table,
    geometry: &DiskGeometry,
    end: u64,
    disk: Disk<'_>,
) -> Option<bool> {
    let step = (ENTRIES / geometry.sector) as u64;
    let behind = end + geometry.near() + MOST;
    let mut begin = end + 1;
    // The valid copy is at the end of the disk.
    while begin < behind
        && begin + step < geometry.sectors
        && disk(Step::Read(begin, &mut table.piece))
    {
        for sector in table.piece.chunks_exact(geometry.sector) {
            if is_header(sector, begin) && chunk::<16>(sector, DISK) == chunk(&table.header, DISK) {
                return Some(u64_at(sector, LAST)?.checked_add(1) != u64_at(sector, AT));
            }
            begin += 1;
        }
    }
    None
}

/// Writes the table. After each sector the first header and its entries are valid: the old ones up
/// to the header's first write, then the new ones.
#[inline(never)] // its size
pub(super) fn grow(
    table: &mut Table,
    geometry: &DiskGeometry,
    last: &Last,
    disk: Disk<'_>,
) -> bool {
    put(&mut table.entries, table.place + 40, &last.most.to_le_bytes());
    let sum = crc32(&[table.entries.get(..table.length).unwrap_or_default()]);
    let number = |place| u64_at(&table.header, place).unwrap_or(HOME);
    let home = home(number(AT), number(LAST));
    let final_one = geometry.sectors - 1;
    let copy = final_one - (table.padded / geometry.sector) as u64;
    put(&mut table.header, LAST, &last.most.to_le_bytes());
    put(&mut table.header, ENTRIES_SUM, &sum.to_le_bytes());
    // The host may have extended the protective entry to the whole disk.
    let end = last.end.min(u64::from(u32::MAX) - 1);
    (mbr::is_short(table, last.most) || mbr::cover(table, geometry, end, disk))
        && write_entries(table, copy, disk)
        && write_header(table, geometry, [final_one, HEADER, copy], disk)
        && write_header(table, geometry, [HEADER, final_one, copy], disk)
        && write_entries(table, home, disk)
        && write_header(table, geometry, [HEADER, final_one, home], disk)
}

fn write_entries(table: &Table, at: u64, disk: Disk<'_>) -> bool {
    write(disk, at, table.entries.get(..table.padded))
}

/// Writes a header with these sectors: its own, the other header's, the entries'.
fn write_header(
    table: &mut Table,
    geometry: &DiskGeometry,
    places: [u64; 3],
    disk: Disk<'_>,
) -> bool {
    let [mine, ..] = places;
    let header = &mut table.header;
    for (place, value) in [MINE, OTHER, AT].iter().zip(places) {
        put(header, *place, &value.to_le_bytes());
    }
    put(header, SUM, &[0; 4]);
    let length = u32_at(header, LENGTH).unwrap_or_default() as usize;
    let sum = crc32(&[header.get(..length).unwrap_or_default()]);
    put(header, SUM, &sum.to_le_bytes());
    write(disk, mine, header.get(..geometry.sector))
}
