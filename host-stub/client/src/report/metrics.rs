//! `metrics`: the agent's measurements, in the format that hosts publish (P§4.6).
//!
//! LXD expects maps by device, Incus lists with the device inside. Like their JSON decoders, each
//! refuses the other's form and every wrong type. Null or missing values count as 0.

use std::fmt::Write;

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::instance::{Flavour, Instance};

/// A number of the agent and its metric.
struct Field {
    json: &'static str,
    name: &'static str,
    help: &'static str,
}

const fn field(json: &'static str, name: &'static str, help: &'static str) -> Field {
    Field { json, name, help }
}

/// Suffixes of `cpu_seconds_`.
const MODES: [&str; 8] = ["iowait", "irq", "idle", "nice", "softirq", "steal", "system", "user"];

const DISK: [Field; 4] = [
    field("disk_read_bytes", "disk_read_bytes_total", "Bytes read."),
    field("disk_reads_completed", "disk_reads_completed_total", "Completed reads."),
    field("disk_written_bytes", "disk_written_bytes_total", "Bytes written."),
    field("disk_writes_completed", "disk_writes_completed_total", "Completed writes."),
];

const FILESYSTEM: [Field; 3] = [
    field("filesystem_avail_bytes", "filesystem_avail_bytes", "Space for users, in bytes."),
    field("filesystem_free_bytes", "filesystem_free_bytes", "Free space, in bytes."),
    field("filesystem_size_bytes", "filesystem_size_bytes", "Size, in bytes."),
];

const NETWORK: [Field; 8] = [
    field("network_receive_bytes", "network_receive_bytes_total", "Bytes received."),
    field("network_receive_drop", "network_receive_drop_total", "Received packets dropped."),
    field("network_receive_errs", "network_receive_errs_total", "Errors of receiving."),
    field("network_receive_packets", "network_receive_packets_total", "Packets received."),
    field("network_transmit_bytes", "network_transmit_bytes_total", "Bytes sent."),
    field("network_transmit_drop", "network_transmit_drop_total", "Packets not sent."),
    field("network_transmit_errs", "network_transmit_errs_total", "Errors of sending."),
    field("network_transmit_packets", "network_transmit_packets_total", "Packets sent."),
];

const MEMORY: [Field; 22] = [
    field("memory_active_anon_bytes", "memory_Active_anon_bytes", "Active anonymous memory."),
    field("memory_active_file_bytes", "memory_Active_file_bytes", "Active memory of files."),
    field("memory_active_bytes", "memory_Active_bytes", "Active memory."),
    field("memory_cached_bytes", "memory_Cached_bytes", "Cached memory."),
    field("memory_dirty_bytes", "memory_Dirty_bytes", "Memory to be written to disk."),
    field("memory_hugepages_free_bytes", "memory_HugepagesFree_bytes", "Free huge pages."),
    field("memory_hugepages_total_bytes", "memory_HugepagesTotal_bytes", "Huge pages."),
    field("memory_inactive_anon_bytes", "memory_Inactive_anon_bytes", "Inactive anonymous memory."),
    field("memory_inactive_file_bytes", "memory_Inactive_file_bytes", "Inactive memory of files."),
    field("memory_inactive_bytes", "memory_Inactive_bytes", "Inactive memory."),
    field("memory_mapped_bytes", "memory_Mapped_bytes", "Mapped memory."),
    field("memory_mem_available_bytes", "memory_MemAvailable_bytes", "Available memory."),
    field("memory_mem_free_bytes", "memory_MemFree_bytes", "Free memory."),
    field("memory_mem_total_bytes", "memory_MemTotal_bytes", "All memory."),
    field("memory_rss_bytes", "memory_RSS_bytes", "Memory of processes."),
    field("memory_shmem_bytes", "memory_Shmem_bytes", "Shared memory."),
    field(
        "memory_sreclaimable_bytes",
        "memory_SReclaimable_bytes",
        "Memory the kernel can give back.",
    ),
    field("memory_swap_bytes", "memory_Swap_bytes", "Swap."),
    field("memory_unevictable_bytes", "memory_Unevictable_bytes", "Memory that stays."),
    field("memory_writeback_bytes", "memory_Writeback_bytes", "Memory being written to disk."),
    field("memory_oom_kills", "memory_OOM_kills_total", "Processes killed for lack of memory."),
    field("procs_total", "procs_total", "Running processes."),
];

/// Labels of one line, without the instance's.
type Labels<'a> = Vec<(&'static str, &'a str)>;

/// Returns the text that a host publishes for one instance.
pub fn openmetrics(instance: &Instance, metadata: &Value) -> Result<String> {
    let all = metadata.as_object().context("metrics: not an object")?;
    let mut text = Text { instance, out: String::new() };
    let cpu_name = Field { json: "cpu", name: "cpu_seconds_total", help: "CPU time, in seconds." };
    let cpus = rows(instance.flavour, all, "cpu_seconds_total", "cpu")?;
    text.head(cpu_name.name, cpu_name.help);
    for (cpu, row) in &cpus {
        for mode in MODES {
            let value = seconds(row, &format!("cpu_seconds_{mode}"))?;
            text.line(cpu_name.name, vec![(cpu_name.json, cpu), ("mode", mode)], value);
        }
    }
    text.head("cpu_effective_total", "CPUs.");
    text.line("cpu_effective_total", Vec::new(), count(all, "cpus")?);
    let labels = |device| vec![("device", device)];
    let disks = rows(instance.flavour, all, "disk", "device")?;
    text.rows(&DISK, &disks, |device, _| Ok(labels(device)))?;
    let filesystems = rows(instance.flavour, all, "filesystem", "device")?;
    text.rows(&FILESYSTEM, &filesystems, |device, row| {
        let place =
            [("fstype", string(row, "fstype")?), ("mountpoint", string(row, "mountpoint")?)];
        Ok([labels(device), place.to_vec()].concat())
    })?;
    let networks = rows(instance.flavour, all, "network", "device")?;
    text.rows(&NETWORK, &networks, |device, _| Ok(labels(device)))?;
    let none = Map::new();
    let memory = match &all.get("memory") {
        None | Some(Value::Null) => &none,
        Some(memory) => memory.as_object().context("memory: not an object")?,
    };
    for field in &MEMORY {
        let from = if field.name == "procs_total" { all } else { memory };
        text.head(field.name, field.help);
        text.line(field.name, Vec::new(), count(from, field.json)?);
    }
    if instance.flavour == Flavour::Incus {
        for (name, help) in [("boot_time_seconds", "Time of boot."), ("time_seconds", "Time.")] {
            text.head(name, help);
            text.line(name, Vec::new(), seconds(all, name)?);
        }
    }
    text.out += "# EOF\n";
    Ok(text.out)
}

/// Returns rows with their keys, in the form that this host decodes.
fn rows<'a>(
    flavour: Flavour,
    all: &'a Map<String, Value>,
    section: &str,
    key: &str,
) -> Result<Vec<(&'a str, &'a Map<String, Value>)>> {
    let row = |value: &'a Value| {
        value.as_object().with_context(|| format!("{section}: an entry is not an object"))
    };
    match (all.get(section), flavour) {
        (None | Some(Value::Null), _) => Ok(Vec::new()),
        (Some(Value::Object(map)), Flavour::Lxd | Flavour::LxdOld) => {
            map.iter().map(|(name, value)| Ok((name.as_str(), row(value)?))).collect()
        }
        (Some(Value::Array(list)), Flavour::Incus) => {
            list.iter().map(|value| Ok((string(row(value)?, key)?, row(value)?))).collect()
        }
        (Some(_), Flavour::Incus) => bail!("{section} is not a list, which Incus expects"),
        (Some(_), Flavour::Lxd | Flavour::LxdOld) => {
            bail!("{section} is not a map, which LXD expects")
        }
    }
}

/// Returns an unsigned number, as Go's `uint64`.
fn count(row: &Map<String, Value>, key: &str) -> Result<f64> {
    match row.get(key) {
        None | Some(Value::Null) => Ok(0.0),
        Some(value) if value.as_u64().is_some() => seconds(row, key),
        Some(value) => bail!("{key} is {value}, not a count"),
    }
}

/// Returns any number.
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
    out: String,
}

impl Text<'_> {
    fn prefix(&self) -> &'static str {
        match self.instance.flavour {
            Flavour::Lxd | Flavour::LxdOld => "lxd",
            Flavour::Incus => "incus",
        }
    }

    fn head(&mut self, name: &str, help: &str) {
        // The number of processes or CPUs may fall.
        let is_counter =
            name.ends_with("_total") && !matches!(name, "procs_total" | "cpu_effective_total");
        let kind = if is_counter { "counter" } else { "gauge" };
        let prefix = self.prefix();
        let _never =
            write!(self.out, "# HELP {prefix}_{name} {help}\n# TYPE {prefix}_{name} {kind}\n");
    }

    fn rows<'r>(
        &mut self,
        fields: &[Field],
        rows: &[(&'r str, &'r Map<String, Value>)],
        labels: impl Fn(&'r str, &'r Map<String, Value>) -> Result<Labels<'r>>,
    ) -> Result<()> {
        for field in fields {
            self.head(field.name, field.help);
            for (device, row) in rows {
                self.line(field.name, labels(device, row)?, count(row, field.json)?);
            }
        }
        Ok(())
    }

    fn line(&mut self, name: &str, own: Labels<'_>, value: f64) {
        let mut labels: Labels<'_> = own.into_iter().collect();
        labels.extend([
            ("name", self.instance.name.as_str()),
            ("project", "default"),
            ("type", "virtual-machine"),
        ]);
        if self.instance.flavour == Flavour::Lxd {
            labels.push(("state", "RUNNING"));
        }
        labels.sort_unstable();
        let labels: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={}", quoted(value))).collect();
        let (prefix, labels) = (self.prefix(), labels.join(","));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

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
}
