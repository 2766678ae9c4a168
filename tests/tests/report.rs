//! `mote-agent report state|metrics`: the shipped binary on an artificial `/proc` with known
//! numbers, and on this machine's.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use mote_tests::prelude::*;
use mote_tests::report::{report, root};

fn few() -> impl Iterator<Item = (u32, bool)> {
    [(1, true), (2, false), (77, true)].into_iter()
}

#[test]
fn metrics_match_the_kernels_figures() {
    let scratch = Scratch::new();
    root(&scratch.0, few());
    // Bytes are the kernel's sectors of 512 bytes and kB of 1024. LXD's `procs_total` excludes
    // kernel threads.
    let wanted: Value = serde_json::from_str(include_str!("../src/report/metrics.json")).unwrap();
    let [lxd, incus] = ["lxd", "incus"].map(|flavour| {
        let seen = report(&scratch.0, flavour, "metrics");
        for (place, value) in wanted[flavour].as_object().unwrap() {
            assert_eq!(seen.pointer(place), Some(value), "{flavour}: {place}");
        }
        seen
    });
    assert_eq!(lxd["cpu_seconds_total"].as_object().unwrap().len(), 2);
    assert_eq!(lxd["network"].as_object().unwrap().len(), 2);
    let now = UNIX_EPOCH.elapsed().unwrap().as_secs();
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
    // stat(1) uses the same system call, so its figures must be equal.
    let out = Command::new("stat").args(["-f", "-c", "%S %b"]).arg(&scratch.0).output().unwrap();
    let out = String::from_utf8(out.stdout).unwrap();
    let words: Vec<_> = out.split_whitespace().collect();
    let size: u64 = words[0].parse::<u64>().unwrap() * words[1].parse::<u64>().unwrap();
    assert_eq!(list[0]["filesystem_size_bytes"], json!(size));
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
    // The conformance suite checks its members.
    assert_eq!(network["lo"]["type"], "loopback");
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
    // Ticks of user, nice, system, irq and softirq, summed over all CPUs.
    let ticks = 324_156 + 5683 + 79_583 + 7 + 548u64;
    assert_eq!(state["cpu"]["usage"], json!(ticks * 10_000_000));
    fs::create_dir_all(scratch.0.join("sys/fs/cgroup/cpuacct")).unwrap();
    fs::write(scratch.0.join("sys/fs/cgroup/cpuacct/cpuacct.usage"), "42\n").unwrap();
    assert_eq!(report(&scratch.0, "incus", "state")["cpu"]["usage"], json!(42));
}
