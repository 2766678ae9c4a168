//! The metadata of `GET /1.0/state` (P§4.5; `api.InstanceState`), which is also the line that tells
//! an Incus host the state without vsock (P§2.4).
//!
//! The host overwrites `status`, `status_code` and `disk`, and fills in `host_name`. Numbers are
//! Go's `int64`; the writer keeps them in its range.

use core::fmt::Write;
use core::net::IpAddr;

use heapless::String;

use crate::flavour::Flavour;
use crate::json::Writer;
use crate::netlink::{Address, BROADCAST, LOOPBACK, Link, POINT_TO_POINT, UP};
use crate::proc::memory::Memory;

/// Longest hardware address the kernel has (`MAX_ADDR_LEN`), bytes.
const HARDWARE: usize = 32;

/// The document but for its networks.
#[derive(Clone, Copy, Debug)]
pub struct State<'s> {
    /// `/proc/meminfo`.
    pub memory: Memory,
    /// The most memory that was in use, bytes, where a cgroup has noted it: else 0.
    pub memory_peak: u64,
    /// The same for swap.
    pub swap_peak: u64,
    /// Time the processors worked, ns.
    pub cpu: Option<u64>,
    /// Processes.
    pub processes: u64,
    /// For Incus.
    pub system: System<'s>,
}

/// What the guest runs.
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
    /// Its full name, by `/etc/hosts`.
    pub full_host: &'s [u8],
}

/// Begins the document, up to its networks: [`network`] is to be called for each.
pub fn begin(json: &mut Writer<'_>, flavour: Flavour, state: &State<'_>) {
    json.open('{');
    json.key("status");
    json.text(b"");
    json.numbers(&[("status_code", 0)]);
    json.key("disk");
    json.raw(format_args!("null"));
    json.key("memory");
    json.open('{');
    let (total, free) = (state.memory.get("MemTotal"), state.memory.get("MemFree"));
    json.numbers(&[
        ("usage", total.saturating_sub(free)),
        ("usage_peak", state.memory_peak),
        ("total", total),
        ("swap_usage", state.memory.swap()),
        ("swap_usage_peak", state.swap_peak),
    ]);
    json.close('}');
    // 1 is how a host knows the state on the ring buffer for one (P§2.3). The host shows a VM as
    // having an agent when there are processes, so there is always one: us.
    json.numbers(&[("pid", 1), ("processes", state.processes.max(1))]);
    json.key("cpu");
    json.open('{');
    json.key("usage");
    match state.cpu {
        Some(usage) => json.number(usage),
        None => json.raw(format_args!("-1")),
    }
    if flavour == Flavour::Incus {
        json.numbers(&[("allocated_time", 0)]);
    }
    json.close('}');
    if flavour == Flavour::Incus {
        json.key("started_at");
        // Go's zero time; the host knows better.
        json.text(b"0001-01-01T00:00:00Z");
        system(json, &state.system);
    }
    json.key("network");
    json.open('{');
}

/// Ends it.
pub fn end(json: &mut Writer<'_>) {
    json.close('}');
    json.close('}');
}

fn system(json: &mut Writer<'_>, system: &System<'_>) {
    json.key("os_info");
    json.open('{');
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
    json.close('}');
}

/// Writes an interface and those of the addresses that are its.
pub fn network(json: &mut Writer<'_>, link: &Link<'_>, addresses: &[Address]) {
    json.name(link.name);
    json.open('{');
    json.key("addresses");
    json.open('[');
    for address in addresses.iter().filter(|address| address.index == link.index) {
        write_address(json, address);
    }
    json.close(']');
    json.key("counters");
    json.open('{');
    let (received, sent) = (&link.counters.received, &link.counters.sent);
    json.numbers(&[
        ("bytes_received", received.bytes),
        ("bytes_sent", sent.bytes),
        ("packets_received", received.packets),
        ("packets_sent", sent.packets),
        // 0 in the originals.
        ("errors_received", received.errors),
        ("errors_sent", sent.errors),
        ("packets_dropped_outbound", sent.dropped),
        ("packets_dropped_inbound", received.dropped),
    ]);
    json.close('}');
    json.key("hwaddr");
    json.text(hardware(link.hardware).as_bytes());
    json.key("host_name");
    json.text(b"");
    json.numbers(&[("mtu", link.mtu.into())]);
    let is = |flag| link.flags & flag != 0;
    json.key("state");
    json.text(if is(UP) { b"up" } else { b"down" });
    json.key("type");
    json.text(if is(BROADCAST) {
        b"broadcast"
    } else if is(LOOPBACK) {
        b"loopback"
    } else if is(POINT_TO_POINT) {
        b"point-to-point"
    } else {
        b"unknown"
    });
    json.close('}');
}

fn write_address(json: &mut Writer<'_>, Address { address, prefix, .. }: &Address) {
    json.open('{');
    json.key("family");
    json.text(if address.is_ipv4() { b"inet" } else { b"inet6" });
    json.key("address");
    json.raw(format_args!("\"{address}\""));
    json.key("netmask");
    json.raw(format_args!("\"{prefix}\""));
    json.key("scope");
    json.text(scope(address).as_bytes());
    json.close('}');
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

/// `00:16:3e:aa:bb:cc`; empty for the loopback's zeroes, and for a tunnel's, which are IP addresses.
fn hardware(address: &[u8]) -> String<{ 3 * HARDWARE }> {
    let mut out = String::new();
    if matches!(address.len(), 4 | 16) || address.iter().all(|byte| *byte == 0) {
        return out;
    }
    for (at, byte) in address.iter().take(HARDWARE).enumerate() {
        let colon = if at == 0 { "" } else { ":" };
        // Three for each of HARDWARE fit.
        let _fits = write!(out, "{colon}{byte:02x}");
    }
    out
}
