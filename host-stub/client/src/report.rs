//! `metrics` and `state`: the agent's reports, decoded as strictly as hosts decode them (P§4.5,
//! P§4.6). LXD expects maps keyed by device, and Incus expects lists whose entries name the device.
//! Each refuses the form that the other expects, and values of another type. Null or missing values
//! are ignored or count as 0.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail};
use chrono::DateTime;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{Flavour, Instance};

/// Suffixes of `cpu_seconds_`.
const MODES: [&str; 8] = ["iowait", "irq", "idle", "nice", "softirq", "steal", "system", "user"];

const DISK: &str = "read_bytes reads_completed written_bytes writes_completed";
const FILESYSTEM: &str = "avail_bytes free_bytes size_bytes";
const NETWORK: &str = "receive_bytes receive_drop receive_errs receive_packets transmit_bytes \
                       transmit_drop transmit_errs transmit_packets";
/// Sections for devices: name, metrics, labels other than the device, suffix of the metrics' names.
const DEVICES: [(&str, &str, &[&str], &str); 3] = [
    ("disk", DISK, &[], "_total"),
    ("filesystem", FILESYSTEM, &["fstype", "mountpoint"], ""),
    ("network", NETWORK, &[], "_total"),
];
/// Names of the fields in the agent's report, and of the metrics made from them.
const MEMORY: [(&str, &str); 21] = [
    ("memory_active_anon_bytes", "memory_Active_anon_bytes"),
    ("memory_active_file_bytes", "memory_Active_file_bytes"),
    ("memory_active_bytes", "memory_Active_bytes"),
    ("memory_cached_bytes", "memory_Cached_bytes"),
    ("memory_dirty_bytes", "memory_Dirty_bytes"),
    ("memory_hugepages_free_bytes", "memory_HugepagesFree_bytes"),
    ("memory_hugepages_total_bytes", "memory_HugepagesTotal_bytes"),
    ("memory_inactive_anon_bytes", "memory_Inactive_anon_bytes"),
    ("memory_inactive_file_bytes", "memory_Inactive_file_bytes"),
    ("memory_inactive_bytes", "memory_Inactive_bytes"),
    ("memory_mapped_bytes", "memory_Mapped_bytes"),
    ("memory_mem_available_bytes", "memory_MemAvailable_bytes"),
    ("memory_mem_free_bytes", "memory_MemFree_bytes"),
    ("memory_mem_total_bytes", "memory_MemTotal_bytes"),
    ("memory_rss_bytes", "memory_RSS_bytes"),
    ("memory_shmem_bytes", "memory_Shmem_bytes"),
    ("memory_sreclaimable_bytes", "memory_SReclaimable_bytes"),
    ("memory_swap_bytes", "memory_Swap_bytes"),
    ("memory_unevictable_bytes", "memory_Unevictable_bytes"),
    ("memory_writeback_bytes", "memory_Writeback_bytes"),
    ("memory_oom_kills", "memory_OOM_kills_total"),
];

/// Labels of one metrics line, without those that identify the instance.
type Labels<'a> = Vec<(&'static str, &'a str)>;

pub fn openmetrics(instance: &Instance, metadata: &Value) -> Result<String> {
    let all = metadata.as_object().context("metrics: not an object")?;
    let prefix = if instance.flavour == Flavour::Incus { "incus" } else { "lxd" };
    let mut text = Text { instance, prefix, out: String::new() };
    let cpus = rows(instance.flavour, all, "cpu_seconds_total", "cpu")?;
    text.head("cpu_seconds_total");
    for (cpu, row) in &cpus {
        for mode in MODES {
            let value = seconds(row, &format!("cpu_seconds_{mode}"))?;
            text.line("cpu_seconds_total", vec![("cpu", cpu), ("mode", mode)], value);
        }
    }
    text.single("cpu_effective_total", count(all, "cpus")?);
    for (section, names, more, suffix) in DEVICES {
        let rows = rows(instance.flavour, all, section, "device")?;
        for key in names.split(' ') {
            let name = format!("{section}_{key}{suffix}");
            text.head(&name);
            for (device, row) in &rows {
                let labels = more.iter().map(|label| Ok((*label, string(row, label)?)));
                let labels = [Ok(("device", *device))].into_iter().chain(labels);
                let labels = labels.collect::<Result<_>>()?;
                text.line(&name, labels, count(row, &format!("{section}_{key}"))?);
            }
        }
    }
    let none = Map::new();
    let memory = match &all.get("memory") {
        None | Some(Value::Null) => &none,
        Some(memory) => memory.as_object().context("memory: not an object")?,
    };
    for (key, name) in MEMORY {
        text.single(name, count(memory, key)?);
    }
    text.single("procs_total", count(all, "procs_total")?);
    if instance.flavour == Flavour::Incus {
        for name in ["boot_time_seconds", "time_seconds"] {
            text.single(name, seconds(all, name)?);
        }
    }
    text.out += "# EOF\n";
    Ok(text.out)
}

/// Returns a section's entries with their names. Only accepts the form of `flavour`'s server.
fn rows<'a>(
    flavour: Flavour,
    all: &'a Map<String, Value>,
    section: &str,
    key: &str,
) -> Result<Vec<(&'a str, &'a Map<String, Value>)>> {
    let row = |value: &'a Value| {
        value.as_object().with_context(|| format!("{section}: an entry is not an object"))
    };
    match (all.get(section), flavour == Flavour::Incus) {
        (None | Some(Value::Null), _) => Ok(Vec::new()),
        (Some(Value::Object(map)), false) => {
            map.iter().map(|(name, value)| Ok((name.as_str(), row(value)?))).collect()
        }
        (Some(Value::Array(list)), true) => {
            list.iter().map(|value| Ok((string(row(value)?, key)?, row(value)?))).collect()
        }
        (Some(_), true) => bail!("{section} is not a list, which Incus expects"),
        (Some(_), false) => bail!("{section} is not a map, which LXD expects"),
    }
}

/// Returns an unsigned number, like Go's `uint64`.
fn count(row: &Map<String, Value>, key: &str) -> Result<f64> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) if value.as_u64().is_some() => seconds(row, key),
        Some(value) => bail!("{key} is {value}, not a count"),
    }
}

fn seconds(row: &Map<String, Value>, key: &str) -> Result<f64> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) => value.as_f64().with_context(|| format!("{key} is {value}, not a number")),
    }
}

fn string<'a>(row: &'a Map<String, Value>, key: &str) -> Result<&'a str> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(""),
        Some(value) => value.as_str().with_context(|| format!("{key} is {value}, not a string")),
    }
}

struct Text<'a> {
    instance: &'a Instance,
    prefix: &'static str,
    out: String,
}

impl Text<'_> {
    fn head(&mut self, name: &str) {
        // The numbers of processes and CPUs can fall, so they are gauges.
        let is_counter =
            name.ends_with("_total") && !matches!(name, "procs_total" | "cpu_effective_total");
        let kind = if is_counter { "counter" } else { "gauge" };
        let _never = writeln!(self.out, "# TYPE {}_{name} {kind}", self.prefix);
    }

    fn single(&mut self, name: &str, value: f64) {
        self.head(name);
        self.line(name, Vec::new(), value);
    }

    fn line(&mut self, name: &str, own: Labels<'_>, value: f64) {
        let (mut labels, instance) = (own, self.instance.name.as_str());
        labels.extend([("name", instance), ("project", "default"), ("type", "virtual-machine")]);
        if self.instance.flavour.is_lxd() {
            labels.push(("state", "RUNNING"));
        }
        labels.sort_unstable();
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        let (prefix, labels) = (self.prefix, labels.join(","));
        let _never = writeln!(self.out, "{prefix}_{name}{{{labels}}} {}", number(value));
    }
}

fn quoted(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{text}\"")
}

/// Formats as Go's `FormatFloat(x, 'g', -1, 64)`: with an exponent of two digits below 1e-4 and
/// from 1e6 on.
fn number(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value == 0.0 || (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

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

pub fn check_state(instance: &Instance, metadata: &Value) -> Result<()> {
    objects(metadata)?;
    let state = State::deserialize(metadata).context("not an instance's state")?;
    let processes = state.processes.unwrap_or(0);
    if processes < 1 {
        // Hosts use this number to decide whether there is an agent (P§4.5).
        bail!("processes is {processes}, but users wait for a positive number");
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
    use serde_json::json;

    use super::*;

    fn text(flavour: Flavour, metadata: Value) -> Result<String> {
        openmetrics(&Instance::sample(flavour, &[]), &metadata)
    }

    #[test]
    fn each_host_accepts_only_its_own_format() {
        let map = json!({"disk": {"vda": {"disk_read_bytes": 512}}});
        let list = json!({"disk": [{"device": "vda", "disk_read_bytes": 512}], "time_seconds": 1});
        let line =
            "device=\"vda\",name=\"vm1\",project=\"default\",type=\"virtual-machine\"} 512\n";
        let lxd = text(Flavour::LxdOld, map.clone()).unwrap();
        assert!(lxd.contains(&format!("lxd_disk_read_bytes_total{{{line}")), "{lxd}");
        let incus = text(Flavour::Incus, list.clone()).unwrap();
        assert!(incus.contains(&format!("incus_disk_read_bytes_total{{{line}")), "{incus}");
        assert!(text(Flavour::Incus, map).is_err());
        assert!(text(Flavour::Lxd, list).is_err());
    }

    #[test]
    fn rejects_invalid_types_and_treats_null_as_absent() {
        for wrong in [
            json!([]),
            json!({"memory": {"memory_active_bytes": -1}}),
            json!({"memory": {"memory_active_bytes": 1.5}}),
            json!({"memory": []}),
            json!({"procs_total": "1"}),
            json!({"cpu_seconds_total": {"cpu0": {"cpu_seconds_user": "1"}}}),
            json!({"filesystem": {"/dev/vda": {"mountpoint": 1}}}),
            json!({"disk": {"vda": 5}}),
        ] {
            assert!(text(Flavour::Lxd, wrong.clone()).is_err(), "{wrong}");
        }
        let nothing = json!({"disk": null, "memory": null, "procs_total": null});
        assert!(text(Flavour::Lxd, nothing).unwrap().ends_with("# EOF\n"));
    }

    #[test]
    fn formats_numbers_like_go() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (313.17, "313.17"),
            (999_999.0, "999999"),
            (1_000_000.0, "1e+06"),
            (51_105_792.0, "5.1105792e+07"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn escapes_labels() {
        let odd = json!({"disk": {"a\"b\\c\nd": {}}});
        assert!(text(Flavour::Lxd, odd).unwrap().contains(r#"device="a\"b\\c\nd""#));
    }

    #[test]
    fn rejects_a_state_without_processes_or_with_invalid_types() {
        let lxd = Instance::sample(Flavour::Lxd, &[]);
        check_state(&lxd, &json!({"processes": 3, "disk": null, "network": null})).unwrap();
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
            assert!(check_state(&lxd, &wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn incus_requires_pid_1() {
        let incus = Instance::sample(Flavour::Incus, &[]);
        let time = "0001-01-01T00:00:00Z";
        check_state(&incus, &json!({"processes": 3, "pid": 1, "started_at": time})).unwrap();
        assert!(check_state(&incus, &json!({"processes": 3, "pid": 7})).is_err());
    }
}
