//! `state`: the agent's report on its instance, decoded as strictly as hosts decode it (P§4.5).
//! Missing and null values are ignored; values of another type are refused.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use chrono::DateTime;
use indicatif::HumanBytes;
use serde::Deserialize;
use serde_json::Value;

use crate::common::printable;
use crate::instance::{Flavour, Instance};

/// `api.InstanceState`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    status: Option<String>,
    status_code: Option<i64>,
    disk: Option<BTreeMap<String, Value>>,
    memory: Option<Memory>,
    network: Option<BTreeMap<String, Network>>,
    pid: Option<i64>,
    processes: Option<i64>,
    cpu: Option<Cpu>,
    started_at: Option<String>,
    os_info: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
struct Memory {
    usage: Option<i64>,
    usage_peak: Option<i64>,
    total: Option<i64>,
    swap_usage: Option<i64>,
    swap_usage_peak: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
struct Cpu {
    usage: Option<i64>,
    allocated_time: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
struct Network {
    addresses: Option<Vec<Address>>,
    counters: Option<BTreeMap<String, i64>>,
    hwaddr: Option<String>,
    host_name: Option<String>,
    mtu: Option<i64>,
    state: Option<String>,
    r#type: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct Address {
    family: Option<String>,
    address: Option<String>,
    netmask: Option<String>,
    scope: Option<String>,
}

/// Formats the state for people. A report that a host would not decode is an error.
pub fn readable(instance: &Instance, metadata: &Value) -> Result<String> {
    objects(metadata)?;
    let state = State::deserialize(metadata).context("not an instance's state")?;
    let processes = state.processes.unwrap_or(0);
    if processes < 1 {
        // Hosts use this number to decide whether there is an agent (P§4.5).
        bail!("processes is {processes}: users wait for more than 0");
    }
    if instance.flavour == Flavour::Incus && state.pid != Some(1) {
        bail!("pid is {:?}, not 1", state.pid);
    }
    if let Some(started_at) = &state.started_at
        && DateTime::parse_from_rfc3339(started_at).is_err()
    {
        bail!("started_at is {started_at}, not RFC 3339");
    }
    let (cpu, memory) = (state.cpu.unwrap_or_default(), state.memory.unwrap_or_default());
    let mut text = format!("processes  {processes}\n");
    let mut row = |what: &str, shown: String| {
        let _never = writeln!(text, "{what:<10} {shown}");
    };
    // Agents leave this to the host.
    if let Some(status) = state.status.filter(|status| !status.is_empty()) {
        row("in its words", printable::text(&status));
    }
    if let Some(usage) = known(cpu.usage) {
        row("cpu time", printable::duration(Duration::from_nanos(usage)));
    }
    if let Some(allocated) = known(cpu.allocated_time) {
        row(
            "cpu limit",
            format!("{} per second", printable::duration(Duration::from_nanos(allocated))),
        );
    }
    row("memory", used(memory.usage, memory.total, memory.usage_peak));
    row("swap", used(memory.swap_usage, None, memory.swap_usage_peak));
    for (key, value) in state.os_info.unwrap_or_default() {
        row("os", format!("{}: {}", printable::text(&key), printable::text(&value)));
    }
    for (name, network) in state.network.unwrap_or_default() {
        show(&mut text, &name, network)?;
    }
    Ok(text)
}

/// Returns a known number: agents send 0 for unknown ones.
fn known(number: Option<i64>) -> Option<u64> {
    u64::try_from(number?).ok().filter(|number| *number > 0)
}

fn used(usage: Option<i64>, total: Option<i64>, peak: Option<i64>) -> String {
    let Some(usage) = known(usage) else { return "none in use".to_owned() };
    let of = known(total).map(|total| format!(" of {}", HumanBytes(total)));
    let peak = known(peak).map(|peak| format!(", at most {}", HumanBytes(peak)));
    format!("{}{}{}", HumanBytes(usage), of.unwrap_or_default(), peak.unwrap_or_default())
}

/// Refuses lists where objects are expected. serde accepts them, Go does not.
fn objects(metadata: &Value) -> Result<()> {
    let mut all = vec![metadata, &metadata["memory"], &metadata["cpu"]];
    for network in metadata["network"].as_object().into_iter().flat_map(|all| all.values()) {
        all.push(network);
        all.extend(network["addresses"].as_array().into_iter().flatten());
    }
    match all.into_iter().find(|value| !value.is_object() && !value.is_null()) {
        Some(wrong) => bail!("{wrong} is not an object"),
        None => Ok(()),
    }
}

fn show(text: &mut String, name: &str, network: Network) -> Result<()> {
    let word = |word: Option<String>| {
        word.filter(|word| !word.is_empty()).map_or("-".into(), |word| printable::text(&word))
    };
    let mut about = vec![word(network.r#type), word(network.state)];
    about.extend(known(network.mtu).map(|mtu| format!("mtu {mtu}")));
    for (what, text) in [("hwaddr", network.hwaddr), ("on the host", network.host_name)] {
        about.extend(
            text.filter(|text| !text.is_empty())
                .map(|text| format!("{what} {}", printable::text(&text))),
        );
    }
    let _never = writeln!(text, "network    {}: {}", printable::text(name), about.join(", "));
    for address in network.addresses.unwrap_or_default() {
        let netmask = word(address.netmask);
        if netmask.parse::<u8>().is_err() {
            bail!("{name}: netmask {netmask} is not a prefix length");
        }
        let (address, family, scope) =
            (word(address.address), word(address.family), word(address.scope));
        let _never = writeln!(text, "             {family} {address}/{netmask} {scope}");
    }
    let counters = network.counters.unwrap_or_default();
    let count =
        |key: &str| counters.get(key).and_then(|count| u64::try_from(*count).ok()).unwrap_or(0);
    for (what, way) in [("received", "inbound"), ("sent", "outbound")] {
        let _never = writeln!(
            text,
            "             {what} {} in {} packets, {} errors, {} dropped",
            HumanBytes(count(&format!("bytes_{what}"))),
            count(&format!("packets_{what}")),
            count(&format!("errors_{what}")),
            count(&format!("packets_dropped_{way}")),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rejects_a_state_without_processes_or_with_invalid_types() {
        let lxd = Instance::sample(Flavour::Lxd, &[]);
        let text = readable(&lxd, &json!({"processes": 3, "disk": null, "network": null}));
        assert!(text.unwrap().contains("processes  3\n"));
        let lo = |lo: Value| json!({"processes": 3, "network": {"lo": lo}});
        for wrong in [
            json!({}),
            json!({"processes": 0}),
            json!({"processes": -1}),
            json!({"processes": 1.5}),
            json!({"processes": "3"}),
            json!({"processes": 3, "memory": []}),
            json!({"processes": 3, "cpu": {"usage": 1.5}}),
            json!({"processes": 3, "started_at": "yesterday"}),
            lo(json!([])),
            lo(json!({"mtu": "1500"})),
            lo(json!({"addresses": [[]]})),
            lo(json!({"addresses": [{"netmask": "255.0.0.0"}]})),
            lo(json!({"counters": {"bytes_sent": "0"}})),
        ] {
            assert!(readable(&lxd, &wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn shows_a_state_with_units_and_without_escapes() {
        let said = json!({"processes": 6, "status": "", "status_code": 0, "pid": 0,
            "cpu": {"usage": 1_250_000_000, "allocated_time": 0},
            "memory": {"usage": 35_750_000, "total": 0, "usage_peak": 0, "swap_usage": 0},
            "os_info": {"os": "Debian\u{1b}[2J"},
            "network": {"lo": {"type": "loopback", "state": "up", "mtu": 65536, "hwaddr": "",
                "host_name": "", "counters": {"bytes_received": 2048, "packets_received": 3},
                "addresses": [{"family": "inet", "address": "127.0.0.1", "netmask": "8",
                    "scope": "local"}]}}});
        let shown = readable(&Instance::sample(Flavour::Lxd, &[]), &said).unwrap();
        let expected = "processes  6\ncpu time   1.2 s\nmemory     34.09 MiB\nswap       none in use\n\
            os         os: Debian\\x1b[2J\nnetwork    lo: loopback, up, mtu 65536\n             \
            inet 127.0.0.1/8 local\n             received 2.00 KiB in 3 packets, 0 errors, 0 dropped\n             \
            sent 0 B in 0 packets, 0 errors, 0 dropped\n";
        assert_eq!(shown, expected);
    }

    #[test]
    fn incus_requires_pid_1() {
        let incus = Instance::sample(Flavour::Incus, &[]);
        let time = "0001-01-01T00:00:00Z";
        readable(&incus, &json!({"processes": 3, "pid": 1, "started_at": time})).unwrap();
        assert!(readable(&incus, &json!({"processes": 3, "pid": 7})).is_err());
    }
}
