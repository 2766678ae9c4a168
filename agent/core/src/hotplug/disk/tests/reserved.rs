//! Space after the last usable block that is reserved for something else.

use super::*;

/// Sets a header's checksum and writes it.
fn put_header(sim: &mut Sim, place: u64, mut header: Vec<u8>) {
    put(&mut header, 16, &[0; 4]);
    let sum = crc32(&[&header[..92]]);
    put(&mut header, 16, &sum.to_le_bytes());
    sim.put(place, &header);
}

/// Creates a disk with a partition that ends `before` sectors before its last usable block, after
/// which `room` sectors are reserved.
fn reserved(sector: usize, room: u64, before: u64) -> Sim {
    let own = (128 * 128 / sector) as u64;
    let usable = OLD - own - 2 - room;
    let mut sim = gpt(sector, OLD, &[(0, entry(&LINUX, 2048, usable - before))]);
    for place in [1, OLD - 1] {
        let mut header = sim.get(place, sector);
        put(&mut header, 48, &usable.to_le_bytes());
        put_header(&mut sim, place, header);
    }
    for place in usable + 1..OLD - own - 1 {
        sim.put(place, &vec![0xa5; sector]);
    }
    sim
}

#[test]
fn keeps_reserved_space_wherever_the_copy_is() {
    for sector in [512, 4096] {
        for room in [1, 64] {
            for before in [0, 100] {
                let sim = reserved(sector, room, before);
                // The host's header no longer shows the reserved space.
                let entries = [(0, sim.get(2, 128 * 128)[..128].to_vec())];
                for mut sim in [moved(&sim, NEW, &entries), sim.clone().larger(NEW)] {
                    for seen in [0, OLD] {
                        let last = sim.read(seen).unwrap().1;
                        assert!(last.is_reserved && last.was_at_end, "{sector} {room} {last:?}");
                    }
                }
                // If the disk has not grown, the partition has no space.
                let mut sim = sim;
                let (_, last) = sim.read(0).unwrap();
                assert!(last.is_reserved && !last.has_room(&sim.geometry(0)) && !last.is_torn);
            }
        }
    }
    // Too much space to find the copy, so the partition did not end at the disk's end.
    let sim = reserved(512, 4096, 0);
    let entries = [(0, sim.get(2, 128 * 128)[..128].to_vec())];
    assert!(!moved(&sim, NEW, &entries).read(OLD).unwrap().1.was_at_end);
}

#[test]
fn reserves_nothing_for_other_entry_sizes_or_counts() {
    // Fewer entries, whose copy directly follows the last usable block; or larger entries.
    for (count, size, own) in [(56u32, 128u32, 14), (4, 128, 1), (64, 256, 32), (32, 512, 32)] {
        let mut sim = gpt(512, OLD, &[]);
        let usable = OLD - own - 2;
        let mut all = vec![0; 512 * own as usize];
        all[size as usize..][..128].copy_from_slice(&entry(&LINUX, 2048, usable));
        for (place, at) in [(1, 2), (OLD - 1, OLD - 1 - own)] {
            let mut header = sim.get(place, 512);
            for (place, value) in [(80, count), (84, size)] {
                put(&mut header, place, &value.to_le_bytes());
            }
            put(&mut header, 48, &usable.to_le_bytes());
            put(&mut header, 72, &at.to_le_bytes());
            put(&mut header, 88, &crc32(&[&all[..(count * size) as usize]]).to_le_bytes());
            put_header(&mut sim, place, header);
            sim.put(at, &all);
        }
        let mut sim = sim.larger(NEW);
        let (_, last) = sim.read(0).unwrap();
        assert_eq!((last.number, last.end, last.most), (2, usable, NEW - own - 2), "{count}");
        assert!(last.was_at_end && !last.is_reserved);
        sim.grow(0);
        sim.settle();
        let (_, last) = sim.read(0).unwrap();
        assert_eq!((last.end, last.is_torn), (NEW - own - 2, false));
        assert!(!last.is_reserved && !last.has_room(&sim.geometry(0)));
    }
}

#[test]
fn a_backup_table_beyond_the_disk_reveals_truncation() {
    let mut sim = gpt(512, OLD, &[(0, entry(&LINUX, 2048, 4095))]);
    sim.sectors = OLD - 1;
    assert!(sim.read(0).is_none());
}
