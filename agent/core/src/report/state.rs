//! The metadata of `GET /1.0/state` (P§4.5; `api.InstanceState`), also sent as a line to Incus
//! hosts without vsock (P§2.4).
//!
//! The host overwrites `status`, `status_code` and `disk`, and fills in `host_name`. Numbers are
//! Go's `int64`; the writer limits them to its range.

use core::fmt::Write;
use core::net::IpAddr;

use heapless::String;

use crate::flavour::Flavour;
use crate::json::Writer;
use crate::netlink::{Address, BROADCAST, LOOPBACK, Link, POINT_TO_POINT, UP};
use crate::report::proc::Memory;

/// Maximum length of a hardware address, in bytes (the kernel's `MAX_ADDR_LEN`).
const HARDWARE: usize = 32;

#[derive(Clone, Copy, Debug)]
pub struct State<'s> {
    pub memory: Memory<'s>,
    /// Peak memory use, in bytes; 0 if no cgroup records it.
    pub memory_peak: u64,
    /// Peak swap use, in bytes; 0 if no cgroup records it.
    pub swap_peak: u64,
    /// Busy time of all processors, in ns, if known.
    pub cpu: Option<u64>,
    pub processes: u64,
    /// System information, which only Incus takes.
    pub system: System<'s>,
}

#[derive(Clone, Copy, Debug)]
pub struct System<'s> {
    /// `NAME` of os-release.
    pub name: &'s [u8],
    /// `VERSION_ID` of os-release.
    pub version: &'s [u8],
    /// `uname -r`.
    pub kernel: &'s [u8],
    /// `uname -n`.
    pub host: &'s [u8],
    /// Full host name, from `/etc/hosts`.
    pub full_host: &'s [u8],
}

/// Writes the document up to its networks; [`network`] for each of them and [`end`] must follow.
pub fn begin(json: &mut Writer<'_>, flavour: Flavour, state: &State<'_>) {
    json.begin_object();
    json.pair("status", "");
    json.count("status_code", 0);
    json.maybe("disk", None);
    json.begin_member("memory");
    let (total, free) = (state.memory.get("MemTotal"), state.memory.get("MemFree"));
    json.numbers(&[
        ("usage", total.saturating_sub(free)),
        ("usage_peak", state.memory_peak),
        ("total", total),
        ("swap_usage", state.memory.swap()),
        ("swap_usage_peak", state.swap_peak),
    ]);
    json.end_object();
    // A host identifies the state on the ring buffer by pid 1 (P§2.3). The host shows a VM as
    // having an agent if there are processes, so the number is at least 1.
    json.numbers(&[("pid", 1), ("processes", state.processes.max(1))]);
    json.begin_member("cpu");
    json.key("usage");
    match state.cpu {
        Some(usage) => json.number(usage),
        None => json.signed(-1),
    }
    if flavour == Flavour::Incus {
        json.count("allocated_time", 0);
    }
    json.end_object();
    if flavour == Flavour::Incus {
        // Go's zero time; the host has the real value.
        json.pair("started_at", "0001-01-01T00:00:00Z");
        system(json, &state.system);
    }
    json.begin_member("network");
}

pub fn end(json: &mut Writer<'_>) {
    json.end_object();
    json.end_object();
}

fn system(json: &mut Writer<'_>, system: &System<'_>) {
    json.begin_member("os_info");
    for (name, text) in [
        ("os", system.name),
        ("os_version", system.version),
        ("kernel_version", system.kernel),
        ("hostname", system.host),
        ("fqdn", system.full_host),
    ] {
        json.key(name);
        json.text(text);
    }
    json.end_object();
}

/// Writes an interface with its addresses among `addresses`.
pub fn network(json: &mut Writer<'_>, link: &Link<'_>, addresses: &[Address]) {
    json.name(link.name);
    json.begin_object();
    json.key("addresses");
    json.begin_array();
    for address in addresses.iter().filter(|address| address.index == link.index) {
        write_address(json, address);
    }
    json.end_array();
    json.begin_member("counters");
    let (received, sent) = (&link.counters.received, &link.counters.sent);
    json.numbers(&[
        ("bytes_received", received.bytes),
        ("bytes_sent", sent.bytes),
        ("packets_received", received.packets),
        ("packets_sent", sent.packets),
        // The Go agents leave these at 0.
        ("errors_received", received.errors),
        ("errors_sent", sent.errors),
        ("packets_dropped_outbound", sent.dropped),
        ("packets_dropped_inbound", received.dropped),
    ]);
    json.end_object();
    json.pair("hwaddr", &hardware(link.hardware));
    json.pair("host_name", "");
    json.count("mtu", link.mtu.into());
    let is = |flag| link.flags & flag != 0;
    json.pair("state", if is(UP) { "up" } else { "down" });
    let kind = if is(BROADCAST) {
        "broadcast"
    } else if is(LOOPBACK) {
        "loopback"
    } else if is(POINT_TO_POINT) {
        "point-to-point"
    } else {
        "unknown"
    };
    json.pair("type", kind);
    json.end_object();
}

fn write_address(json: &mut Writer<'_>, Address { address, prefix, .. }: &Address) {
    json.begin_object();
    json.pair("family", if address.is_ipv4() { "inet" } else { "inet6" });
    json.key("address");
    json.shown(format_args!("{address}"));
    json.key("netmask");
    json.shown(format_args!("{prefix}"));
    json.pair("scope", scope(address));
    json.end_object();
}

fn scope(address: &IpAddr) -> &'static str {
    let link = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    match (address.is_loopback(), link) {
        (true, _) => "local",
        (_, true) => "link",
        _ => "global",
    }
}

/// Formats a hardware address as `00:16:3e:aa:bb:cc`. Loopback (zeroes) and tunnels (an IP address)
/// become empty.
fn hardware(address: &[u8]) -> String<{ 3 * HARDWARE }> {
    let mut out = String::new();
    if matches!(address.len(), 4 | 16) || address.iter().all(|byte| *byte == 0) {
        return out;
    }
    for (at, byte) in address.iter().take(HARDWARE).enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        // There is room for three characters per byte.
        let _fits = write!(out, "{colon}{byte:02x}");
    }
    out
}
