#![expect(clippy::cast_possible_truncation, reason = "disks of a few MiB")]

use std::collections::BTreeMap;

use super::geometry::{crc32, put, u32_at, u64_at};
use super::*;

const LINUX: [u8; 16] = [
    0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4,
];

/// A disk that simulates power cuts: it keeps the durable sectors and all later writes.
#[derive(Clone)]
pub(super) struct Sim {
    sector: usize,
    sectors: u64,
    /// The sectors that are not all zeros.
    kept: BTreeMap<u64, Vec<u8>>,
    /// Groups of writes; each group is durable before the next begins.
    groups: Vec<Vec<(u64, Vec<u8>)>>,
}

impl Sim {
    fn new(sector: usize, sectors: u64) -> Self {
        Self { sector, sectors, kept: BTreeMap::new(), groups: vec![vec![]] }
    }

    fn geometry(&self, before: u64) -> DiskGeometry {
        DiskGeometry { sector: self.sector, sectors: self.sectors, before }
    }

    fn step(&mut self, step: Step<'_>) -> bool {
        match step {
            Step::Read(place, into) => {
                if place + (into.len() / self.sector) as u64 > self.sectors {
                    return false;
                }
                for (sector, place) in into.chunks_mut(self.sector).zip(place..) {
                    let written = self.groups.iter().flatten().rev().find(|(at, _)| *at == place);
                    match written.map(|(_, bytes)| bytes).or_else(|| self.kept.get(&place)) {
                        Some(kept) => sector.copy_from_slice(kept),
                        None => sector.fill(0),
                    }
                }
            }
            Step::Write(place, bytes) => {
                assert!(bytes.len() % self.sector == 0 && !bytes.is_empty());
                assert!(place + (bytes.len() / self.sector) as u64 <= self.sectors);
                let sectors = bytes.chunks(self.sector).zip(place..);
                let sectors = sectors.map(|(bytes, place)| (place, bytes.to_vec()));
                self.groups.last_mut().unwrap().extend(sectors);
            }
            Step::Flush => self.groups.push(vec![]),
        }
        true
    }

    fn put(&mut self, place: u64, bytes: &[u8]) {
        for (bytes, place) in bytes.chunks(self.sector).zip(place..) {
            if bytes.iter().all(|byte| *byte == 0) {
                self.kept.remove(&place);
            } else {
                self.kept.insert(place, bytes.to_vec());
            }
        }
    }

    fn get(&self, place: u64, length: usize) -> Vec<u8> {
        let count = (length / self.sector) as u64;
        let sector = |place| self.kept.get(&place).cloned().unwrap_or(vec![0; self.sector]);
        (place..place.saturating_add(count)).flat_map(sector).collect()
    }

    fn larger(mut self, sectors: u64) -> Self {
        self.sectors = sectors;
        self
    }

    fn read(&mut self, before: u64) -> Option<(Table, Last)> {
        let geometry = self.geometry(before);
        let mut table = Table::default();
        let last = table.read(&geometry, &mut |step| self.step(step))?;
        Some((table, last))
    }

    fn grow(&mut self, before: u64) -> Last {
        let (mut table, last) = self.read(before).unwrap();
        let geometry = self.geometry(before);
        assert!(table.grow(&geometry, &last, &mut |step| self.step(step)));
        assert!(table.finish(&geometry, &mut |step| self.step(step)));
        last
    }

    /// Makes all writes durable.
    fn settle(&mut self) {
        for (place, bytes) in core::mem::replace(&mut self.groups, vec![vec![]]).concat() {
            self.put(place, &bytes);
        }
    }

    /// Returns possible states after a power cut: whole groups, and any sectors of the next.
    fn cuts(&self) -> Vec<Sim> {
        let mut all = Vec::new();
        let mut seed = 7u32;
        for whole in 0..self.groups.len() {
            let group = &self.groups[whole];
            for cut in 0..=2 * group.len() + 8 {
                let mut one = self.clone();
                one.groups = vec![vec![]];
                for (place, bytes) in self.groups[..whole].concat() {
                    one.put(place, &bytes);
                }
                for (index, (place, bytes)) in group.iter().enumerate() {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    // Keeps all up to the cut, then a random choice.
                    let is_kept =
                        if cut <= group.len() { index < cut } else { seed >> 16 & 1 == 1 };
                    if is_kept {
                        one.put(*place, bytes);
                    }
                }
                all.push(one);
            }
        }
        all
    }

    /// Returns the last sector of an entry, if the header is valid (Linux, `is_gpt_valid`).
    fn header(&self, place: u64, index: usize) -> Option<u64> {
        let header = &self.get(place, self.sector);
        let final_one = self.geometry(0).sectors - 1;
        let mut bare = header[..92].to_vec();
        bare[16..20].fill(0);
        let number = |at| u64_at(header, at).unwrap();
        let length = 128 * 128;
        let is_whole = header.starts_with(b"EFI PART")
            && u32_at(header, 16) == Some(crc32(&[&bare]))
            && number(24) == place
            && number(40) <= final_one
            && number(48) <= final_one
            && u32_at(header, 88) == Some(crc32(&[&self.get(number(72), length)]));
        is_whole.then(|| u64_at(&self.get(number(72), length), index * 128 + 40).unwrap())
    }
}

fn entry(kind: &[u8; 16], first: u64, last: u64) -> Vec<u8> {
    let mut entry = vec![0; 128];
    entry[..16].copy_from_slice(kind);
    entry[16..32].fill(7);
    put(&mut entry, 32, &first.to_le_bytes());
    put(&mut entry, 40, &last.to_le_bytes());
    entry
}

/// Creates a disk with a GPT with these entries by index.
fn gpt(sector: usize, sectors: u64, entries: &[(usize, Vec<u8>)]) -> Sim {
    let mut sim = Sim::new(sector, sectors);
    let mut mbr = vec![0; sector];
    mbr[..3].copy_from_slice(b"\xeb\x63\x90");
    mbr[450] = 0xee;
    put(&mut mbr, 454, &1u32.to_le_bytes());
    put(&mut mbr, 458, &(sectors as u32 - 1).to_le_bytes());
    mbr[510..512].copy_from_slice(&[0x55, 0xaa]);
    sim.put(0, &mbr);
    let mut all = vec![0; 128 * 128];
    for (index, entry) in entries {
        all[index * 128..][..128].copy_from_slice(entry);
    }
    let own = (all.len() / sector) as u64;
    for (mine, other, at) in [(1, sectors - 1, 2), (sectors - 1, 1, sectors - 1 - own)] {
        let mut header = vec![0; sector];
        header[..8].copy_from_slice(b"EFI PART");
        for (place, value) in [(8, 0x1_0000u32), (12, 92), (80, 128), (84, 128)] {
            put(&mut header, place, &value.to_le_bytes());
        }
        let places = [(24, mine), (32, other), (40, 2 + own), (48, sectors - own - 2), (72, at)];
        places.iter().for_each(|(place, value)| put(&mut header, *place, &value.to_le_bytes()));
        header[56..72].fill(9);
        put(&mut header, 88, &crc32(&[&all]).to_le_bytes());
        let sum = crc32(&[&header[..92]]);
        put(&mut header, 16, &sum.to_le_bytes());
        sim.put(mine, &header);
        sim.put(at, &all);
    }
    sim
}

/// Moves the copy to the new end and leaves the old one, as LXD and Incus do (`sgdisk
/// --move-second-header`).
fn moved(sim: &Sim, sectors: u64, entries: &[(usize, Vec<u8>)]) -> Sim {
    let mut larger = sim.clone().larger(sectors);
    let new = gpt(sim.sector, sectors, entries);
    let old = sim.geometry(0).sectors;
    for place in (0..2).chain(old..sectors) {
        let bytes = new.get(place, sim.sector);
        larger.put(place, &bytes);
    }
    larger
}

fn mbr(sectors: u64, entries: &[(u8, u32, u32)]) -> Sim {
    let mut sim = Sim::new(512, sectors);
    let mut sector = [0; 512];
    for (index, (kind, first, count)) in entries.iter().enumerate() {
        let at = 446 + 16 * index;
        sector[at + 4] = *kind;
        put(&mut sector, at + 8, &first.to_le_bytes());
        put(&mut sector, at + 12, &count.to_le_bytes());
    }
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    sim.put(0, &sector);
    sim
}

const OLD: u64 = 20_480;
const NEW: u64 = 40_960;

fn usual() -> [(usize, Vec<u8>); 2] {
    [(0, entry(&LINUX, 8192, OLD - 34)), (14, entry(&[3; 16], 2048, 8191))]
}

#[test]
fn a_power_cut_at_any_sector_leaves_a_valid_table_that_grows_later() {
    assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    for host_moved in [false, true] {
        let before = gpt(512, OLD, &usual());
        let mut sim = if host_moved { moved(&before, NEW, &usual()) } else { before.larger(NEW) };
        let last = sim.grow(0);
        let ends = Last { number: 1, first: 8192, end: OLD - 34, ..Last::default() };
        assert_eq!(last, Last { most: NEW - 34, was_at_end: true, ..ends });
        let cuts = sim.cuts();
        assert!(cuts.len() > 150);
        for (index, mut cut) in cuts.into_iter().enumerate() {
            let has = cut.header(1, 0);
            assert!(has == Some(OLD - 34) || has == Some(NEW - 34), "{has:?}");
            // The next start completes the growth.
            let (_, last) = cut.read(0).unwrap();
            assert!(last.was_at_end || last.end == NEW - 34);
            // Whether the file system has grown is known only at the end.
            let is_finished = u32_at(&cut.get(0, 512), 458) == Some(NEW as u32 - 1);
            assert!(last.end < NEW - 34 || last.is_torn != is_finished);
            if last.is_torn || last.end < NEW - 34 {
                cut.grow(0);
                // Interrupted again.
                if index % 29 == 3 {
                    let again = cut.cuts();
                    assert!(again.iter().step_by(7).all(|cut| cut.header(1, 0).is_some()));
                }
                cut.settle();
            }
            let same = [cut.header(1, 0), cut.header(NEW - 1, 0)];
            assert_eq!(same, [Some(NEW - 34); 2]);
            let (_, last) = cut.read(0).unwrap();
            assert!(!last.is_torn && !last.has_room(&cut.geometry(0)));
            // The result equals a newly created table.
            let all = gpt(512, NEW, &[(0, entry(&LINUX, 8192, NEW - 34)), usual()[1].clone()]);
            for (place, count) in [(1, 33), (NEW - 33, 33)] {
                assert_eq!(cut.get(place, count * 512), all.get(place, count * 512));
            }
            assert!(cut.get(0, 512).starts_with(b"\xeb\x63\x90"));
            assert_eq!(u32_at(&cut.get(0, 512), 458), Some(NEW as u32 - 1));
        }
    }
}

#[test]
fn grows_disks_with_4096_byte_sectors() {
    let entries = [(2, entry(&LINUX, 256, 2554))];
    let mut sim = gpt(4096, 2560, &entries).larger(5120);
    let last = sim.grow(2560);
    assert_eq!((last.number, last.most), (3, 5120 - 6));
    sim.settle();
    assert_eq!([sim.header(1, 2), sim.header(5119, 2)], [Some(5114); 2]);
}

#[test]
fn detects_whether_the_partition_ended_with_the_disk() {
    let end = |last, kind: &[u8; 16]| [(0, entry(kind, 2048, last))];
    let read = |sim: Sim, before| sim.larger(NEW).read(before).unwrap().1;
    // The partition's end is aligned to a MiB.
    assert!(read(gpt(512, OLD, &end(OLD - 2049, &LINUX)), 0).was_at_end);
    for (before, last) in [(0, OLD - 2083), (OLD, OLD - 2083), (0, 4095)] {
        let last = read(gpt(512, OLD, &end(last, &LINUX)), before);
        assert!(!last.was_at_end);
    }
    // The host has moved the copy, and nothing shows where it was.
    let away = end(4095, &LINUX);
    let mut sim = moved(&gpt(512, OLD, &away), NEW, &away);
    assert!(!sim.read(0).unwrap().1.was_at_end);
    // The disk has the copy of a previous table.
    let whole = end(OLD - 34, &LINUX);
    let mut sim = moved(&gpt(512, OLD, &whole), NEW, &whole);
    assert!(sim.read(0).unwrap().1.was_at_end);
    let old = sim.get(OLD - 1, 512);
    sim.put(OLD - 1, &[0; 512]);
    assert!(!sim.read(0).unwrap().1.was_at_end);
    let mut other = old;
    other[60] ^= 1;
    sim.put(OLD - 1, &other);
    assert!(!sim.read(0).unwrap().1.was_at_end);
}

#[test]
fn does_not_change_an_incomplete_table() {
    for (place, at) in [(1, 0), (1, 24), (1, 60), (1, 88), (3, 511), (0, 510)] {
        let mut sim = gpt(512, OLD, &usual()).larger(NEW);
        let mut sector = sim.get(place, 512);
        sector[at] ^= 1;
        sim.put(place, &sector);
        assert!(sim.read(OLD).is_none(), "{place} {at}");
    }
    assert!(gpt(512, OLD, &[]).larger(NEW).read(OLD).is_none());
    assert!(Sim::new(512, OLD).read(OLD).is_none());
    // The disk has shrunk.
    let mut sim = gpt(512, NEW, &usual());
    sim.sectors = OLD;
    assert!(sim.read(NEW).is_none());
}

#[test]
fn grows_the_last_primary_dos_partition_by_one_sector() {
    let mut sim = mbr(OLD, &[(0x83, 2048, 4096), (0x83, 6144, OLD as u32 - 6144)]).larger(NEW);
    let last = sim.grow(OLD);
    assert_eq!((last.number, last.end, last.most), (2, OLD - 1, NEW - 1));
    assert!(last.was_at_end && !last.is_torn);
    assert_eq!(sim.groups.concat().len(), 1);
    sim.settle();
    let last = sim.read(OLD).unwrap().1;
    assert_eq!((last.end, last.has_room(&sim.geometry(OLD))), (NEW - 1, false));
    // The previous size is unknown.
    let mut unknown = mbr(OLD, &[(0x83, 2048, OLD as u32 - 2048)]).larger(NEW);
    assert!(!unknown.read(0).unwrap().1.was_at_end);
    // A partition that ends beyond the disk; no partition; a FAT boot sector.
    assert!(mbr(OLD, &[(0x83, 2048, OLD as u32)]).read(OLD).is_none());
    assert!(mbr(OLD, &[]).read(OLD).is_none());
    let mut sim = mbr(OLD, &[(0x83, 2048, 4096)]);
    sim.kept.get_mut(&0).unwrap()[446] = 0x20;
    assert!(sim.read(OLD).is_none());
}

#[test]
fn limits_a_dos_partition_to_32_bits() {
    let geometry = DiskGeometry { sector: 512, sectors: 1 << 33, before: OLD };
    let mut sim = mbr(OLD, &[(0x83, 2048, OLD as u32 - 2048)]);
    let mut table = Table::default();
    let last = table.read(&geometry, &mut |step| sim.step(step)).unwrap();
    assert!(table.grow(&geometry, &last, &mut |step| sim.step(step)));
    sim.settle();
    assert_eq!(u32_at(&sim.get(0, 512), 458), Some(u32::MAX));
}

#[test]
fn stops_when_the_disk_fails() {
    let mut sim = gpt(512, OLD, &usual()).larger(NEW);
    let (mut table, last) = sim.read(0).unwrap();
    let geometry = sim.geometry(0);
    let mut left = 3;
    let done = table.grow(&geometry, &last, &mut |_| {
        left -= 1;
        left > 0
    });
    assert!(!done && left == 0);
}

#[test]
fn extends_the_protective_entry_last_and_never_shortens_it() {
    // Type of another entry, length of the protective entry, and its expected length.
    for (kind, length, expected) in
        [(0, NEW + 9, NEW + 9), (0, 4, NEW - 1), (0, OLD, NEW - 1), (0x83, OLD, OLD)]
    {
        let mut sim = gpt(512, OLD, &usual()).larger(NEW);
        sim.grow(0);
        sim.settle();
        let (mut table, last) = sim.read(0).unwrap();
        assert!(!last.is_torn);
        let mut first = sim.get(0, 512);
        first[466] = kind;
        put(&mut first, 458, &(length as u32).to_le_bytes());
        sim.put(0, &first);
        assert_eq!(sim.read(0).unwrap().1.is_torn, kind == 0 && length < NEW);
        assert!(table.finish(&sim.geometry(0), &mut |step| sim.step(step)));
        sim.settle();
        assert_eq!(u32_at(&sim.get(0, 512), 458), Some(expected as u32));
    }
}

mod reserved;
