//! `mote-agent report state|metrics`: the shipped binary on an artificial `/proc` with known
//! numbers, and on this machine's.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use std::fs;
use std::process::Command;

use mote_tests::Scratch;
use mote_tests::report::{report, root};
use serde_json::json;

fn few() -> impl Iterator<Item = (u32, bool)> {
    [(1, true), (2, false), (77, true)].into_iter()
}

#[test]
fn metrics_match_the_kernels_figures() {
    let scratch = Scratch::new();
    root(&scratch.0, few());
    let lxd = report(&scratch.0, "lxd", "metrics");
    assert_eq!(
        lxd["cpu_seconds_total"]["cpu1"],
        json!({
            "cpu_seconds_user": 1778.34, "cpu_seconds_nice": 27.07, "cpu_seconds_system": 418.69,
            "cpu_seconds_idle": 9283.82, "cpu_seconds_iowait": 29.1, "cpu_seconds_irq": 0.07,
            "cpu_seconds_softirq": 4.6, "cpu_seconds_steal": 2.51
        })
    );
    assert_eq!(lxd["cpu_seconds_total"].as_object().unwrap().len(), 2);
    assert_eq!(
        lxd["disk"]["vda"],
        json!({
            "disk_read_bytes": 56_423_578u64 * 512, "disk_reads_completed": 1_197_359,
            "disk_written_bytes": 56_822_168u64 * 512, "disk_writes_completed": 154_919
        })
    );
    assert_eq!(
        lxd["network"]["enp5s0"],
        json!({
            "network_receive_bytes": i64::MAX, "network_receive_drop": 4,
            "network_receive_errs": 3, "network_receive_packets": 4711,
            "network_transmit_bytes": 9000, "network_transmit_drop": 2,
            "network_transmit_errs": 1, "network_transmit_packets": 90
        })
    );
    assert_eq!(lxd["network"].as_object().unwrap().len(), 2);
    let kb = 1024;
    assert_eq!(
        lxd["memory"],
        json!({
            "memory_active_anon_bytes": 1584 * kb, "memory_active_file_bytes": 738_008 * kb,
            "memory_active_bytes": 739_592 * kb, "memory_cached_bytes": 1_295_440 * kb,
            "memory_dirty_bytes": 364_740 * kb, "memory_hugepages_free_bytes": 3 * 2048 * kb,
            "memory_hugepages_total_bytes": 5 * 2048 * kb,
            "memory_inactive_anon_bytes": 8080 * kb, "memory_inactive_file_bytes": 733_428 * kb,
            "memory_inactive_bytes": 741_508 * kb, "memory_mapped_bytes": 10_812 * kb,
            "memory_mem_available_bytes": 23_934_964u64 * 1024,
            "memory_mem_free_bytes": 22_369_264u64 * 1024,
            "memory_mem_total_bytes": 24_684_092u64 * 1024,
            "memory_rss_bytes": (24_684_092 - 23_934_964) * kb,
            "memory_shmem_bytes": 8856 * kb, "memory_sreclaimable_bytes": 400_988 * kb,
            "memory_swap_bytes": 100 * kb, "memory_unevictable_bytes": 18_880 * kb,
            "memory_writeback_bytes": 12 * kb, "memory_oom_kills": 3
        })
    );
    // Kernel threads are not counted.
    assert_eq!((&lxd["procs_total"], &lxd["cpus"]), (&json!(2), &json!(2)));

    let incus = report(&scratch.0, "incus", "metrics");
    assert_eq!(incus["memory"]["memory_rss_bytes"], json!((19_760 + 11) * 1024));
    assert_eq!(incus["boot_time_seconds"], json!(1_795_234_963u64));
    assert_eq!(incus["procs_total"], json!(3));
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(now - incus["time_seconds"].as_u64().unwrap() < 60);
}

#[test]
fn selects_mounts_like_each_server_and_omits_failing_ones() {
    let scratch = Scratch::new();
    root(&scratch.0, few());
    let lxd = report(&scratch.0, "lxd", "metrics");
    let lxd = lxd["filesystem"].as_object().unwrap();
    let names: Vec<_> = lxd.keys().map(String::as_str).collect();
    assert_eq!(names, ["/dev/vda1", "none"]);
    // A bind mount of the root's device does not hide `/`; `\040` is unescaped.
    assert_eq!(lxd["/dev/vda1"]["mountpoint"], "/");
    assert_eq!(lxd["none"]["mountpoint"], "/run/user 1000");
    let incus = report(&scratch.0, "incus", "metrics");
    let list = incus["filesystem"].as_array().unwrap();
    let points: Vec<_> = list.iter().map(|entry| entry["mountpoint"].as_str().unwrap()).collect();
    assert_eq!(points, ["/", "/var/lib/lxcfs", "/run/user 1000", "/srv"]);
    // stat(1) uses the same system call.
    let out = Command::new("stat").args(["-f", "-c", "%S %b %t"]).arg(&scratch.0).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let words: Vec<_> = out.split_whitespace().collect();
    let size: u64 = words[0].parse::<u64>().unwrap() * words[1].parse::<u64>().unwrap();
    assert_eq!(list[0]["filesystem_size_bytes"], json!(size));
    let kind = match words[2] {
        "ef53" => "ext4".to_owned(),
        "1021994" => "tmpfs".to_owned(),
        "9123683e" => "btrfs".to_owned(),
        "58465342" => "xfs".to_owned(),
        other => format!("0x{other}"),
    };
    assert_eq!(list[0]["fstype"], json!(kind));
    let bytes = |key: &str| list[0][key].as_u64().unwrap();
    assert!(bytes("filesystem_avail_bytes") <= bytes("filesystem_free_bytes"));
    assert!(bytes("filesystem_free_bytes") < size);
}

#[test]
fn the_state_has_each_servers_members() {
    let scratch = Scratch::new();
    root(&scratch.0, few());
    let mut lxd = report(&scratch.0, "lxd", "state");
    let network = lxd.as_object_mut().unwrap().remove("network").unwrap();
    let memory = json!({
        "usage": (24_684_092u64 - 22_369_264) * 1024, "usage_peak": 777,
        "total": 24_684_092u64 * 1024, "swap_usage": 102_400, "swap_usage_peak": 0
    });
    assert_eq!(
        lxd,
        json!({
            "status": "", "status_code": 0, "disk": null, "memory": memory, "pid": 1,
            "processes": 2, "cpu": {"usage": 123_456_000}
        })
    );
    let lo = &network["lo"];
    assert_eq!(lo["hwaddr"], "");
    assert_eq!((&lo["type"], &lo["host_name"]), (&json!("loopback"), &json!("")));
    let loopback = json!({
        "family": "inet", "address": "127.0.0.1", "netmask": "8", "scope": "local"
    });
    if lo["state"] == "up" {
        assert_eq!(lo["addresses"][0], loopback);
    }
    assert!(lo["mtu"].as_u64().unwrap() > 0);
    for counter in [
        "bytes_received",
        "bytes_sent",
        "packets_received",
        "packets_sent",
        "errors_received",
        "errors_sent",
        "packets_dropped_outbound",
        "packets_dropped_inbound",
    ] {
        assert!(lo["counters"][counter].is_u64(), "{counter}");
    }

    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let host = host.trim();
    fs::write(
        scratch.0.join("etc/hosts"),
        format!("127.0.0.1 localhost\n127.0.1.1 {host}.example.net {host} # us\n"),
    )
    .unwrap();
    let incus = report(&scratch.0, "incus", "state");
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(
        incus["os_info"],
        json!({
            "os": "Debian \"GNU/Linux\"", "os_version": "12", "kernel_version": kernel.trim(),
            "hostname": host, "fqdn": format!("{host}.example.net")
        })
    );
    assert_eq!(incus["cpu"], json!({"usage": 123_456_000, "allocated_time": 0}));
    assert_eq!(incus["started_at"], "0001-01-01T00:00:00Z");
    assert_eq!((&incus["processes"], &incus["pid"]), (&json!(3), &json!(1)));
}

#[test]
fn an_empty_root_gives_a_complete_answer() {
    let scratch = Scratch::new();
    for flavour in ["lxd", "incus", "lxd-5.0"] {
        let state = report(&scratch.0, flavour, "state");
        assert_eq!((&state["processes"], &state["cpu"]["usage"]), (&json!(1), &json!(-1)));
        let metrics = report(&scratch.0, flavour, "metrics");
        assert_eq!(metrics["procs_total"], json!(0));
        assert_eq!(metrics["memory"]["memory_mem_total_bytes"], json!(0));
    }
}

#[test]
fn reads_cpu_time_from_the_kernel_without_cgroups() {
    let scratch = Scratch::new();
    root(&scratch.0, few());
    fs::remove_file(scratch.0.join("sys/fs/cgroup/cpu.stat")).unwrap();
    let state = report(&scratch.0, "lxd", "state");
    // Sum of user, nice, system, irq and softirq of all CPUs.
    let ticks = 324_156 + 5683 + 79_583 + 7 + 548u64;
    assert_eq!(state["cpu"]["usage"], json!(ticks * 10_000_000));
    fs::create_dir_all(scratch.0.join("sys/fs/cgroup/cpuacct")).unwrap();
    fs::write(scratch.0.join("sys/fs/cgroup/cpuacct/cpuacct.usage"), "42\n").unwrap();
    assert_eq!(report(&scratch.0, "incus", "state")["cpu"]["usage"], json!(42));
}
