//! The metadata of `GET /1.0/metrics` (P§4.6), written piece by piece: nothing is held, so that the
//! number of disks, mounts and interfaces costs no memory.
//!
//! LXD takes maps keyed by device (the last of two with one key counts), Incus lists with the name
//! inside. Values that the originals leave at 0, or take from the wrong line, are those that the
//! servers' documentation of the metric describes; each is commented where it is written.

use alloc::vec::Vec;

use crate::flavour::Flavour;
use crate::json::Writer;
use crate::netlink::Link;
use crate::proc::memory::Memory;
use crate::proc::mounts::{self, Mount, Space};
use crate::proc::stat::{Cpu, Disk};

/// A part with one entry a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Processors.
    Cpu,
    /// Block devices.
    Disk,
    /// Mounts.
    Filesystem,
    /// Interfaces.
    Network,
}

/// Begins a section.
pub fn open(json: &mut Writer<'_>, flavour: Flavour, section: Section) {
    json.key(match section {
        Section::Cpu => "cpu_seconds_total",
        Section::Disk => "disk",
        Section::Filesystem => "filesystem",
        Section::Network => "network",
    });
    json.open(if is_list(flavour) { '[' } else { '{' });
}

/// Ends it.
pub fn close(json: &mut Writer<'_>, flavour: Flavour) {
    json.close(if is_list(flavour) { ']' } else { '}' });
}

fn is_list(flavour: Flavour) -> bool {
    match flavour {
        Flavour::Incus => true,
        Flavour::Lxd | Flavour::LxdOld => false,
    }
}

/// Begins an entry of a section.
fn entry(json: &mut Writer<'_>, flavour: Flavour, label: &str, name: &[u8]) {
    if is_list(flavour) {
        json.open('{');
        json.key(label);
        json.text(name);
    } else {
        json.name(name);
        json.open('{');
    }
}

/// Writes a processor's entry.
pub fn cpu(json: &mut Writer<'_>, flavour: Flavour, cpu: &Cpu<'_>) {
    const NAMES: [&str; 8] = [
        "cpu_seconds_user",
        "cpu_seconds_nice",
        "cpu_seconds_system",
        "cpu_seconds_idle",
        "cpu_seconds_iowait",
        "cpu_seconds_irq",
        "cpu_seconds_softirq",
        "cpu_seconds_steal",
    ];
    entry(json, flavour, "cpu", cpu.name);
    for (name, ticks) in NAMES.iter().zip(cpu.ticks) {
        json.key(name);
        json.hundredths(ticks);
    }
    json.close('}');
}

/// Writes a block device's entry.
pub fn disk(json: &mut Writer<'_>, flavour: Flavour, disk: &Disk<'_>) {
    entry(json, flavour, "device", disk.name);
    json.numbers(&[
        ("disk_read_bytes", disk.read),
        ("disk_reads_completed", disk.reads),
        ("disk_written_bytes", disk.written),
        ("disk_writes_completed", disk.writes),
    ]);
    json.close('}');
}

/// Writes a mount's entry; `device` and `point` are unescaped.
pub fn filesystem(
    json: &mut Writer<'_>,
    flavour: Flavour,
    device: &[u8],
    point: &[u8],
    space: &Space,
) {
    entry(json, flavour, "device", device);
    json.key("mountpoint");
    json.text(point);
    json.key("fstype");
    match mounts::kind(space.magic) {
        Some(kind) => json.text(kind.as_bytes()),
        None => json.raw(format_args!("\"{:#x}\"", space.magic)),
    }
    let bytes = |blocks: u64| blocks.saturating_mul(space.block);
    json.numbers(&[
        ("filesystem_avail_bytes", bytes(space.available)),
        ("filesystem_free_bytes", bytes(space.free)),
        ("filesystem_size_bytes", bytes(space.blocks)),
    ]);
    json.close('}');
}

/// Writes an interface's entry. Drops and errors are the kernel's; the originals leave them at 0.
pub fn network(json: &mut Writer<'_>, flavour: Flavour, link: &Link<'_>) {
    let (received, sent) = (&link.counters.received, &link.counters.sent);
    entry(json, flavour, "device", link.name);
    json.numbers(&[
        ("network_receive_bytes", received.bytes),
        ("network_receive_drop", received.dropped),
        ("network_receive_errs", received.errors),
        ("network_receive_packets", received.packets),
        ("network_transmit_bytes", sent.bytes),
        ("network_transmit_drop", sent.dropped),
        ("network_transmit_errs", sent.errors),
        ("network_transmit_packets", sent.packets),
    ]);
    json.close('}');
}

/// Writes the memory section.
pub fn memory(json: &mut Writer<'_>, flavour: Flavour, memory: &Memory, oom_kills: u64) {
    const SAME: [(&str, &str); 16] = [
        ("memory_active_anon_bytes", "Active(anon)"),
        ("memory_active_bytes", "Active"),
        ("memory_active_file_bytes", "Active(file)"),
        ("memory_cached_bytes", "Cached"),
        ("memory_dirty_bytes", "Dirty"),
        ("memory_inactive_anon_bytes", "Inactive(anon)"),
        ("memory_inactive_bytes", "Inactive"),
        ("memory_inactive_file_bytes", "Inactive(file)"),
        ("memory_mapped_bytes", "Mapped"),
        ("memory_mem_available_bytes", "MemAvailable"),
        ("memory_mem_free_bytes", "MemFree"),
        ("memory_mem_total_bytes", "MemTotal"),
        ("memory_shmem_bytes", "Shmem"),
        // Read by LXD since 6.9; other servers pass over what they do not know.
        ("memory_sreclaimable_bytes", "SReclaimable"),
        ("memory_unevictable_bytes", "Unevictable"),
        ("memory_writeback_bytes", "Writeback"),
    ];
    let get = |key| memory.get(key);
    // Called bytes everywhere; the originals give the number of pages.
    let huge = |key| get(key).saturating_mul(get("Hugepagesize"));
    let rss = match flavour {
        // As LXD has it; its UI draws this.
        Flavour::Lxd | Flavour::LxdOld => get("MemTotal").saturating_sub(get("MemAvailable")),
        // "Anonymous and swap cache memory", says the documentation; the original gives 0.
        Flavour::Incus => get("AnonPages").saturating_add(get("SwapCached")),
    };
    json.key("memory");
    json.open('{');
    for (name, key) in SAME {
        json.numbers(&[(name, get(key))]);
    }
    json.numbers(&[
        ("memory_hugepages_free_bytes", huge("HugePages_Free")),
        ("memory_hugepages_total_bytes", huge("HugePages_Total")),
        ("memory_rss_bytes", rss),
        // "Used swap memory", says the documentation of both servers, and containers report that;
        // the originals give what is in memory and in swap at once (SwapCached).
        ("memory_swap_bytes", memory.swap()),
        // Since boot, as the metric's name on the host (..._total) says; 0 in the originals.
        ("memory_oom_kills", oom_kills),
    ]);
    json.close('}');
}

/// What has no section.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Processors in use. The originals say 0.
    pub cpus: u64,
    /// Processes.
    pub processes: u64,
    /// When the kernel started, seconds since 1970.
    pub boot: u64,
    /// The time, seconds since 1970.
    pub now: u64,
}

/// Writes them.
pub fn totals(json: &mut Writer<'_>, flavour: Flavour, totals: &Totals) {
    json.numbers(&[("cpus", totals.cpus), ("procs_total", totals.processes)]);
    if is_list(flavour) {
        json.numbers(&[("boot_time_seconds", totals.boot), ("time_seconds", totals.now)]);
    }
}

/// Whether a mount is to be measured, and what it is called: device, place; unescaped.
#[must_use]
pub fn wanted(flavour: Flavour, line: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let mount = Mount::parse(line)?;
    let point: Vec<u8> = mounts::unescape(mount.point).collect();
    mount.counts(flavour, &point).then(|| (mounts::unescape(mount.device).collect(), point))
}
