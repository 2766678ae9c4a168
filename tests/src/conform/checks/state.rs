//! State and metrics of a running instance (P§4.5, P§4.6).

use crate::conform::prelude::*;

const STATE: Group = Group::new("State", "P§4.5");
const METRICS: Group = Group::new("Metrics", "P§4.6");

pub(super) const ALL: &[Check] = &[
    STATE.is("`processes` is more than 0, `pid` is 1", |agent| {
        let state = state(agent)?;
        hold("processes is not", state["processes"].as_i64() > Some(0))?;
        same("pid", &state["pid"], &json!(1))
    }),
    STATE.is("`processes` counts 1 and its descendants (LXD), or all (Incus)", |agent| {
        // Kernel threads are process 2 and its children.
        let family = "awk '{ if ($4 != 2 && $1 != 2) count++ } END { print count }' /proc/[0-9]*/stat";
        let all = number(agent, agent.column.pick(family, "ls -d /proc/[0-9]* | wc -l"))?;
        // Allow for the shell that counted, and for processes that come and go.
        near("it", &state(agent)?["processes"], all, 6.0)
    }),
    STATE.is("`memory` is what /proc/meminfo says", |agent| {
        let memory = state(agent)?["memory"].clone();
        members("memory", &memory, "usage usage_peak total swap_usage swap_usage_peak")?;
        let total = number(agent, "awk '/^MemTotal/{print $2*1024}' /proc/meminfo")?;
        let free = number(agent, "awk '/^MemFree/{print $2*1024}' /proc/meminfo")?;
        near("total", &memory["total"], total, 0.0)?;
        near("usage", &memory["usage"], total - free, 16.0 * MIB)?;
        same("swap_usage", &memory["swap_usage"], &json!(0))
    }),
    STATE.is("`cpu.usage` is what the cgroup says, in nanoseconds", |agent| {
        let seen = state(agent)?["cpu"]["usage"].clone();
        let wanted =
            number(agent, "awk '/^usage_usec/{printf \"%.0f\", $2*1000}' /sys/fs/cgroup/cpu.stat")?;
        near("usage", &seen, wanted, 5e9)
    }),
    STATE.is("`network.lo` has state, type, mtu and both addresses", |agent| {
        let lo = state(agent)?["network"]["lo"].clone();
        members("lo", &lo, "addresses counters hwaddr host_name mtu state type")?;
        has(&lo, json!({"state": "up", "type": "loopback", "mtu": 65536, "host_name": ""}))?;
        let addresses = lo["addresses"].as_array().cloned().unwrap_or_default();
        for wanted in [
            json!({"family": "inet", "address": "127.0.0.1", "netmask": "8", "scope": "local"}),
            json!({"family": "inet6", "address": "::1", "netmask": "128", "scope": "local"}),
        ] {
            hold(format!("{} is not there", wanted["address"]), addresses.contains(&wanted))?;
        }
        Ok(())
    }),
    STATE.is("its counters are those of /sys, all eight", |agent| {
        let _ping = agent.guest("ping -c 2 -i 0.1 127.0.0.1 >/dev/null")?;
        let seen = state(agent)?["network"]["lo"]["counters"].clone();
        members(
            "counters",
            &seen,
            "bytes_received bytes_sent packets_received packets_sent errors_received errors_sent \
             packets_dropped_outbound packets_dropped_inbound",
        )?;
        for (member, file) in [
            ("bytes_received", "rx_bytes"),
            ("bytes_sent", "tx_bytes"),
            ("packets_received", "rx_packets"),
            ("packets_sent", "tx_packets"),
        ] {
            let wanted = number(agent, &format!("cat /sys/class/net/lo/statistics/{file}"))?;
            hold(format!("{member} is 0"), seen[member].as_f64() > Some(0.0))?;
            // Go's incus-agent resolves names over the loopback during the request.
            near(member, &seen[member], wanted, 5000.0)?;
        }
        Ok(())
    }),
    STATE.is("`status`, `status_code`, `disk` are left to the host", |agent| {
        let state = state(agent)?;
        has(&state, json!({"status": "", "status_code": 0}))?;
        hold("disk is something", state["disk"].is_null() || state["disk"] == json!({}))
    }),
    STATE.incus().is("`os_info` and `started_at` are there", |agent| {
        let state = state(agent)?;
        members("the state", &state, "os_info started_at")?;
        members("os_info", &state["os_info"], "os os_version kernel_version hostname fqdn")?;
        let release = agent.guest("uname -r")?;
        same("kernel_version", &state["os_info"]["kernel_version"], &json!(release))?;
        same("started_at", &state["started_at"], &json!("0001-01-01T00:00:00Z"))
    }),
    STATE.of("P§4").is("PUT is 501", |agent| {
        agent.ask("PUT", "/1.0/state", "{}")?.is(501)
    }),
    METRICS.is("sections are maps (LXD) or arrays (Incus)", |agent| {
        let all = metrics(agent)?;
        for section in ["cpu_seconds_total", "disk", "filesystem", "network"] {
            let fits = if agent.column.is_incus() {
                all[section].is_array()
            } else {
                all[section].is_object()
            };
            hold(format!("{section} has another shape"), fits)?;
        }
        hold("memory is not an object", all["memory"].is_object())
    }),
    METRICS.is("`cpu_seconds_total` has the eight times of each CPU", |agent| {
        let all = entries(agent, "cpu_seconds_total", "cpu")?;
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        same("the list of CPUs", names.join(" "), "cpu0")?;
        members(
            "cpu0",
            &all[0].1,
            "cpu_seconds_user cpu_seconds_nice cpu_seconds_system cpu_seconds_idle cpu_seconds_iowait \
             cpu_seconds_irq cpu_seconds_softirq cpu_seconds_steal",
        )?;
        let user = number(agent, "awk '/^cpu0/{print $2/100}' /proc/stat")?;
        near("cpu_seconds_user", &all[0].1["cpu_seconds_user"], user, 3.0)
    }),
    METRICS.is("`memory` has its members; totals are those of /proc/meminfo", |agent| {
        let memory = metrics(agent)?["memory"].clone();
        members(
            "memory",
            &memory,
            "memory_active_anon_bytes memory_active_file_bytes memory_active_bytes memory_cached_bytes \
             memory_dirty_bytes memory_hugepages_free_bytes memory_hugepages_total_bytes \
             memory_inactive_anon_bytes memory_inactive_file_bytes memory_inactive_bytes \
             memory_mapped_bytes memory_mem_available_bytes memory_mem_free_bytes \
             memory_mem_total_bytes memory_rss_bytes memory_shmem_bytes memory_swap_bytes \
             memory_unevictable_bytes memory_writeback_bytes memory_oom_kills",
        )?;
        let of =
            |name: &str| number(agent, &format!("awk '/^{name}:/{{print $2*1024}}' /proc/meminfo"));
        near("memory_mem_total_bytes", &memory["memory_mem_total_bytes"], of("MemTotal")?, 0.0)?;
        near("memory_mem_free_bytes", &memory["memory_mem_free_bytes"], of("MemFree")?, 16.0 * MIB)?;
        near("memory_cached_bytes", &memory["memory_cached_bytes"], of("Cached")?, 16.0 * MIB)
    }),
    METRICS.is("`disk` has the four sums of each device", |agent| {
        let all = entries(agent, "disk", "device")?;
        let (_, vda) = all.iter().find(|(name, _)| name == "vda").ok_or("there is no vda")?;
        members(
            "vda",
            vda,
            "disk_read_bytes disk_reads_completed disk_written_bytes disk_writes_completed",
        )?;
        let wanted = number(agent, "awk '$3==\"vda\"{print $6*512}' /proc/diskstats")?;
        near("disk_read_bytes", &vda["disk_read_bytes"], wanted, 0.0)
    }),
    METRICS.is("`filesystem` has sizes, mount point and type", |agent| {
        let all = entries(agent, "filesystem", "device")?;
        let is_tmp = |(_, value): &&(String, Value)| value["mountpoint"] == json!("/tmp");
        let (_, tmp) = all.iter().find(is_tmp).ok_or("/tmp is not there")?;
        members(
            "/tmp",
            tmp,
            "mountpoint fstype filesystem_avail_bytes filesystem_free_bytes filesystem_size_bytes",
        )?;
        same("fstype", &tmp["fstype"], &json!("tmpfs"))?;
        let size = number(agent, "stat -f -c '%S %b' /tmp | awk '{print $1*$2}'")?;
        near("filesystem_size_bytes", &tmp["filesystem_size_bytes"], size, 0.0)?;
        let virtual_one = all.iter().find(|(_, value)| {
            let at = value["mountpoint"].as_str().unwrap_or_default();
            at.starts_with("/proc") || at.starts_with("/sys") || at.starts_with("/dev")
        });
        hold("one below /proc, /sys or /dev is listed", virtual_one.is_none())
    }),
    METRICS.is("`network` has eight counters of each interface", |agent| {
        let all = entries(agent, "network", "device")?;
        let (_, lo) = all.iter().find(|(name, _)| name == "lo").ok_or("there is no lo")?;
        members(
            "lo",
            lo,
            "network_receive_bytes network_receive_drop network_receive_errs network_receive_packets \
             network_transmit_bytes network_transmit_drop network_transmit_errs network_transmit_packets",
        )?;
        let wanted = number(agent, "cat /sys/class/net/lo/statistics/rx_bytes")?;
        near("network_receive_bytes", &lo["network_receive_bytes"], wanted, 5000.0)
    }),
    METRICS.is("`procs_total` is more than 0, `cpus` is there", |agent| {
        let all = metrics(agent)?;
        hold("procs_total is not", all["procs_total"].as_i64() > Some(0))?;
        hold("cpus is not a number", all["cpus"].is_number())
    }),
    METRICS.incus().is("`boot_time_seconds` and `time_seconds` are there", |agent| {
        let all = metrics(agent)?;
        let now = number(agent, "date +%s")?;
        near("time_seconds", &all["time_seconds"], now, 5.0)?;
        let boot = number(agent, "awk '/^btime/{print $2}' /proc/stat")?;
        near("boot_time_seconds", &all["boot_time_seconds"], boot, 2.0)
    }),
];

fn state(agent: &Agent) -> Try<Value> {
    agent.get("/1.0/state")
}

fn number(agent: &Agent, command: &str) -> Try<f64> {
    let text = agent.guest(command)?;
    text.trim().parse().map_err(|_| format!("{command}: {text}"))
}

/// Checks that a changing number is within `slack` of the wanted one.
fn near(what: &str, seen: &Value, wanted: f64, slack: f64) -> Claim {
    let seen = seen.as_f64().ok_or_else(|| Miss::No(format!("{what} is not a number")))?;
    hold(format!("{what} is far from what it should be"), (seen - wanted).abs() <= slack)
}

fn members(what: &str, value: &Value, wanted: &str) -> Claim {
    let object = value.as_object().ok_or_else(|| Miss::No(format!("{what} is not an object")))?;
    let missing: Vec<_> = wanted.split(' ').filter(|name| !object.contains_key(*name)).collect();
    hold(format!("{what} lacks {}", missing.join(", ")), missing.is_empty())
}

const MIB: f64 = 1_048_576.0;

fn metrics(agent: &Agent) -> Try<Value> {
    agent.get("/1.0/metrics")
}

/// A section's entries by name, from a map or a list.
fn entries(agent: &Agent, section: &str, key: &str) -> Result<Vec<(String, Value)>, Miss> {
    let value = metrics(agent)?[section].clone();
    let all: Vec<_> = match &value {
        Value::Object(map) => {
            map.iter().map(|(name, value)| (name.clone(), value.clone())).collect()
        }
        Value::Array(list) => list
            .iter()
            .map(|value| (value[key].as_str().unwrap_or_default().to_owned(), value.clone()))
            .collect(),
        _ => return Err(Miss::No(format!("there is no {section}"))),
    };
    if all.is_empty() { Err(Miss::No(format!("{section} is empty"))) } else { Ok(all) }
}
