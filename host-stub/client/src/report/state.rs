//! `state`: the agent's report on its instance, decoded as strictly as hosts decode it (P§4.5).
//! Missing and null values are ignored; values of another type are refused.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use chrono::DateTime;
use serde::Deserialize;
use serde_json::Value;

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
#[serde(default)]
struct Memory {
    usage: Option<i64>,
    usage_peak: Option<i64>,
    total: Option<i64>,
    swap_usage: Option<i64>,
    swap_usage_peak: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Cpu {
    usage: Option<i64>,
    allocated_time: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
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
#[serde(default)]
struct Address {
    family: Option<String>,
    address: Option<String>,
    netmask: Option<String>,
    scope: Option<String>,
}

/// Returns an error if a host would not decode the report.
pub fn check(instance: &Instance, metadata: &Value) -> Result<()> {
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
    let networks = state.network.unwrap_or_default().into_values();
    for address in networks.flat_map(|network| network.addresses.unwrap_or_default()) {
        let netmask = address.netmask.unwrap_or_default();
        if netmask.parse::<u8>().is_err() {
            bail!("netmask {netmask} is not a prefix length");
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rejects_a_state_without_processes_or_with_invalid_types() {
        let lxd = Instance::sample(Flavour::Lxd, &[]);
        check(&lxd, &json!({"processes": 3, "disk": null, "network": null})).unwrap();
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
            assert!(check(&lxd, &wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn incus_requires_pid_1() {
        let incus = Instance::sample(Flavour::Incus, &[]);
        let time = "0001-01-01T00:00:00Z";
        check(&incus, &json!({"processes": 3, "pid": 1, "started_at": time})).unwrap();
        assert!(check(&incus, &json!({"processes": 3, "pid": 7})).is_err());
    }
}
