//! The metadata of `GET /1.0/metrics` (P§4.6), written entry by entry, so that memory does not grow
//! with the number of disks, mounts and interfaces.
//!
//! LXD expects maps keyed by device (the last of equal keys counts), Incus lists with the name in
//! each entry. Where the Go agents report 0 or read another line, mote reports what the servers
//! document; each such place has a comment.

use alloc::vec::Vec;

use crate::flavour::Flavour;
use crate::json::Writer;
use crate::report::proc::Memory;
use crate::report::proc::mounts::{self, Mount, Space};
use crate::report::proc::stat::{Cpu, Disk, Interface};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    Cpu,
    Disk,
    Filesystem,
    Network,
}

pub fn open(json: &mut Writer<'_>, flavour: Flavour, section: Section) {
    json.key(match section {
        Section::Cpu => "cpu_seconds_total",
        Section::Disk => "disk",
        Section::Filesystem => "filesystem",
        Section::Network => "network",
    });
    if is_list(flavour) { json.begin_array() } else { json.begin_object() }
}

pub fn close(json: &mut Writer<'_>, flavour: Flavour) {
    if is_list(flavour) { json.end_array() } else { json.end_object() }
}

fn is_list(flavour: Flavour) -> bool {
    match flavour {
        Flavour::Incus => true,
        Flavour::Lxd | Flavour::LxdOld => false,
    }
}

/// Begins an entry of a section; the caller writes its values and closes the object.
fn entry(json: &mut Writer<'_>, flavour: Flavour, label: &'static str, name: &[u8]) {
    if is_list(flavour) {
        json.begin_object();
        json.key(label);
        json.text(name);
    } else {
        json.name(name);
        json.begin_object();
    }
}

pub fn cpu(json: &mut Writer<'_>, flavour: Flavour, cpu: &Cpu<'_>) {
    const NAMES: &str = "cpu_seconds_user cpu_seconds_nice cpu_seconds_system cpu_seconds_idle \
        cpu_seconds_iowait cpu_seconds_irq cpu_seconds_softirq cpu_seconds_steal";
    entry(json, flavour, "cpu", cpu.name);
    for (name, ticks) in NAMES.split(' ').zip(cpu.ticks) {
        json.key(name);
        json.hundredths(ticks);
    }
    json.end_object();
}

pub fn disk(json: &mut Writer<'_>, flavour: Flavour, disk: &Disk<'_>) {
    entry(json, flavour, "device", disk.name);
    json.numbers(&[
        ("disk_read_bytes", disk.read),
        ("disk_reads_completed", disk.reads),
        ("disk_written_bytes", disk.written),
        ("disk_writes_completed", disk.writes),
    ]);
    json.end_object();
}

/// Writes a mount's entry; `device` and `point` must be unescaped.
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
        None => json.shown(format_args!("{:#x}", space.magic)),
    }
    let bytes = |blocks: u64| blocks.saturating_mul(space.block);
    json.numbers(&[
        ("filesystem_avail_bytes", bytes(space.available)),
        ("filesystem_free_bytes", bytes(space.free)),
        ("filesystem_size_bytes", bytes(space.blocks)),
    ]);
    json.end_object();
}

/// Writes an interface's entry. The Go agents leave drops and errors at 0.
pub fn network(json: &mut Writer<'_>, flavour: Flavour, interface: &Interface<'_>) {
    let (received, sent) = (&interface.counters.received, &interface.counters.sent);
    entry(json, flavour, "device", interface.name);
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
    json.end_object();
}

pub fn memory(json: &mut Writer<'_>, flavour: Flavour, memory: Memory<'_>, oom_kills: u64) {
    // LXD reads `memory_sreclaimable_bytes` since 6.9; other servers ignore unknown members.
    const SAME: &str = "memory_active_anon_bytes Active(anon)\n\
        memory_active_bytes Active\n\
        memory_active_file_bytes Active(file)\n\
        memory_cached_bytes Cached\n\
        memory_dirty_bytes Dirty\n\
        memory_inactive_anon_bytes Inactive(anon)\n\
        memory_inactive_bytes Inactive\n\
        memory_inactive_file_bytes Inactive(file)\n\
        memory_mapped_bytes Mapped\n\
        memory_mem_available_bytes MemAvailable\n\
        memory_mem_free_bytes MemFree\n\
        memory_mem_total_bytes MemTotal\n\
        memory_shmem_bytes Shmem\n\
        memory_sreclaimable_bytes SReclaimable\n\
        memory_unevictable_bytes Unevictable\n\
        memory_writeback_bytes Writeback";
    let get = |key| memory.get(key);
    // The names say bytes; the Go agents report pages.
    let huge = |key| get(key).saturating_mul(get("Hugepagesize"));
    let rss = match flavour {
        // The same value as LXD's agent; LXD's UI shows it.
        Flavour::Lxd | Flavour::LxdOld => get("MemTotal").saturating_sub(get("MemAvailable")),
        // Documented as "anonymous and swap cache memory"; Incus' agent reports 0.
        Flavour::Incus => get("AnonPages").saturating_add(get("SwapCached")),
    };
    json.begin_member("memory");
    for (name, key) in SAME.lines().filter_map(|line| line.split_once(' ')) {
        json.count(name, get(key));
    }
    json.numbers(&[
        ("memory_hugepages_free_bytes", huge("HugePages_Free")),
        ("memory_hugepages_total_bytes", huge("HugePages_Total")),
        ("memory_rss_bytes", rss),
        // Both servers document "used swap memory", as containers report it; the Go agents report
        // SwapCached, memory that is in swap and in RAM at once.
        ("memory_swap_bytes", memory.swap()),
        // Since boot, as the host's name for it (..._total) implies; the Go agents report 0.
        ("memory_oom_kills", oom_kills),
    ]);
    json.end_object();
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of online processors; 0 in the Go agents.
    pub cpus: u64,
    pub processes: u64,
    /// Boot time, in seconds since 1970.
    pub boot: u64,
    /// Current time, in seconds since 1970.
    pub now: u64,
}

/// Writes the totals. Only Incus accepts the two times.
pub fn totals(json: &mut Writer<'_>, flavour: Flavour, totals: &Totals) {
    json.numbers(&[("cpus", totals.cpus), ("procs_total", totals.processes)]);
    if is_list(flavour) {
        json.numbers(&[("boot_time_seconds", totals.boot), ("time_seconds", totals.now)]);
    }
}

/// The mounts to report, in the order of `/proc/mounts`.
#[derive(Debug)]
pub struct Filesystems {
    flavour: Flavour,
    /// Device of the last mount at `/`.
    root: Option<Vec<u8>>,
}

impl Filesystems {
    pub fn new(flavour: Flavour) -> Self {
        Self { flavour, root: None }
    }

    /// Returns device and mount point, unescaped; `None` if the mount is not reported.
    pub fn wanted(&mut self, mount: &Mount<'_>) -> Option<(Vec<u8>, Vec<u8>)> {
        let point: Vec<u8> = mounts::unescape(mount.point).collect();
        if !mount.counts(self.flavour, &point) {
            return None;
        }
        let device: Vec<u8> = mounts::unescape(mount.device).collect();
        if point == b"/" {
            self.root = Some(device.clone());
        } else if !is_list(self.flavour) && self.root.as_ref() == Some(&device) {
            // Omit a bind mount, whose entry would replace that of the root.
            return None;
        }
        Some((device, point))
    }
}
