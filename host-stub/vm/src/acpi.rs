//! ACPI tables that list the virtio-mmio devices of QEMU's `microvm,acpi=off`. QEMU's own tables are
//! for hardware-reduced ACPI, with which Linux has no timer under TCG, and Debian's kernels do not read
//! the devices from the command line (`CONFIG_VIRTIO_MMIO_CMDLINE_DEVICES`). Sections of ACPI 6.5.

/// The address of the tables, which the firmware's memory map reserves (ACPI NVS).
pub const ADDRESS: usize = 0xd_0000;
/// The devices of QEMU's `hw/i386/microvm.c`: number, first address, length, first interrupt.
pub const DEVICES: u8 = 8;
const FIRST: u32 = 0xfeb0_0000;
const LENGTH: u32 = 0x200;
const IRQ: u8 = 5;

/// Offsets of the tables.
const RSDT: usize = 0x40;
const FADT: usize = 0x80;
const MADT: usize = 0x100;
const DSDT: usize = 0x180;

/// Returns the tables, the root pointer first (5.2.5).
pub fn tables() -> Vec<u8> {
    let address = |offset: usize| bytes(ADDRESS + offset);
    let mut all = [&b"RSD PTR \0MOTE  \0"[..], &address(RSDT)].concat();
    all[8] = checksum(&all);
    // Without the flag for hardware-reduced ACPI, power management registers are required. There is
    // no device at these ports.
    let mut fadt = [0; 80];
    let fields: [(usize, &[u8]); 7] = [
        (40, &address(DSDT)),
        (46, &13u16.to_le_bytes()),
        (56, &0x600u32.to_le_bytes()),
        (64, &0x604u32.to_le_bytes()),
        (88, &[4, 2]),
        (96, &[0xff, 0x0f, 0xff, 0x0f]),
        (112, &0x71u32.to_le_bytes()),
    ];
    for (offset, field) in fields {
        fadt[offset - 36..][..field.len()].copy_from_slice(field);
    }
    // One processor, the IO-APIC, and the timer's interrupt 0 at its pin 2 (5.2.12).
    let madt = b"\0\0\xe0\xfe\x01\0\0\0\0\x08\0\0\x01\0\0\0\
                 \x01\x0c\0\0\0\0\xc0\xfe\0\0\0\0\x02\x0a\0\0\x02\0\0\0\0\0";
    let devices: Vec<u8> = (0..DEVICES).flat_map(device).collect();
    let dsdt = [&b"\x10"[..], &package(&[b"\\_SB_", &devices])].concat();
    for (offset, table) in [
        (RSDT, table(b"RSDT", 1, &[address(FADT), address(MADT)].concat())),
        (FADT, table(b"FACP", 1, &fadt)),
        (MADT, table(b"APIC", 3, madt)),
        (DSDT, table(b"DSDT", 2, &dsdt)),
    ] {
        all.resize(offset, 0);
        all.extend(table);
    }
    all
}

/// Returns a device with its memory and its interrupt (6.4.3.4, 6.4.3.6).
fn device(number: u8) -> Vec<u8> {
    let base = FIRST + LENGTH * u32::from(number);
    let memory = [&b"\x86\x09\0\x01"[..], &base.to_le_bytes(), &LENGTH.to_le_bytes()].concat();
    let interrupt = [0x89, 6, 0, 3, 1, IRQ + number, 0, 0, 0, 0x79, 0];
    let resources = package(&[b"\x0a\x17", &memory, &interrupt]);
    let names = b"\x08_HID\x0dLNRO0005\0\x08_UID\x0a";
    let content = [b"VR0", &[b'0' + number][..], names, &[number], b"\x08_CRS\x11", &resources];
    [&b"\x5b\x82"[..], &package(&content)].concat()
}

/// Returns the content, preceded by its length (20.2.4).
fn package(content: &[&[u8]]) -> Vec<u8> {
    let content = content.concat();
    let length = content.len() + 2;
    [&[0x40 | bytes(length & 15)[0], bytes(length >> 4)[0]], &content[..]].concat()
}

fn table(name: &[u8; 4], revision: u8, body: &[u8]) -> Vec<u8> {
    const MAKER: &[u8] = b"MOTE  MICROVM \x01\0\0\0MOTE\x01\0\0\0";
    let head = [&name[..], &bytes(36 + body.len()), &[revision, 0], MAKER];
    let mut table = [&head.concat(), body].concat();
    table[9] = checksum(&table);
    table
}

fn bytes(number: usize) -> [u8; 4] {
    let [a, b, c, d, ..] = number.to_le_bytes();
    [a, b, c, d]
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_sub(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_is_where_the_root_points_and_adds_up() {
        let all = tables();
        assert_eq!(checksum(&all[..20]), 0);
        for (offset, name) in [(RSDT, "RSDT"), (FADT, "FACP"), (MADT, "APIC"), (DSDT, "DSDT")] {
            let table = &all[offset..];
            let length = u32::from_le_bytes(table[4..8].try_into().unwrap()) as usize;
            assert_eq!((&table[..4], checksum(&table[..length])), (name.as_bytes(), 0));
        }
        assert_eq!(all.windows(8).filter(|window| window == b"LNRO0005").count(), 8);
    }
}
