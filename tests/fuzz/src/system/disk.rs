//! Partition tables with arbitrary sectors and valid checksums. Invariants: the last partition
//! stays on the disk and does not shrink, writes touch only the table, and a written table reads
//! back with no room left.

use std::collections::BTreeMap;

use mote_core::hotplug::disk::{DiskGeometry, Step, Table};
use mote_core::hotplug::is_of_disk;

use crate::prelude::*;

const SECTOR: usize = 512;

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// Returns a valid primary header with numbers of the input.
fn header(input: &mut Input<'_>, sectors: u64, entries: &[u8]) -> Vec<u8> {
    let mut header = vec![0; SECTOR];
    let near = |input: &mut Input<'_>| match input.byte() % 4 {
        0 => input.long(),
        1 => sectors.wrapping_sub(u64::from(input.byte())),
        _ => u64::from(input.byte()),
    };
    let mut put =
        |place: usize, bytes: &[u8]| header[place..][..bytes.len()].copy_from_slice(bytes);
    put(0, b"EFI PART");
    put(12, &92u32.to_le_bytes());
    put(24, &1u64.to_le_bytes());
    for place in [32, 40, 48, 72] {
        put(place, &near(input).to_le_bytes());
    }
    if input.byte() & 3 > 0 {
        put(40, &34u64.to_le_bytes());
        put(72, &2u64.to_le_bytes());
    }
    let count = u32::from(input.byte() % 129);
    put(80, &count.to_le_bytes());
    put(84, &128u32.to_le_bytes());
    put(88, &crc32(&entries[..count as usize * 128]).to_le_bytes());
    let sum = crc32(&header[..92]);
    header[16..20].copy_from_slice(&sum.to_le_bytes());
    header
}

fn disk(input: &mut Input<'_>, sectors: u64) -> BTreeMap<u64, Vec<u8>> {
    let mut kept: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut first = vec![0; SECTOR];
    first[510..].copy_from_slice(&[0x55, 0xaa]);
    let is_gpt = input.byte() & 1 == 0;
    for place in (446..510).step_by(16) {
        first[place + 4] = if is_gpt { 0xee } else { input.byte() };
        first[place + 8..][..4].copy_from_slice(&input.short().to_le_bytes());
        first[place + 12..][..4].copy_from_slice(&input.short().to_le_bytes());
    }
    kept.insert(0, first);
    let mut entries = vec![0; 128 * 128];
    for _ in 0..input.byte() % 8 {
        let place = usize::from(input.byte() % 128) * 128;
        entries[place..place + 16].copy_from_slice(&input.array::<16>());
        entries[place + 32..][..8].copy_from_slice(&u64::from(input.short()).to_le_bytes());
        let end = u64::from(input.word() % 100_000);
        entries[place + 40..][..8].copy_from_slice(&end.to_le_bytes());
    }
    kept.insert(1, header(input, sectors, &entries));
    for (sector, place) in entries.chunks(SECTOR).zip(2..) {
        kept.insert(place, sector.to_vec());
    }
    kept
}

pub fn run(data: &[u8]) {
    let _told = is_of_disk(data);
    let mut input = Input(data);
    let sectors = u64::from(input.word() % 100_000) + 1;
    let geometry =
        DiskGeometry { sector: SECTOR, sectors, before: u64::from(input.word() % 100_000) };
    let mut kept = disk(&mut input, sectors);
    let mut written = Vec::new();
    let mut access = |step: Step<'_>| {
        match step {
            Step::Read(place, into) => {
                for (sector, place) in into.chunks_mut(SECTOR).zip(place..) {
                    if place >= sectors {
                        return false;
                    }
                    let there = kept.get(&place).cloned();
                    sector.copy_from_slice(&there.unwrap_or_else(|| vec![0; SECTOR]));
                }
            }
            Step::Write(place, bytes) => {
                for (sector, place) in bytes.chunks(SECTOR).zip(place..) {
                    written.push(place);
                    kept.insert(place, sector.to_vec());
                }
            }
            Step::Flush => {}
        }
        true
    };
    let mut table = Table::default();
    let Some(last) = table.read(&geometry, &mut access) else { return };
    assert!(last.number > 0 && last.first <= last.end && last.end <= last.most);
    assert!(last.most < sectors);
    if !last.has_room(&geometry) || last.is_reserved {
        return;
    }
    assert!(table.grow(&geometry, &last, &mut access));
    assert!(table.finish(&geometry, &mut access));
    let again = Table::default().read(&geometry, &mut access).expect("the table that was written");
    assert_eq!((again.number, again.first, again.end), (last.number, last.first, last.most));
    assert!(!again.has_room(&geometry) && !again.is_torn);
    assert!(written.iter().all(|place| *place < last.first || *place > last.most));
    assert!(written.iter().all(|place| *place < sectors));
}
