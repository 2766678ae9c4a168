//! The table with GUIDs (UEFI 2.10, chapter 5): a header in the second sector and the entries that it points to, and
//! a copy of both at the disk's end.
//!
//! Linux looks at the copy only if the first header is whole, or if it is told to (`block/partitions/efi.c`). So the
//! first header must be whole after each write, and the entries that it points to are never written: it points to
//! those of the new copy while its own are.
//!
//! The entry of DOS that protects the table ends before the partition until the file system has grown, too: whether that was cut
//! off, nothing else tells from a file system that somebody has made smaller than its partition.

use super::bytes::{chunk, crc32, put, u32_at, u64_at};
use super::geometry::{Disk, DiskGeometry, ENTRIES, Last, MOST, Step, Table, write};
use super::mbr;

/// The first header, and the first entries where these are of no use.
const HEADER: u64 = 1;
const HOME: u64 = 2;

/// Places in a header.
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
/// Length of a header at least.
const LEAST: usize = 92;

/// Whether these bytes are a header that is whole and at its place.
fn is_header(sector: &[u8], place: u64) -> bool {
    let is_whole = || {
        let length = u32_at(sector, LENGTH)? as usize;
        let bytes = sector.get(..length).filter(|_| length >= LEAST)?;
        let sum = crc32(&[bytes.get(..SUM)?, &[0; 4], bytes.get(SUM + 4..)?]);
        Some(u32_at(bytes, SUM)? == sum && u64_at(bytes, MINE)? == place)
    };
    sector.starts_with(b"EFI PART") && is_whole() == Some(true)
}

/// Reads it; `None` if its first half is not whole, or there is no partition.
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
    // Sectors of the entries; the last one before a copy of them and of the header.
    let own = (table.padded / geometry.sector) as u64;
    let has_grown = other != final_one;
    let most = if has_grown { final_one.checked_sub(own + 1)? } else { highest };
    // What lies between, its author has put there.
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
    // What its header points to would be written.
    let is_stuck = is_away && has_grown && !last.has_room(geometry);
    if !fits || is_stuck {
        return None;
    }
    // A copy that is not at the end was left there when the disk grew, unless the host has moved it.
    let is_moved = !has_grown && last.has_room(geometry);
    let left = if is_moved { copy_behind(table, geometry, last.end, disk) } else { None };
    last.is_torn = is_away || mbr::is_short(table, last.end);
    last.was_at_end = has_grown && last.end + geometry.near() >= highest || left.is_some();
    last.is_reserved = is_reserved || left == Some(true);
    Some(last)
}

/// Where the first entries are to be, in a header that points there and has this last usable block.
fn home(at: u64, highest: u64) -> u64 {
    if at > highest { HOME } else { at }
}

/// The copy of the header that was left right behind that sector, where the disk ended before the host moved the copy to its
/// new end: whether something is kept before its entries, which the host's header no longer says.
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
    // The disk's last piece has the copy that counts.
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

/// Writes it. After each sector the first header, and what it points to, is whole: the old one up to its first
/// write, then the new one.
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
    // The host may have made it as long as the disk.
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

/// Writes a header with these places: its own, the other one's, the entries'.
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
