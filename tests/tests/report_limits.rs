//! `mote-agent report state|metrics` where there is a lot to report, and where it hangs.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mote_tests::report::{report, root};
use mote_tests::{Scratch, agent};
use serde_json::{Value, json};

/// A root with these numbers of processes and mounts, in memory where there is such a place.
fn large(processes: u32, mounts: u32) -> Scratch {
    let memory = Path::new("/dev/shm");
    let scratch = Scratch::new();
    if memory.is_dir() {
        let name = scratch.0.file_name().unwrap();
        fs::remove_dir(&scratch.0).unwrap();
        let scratch = Scratch(memory.join(name));
        fs::create_dir(&scratch.0).unwrap();
        fill(&scratch, processes, mounts);
        return scratch;
    }
    fill(&scratch, processes, mounts);
    scratch
}

fn fill(scratch: &Scratch, processes: u32, mounts: u32) {
    root(scratch, (1..=processes).map(|pid| (pid, true)));
    let mut lines = String::new();
    for mount in 0..mounts {
        fs::create_dir(scratch.0.join(format!("m{mount}"))).unwrap();
        lines += &format!("/dev/vd{mount} /m{mount} ext4 rw,relatime,errors=remount-ro 0 0\n");
    }
    fs::write(scratch.0.join("proc/mounts"), lines).unwrap();
}

/// CPU time of some reports in a row, per report, in milliseconds, as the shell counts it.
fn cpu_time(root: &Path, flavour: &str, what: &str) -> f64 {
    const TIMES: u32 = 10;
    let script = format!(
        "i=0; while [ $i -lt {TIMES} ]; do \
         \"$0\" report {what} --flavour {flavour} --root \"$1\" >/dev/null || exit 1; i=$((i+1)); \
         done; times"
    );
    let out = Command::new("sh").args(["-c", &script]).arg(agent()).arg(root).output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    // "0m0.036000s 0m0.165000s"
    let words = text.lines().nth(1).unwrap().split_whitespace();
    let seconds: f64 = words
        .map(|word| {
            let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
            minutes.parse::<f64>().unwrap() * 60.0 + seconds.parse::<f64>().unwrap()
        })
        .sum();
    seconds * 1000.0 / f64::from(TIMES)
}

#[test]
fn ten_thousand_processes_and_five_hundred_mounts_cost_less_than_fifty_milliseconds() {
    let scratch = large(10_000, 500);
    let metrics = report(&scratch.0, "lxd", "metrics");
    assert_eq!(metrics["procs_total"], json!(10_000));
    assert_eq!(metrics["filesystem"].as_object().unwrap().len(), 500);
    for flavour in ["lxd", "incus"] {
        for what in ["state", "metrics"] {
            let cost = cpu_time(&scratch.0, flavour, what);
            println!("{flavour} {what}: {cost} ms");
            assert!(cost < 50.0, "{flavour} {what}: {cost} ms");
        }
    }
}

/// Peak memory in kB once everything but `file` was read: a pipe in place of `file` is where it
/// waits. What was in `file` is read then, and its last line with the rest.
fn peak(scratch: &Scratch, what: &str, file: &str) -> u64 {
    use std::io::Write;

    let path = scratch.0.join(file);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut command = Command::new(agent());
    command.args(["report", what, "--flavour", "lxd", "--root"]).arg(&scratch.0);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut out).unwrap());
    let mut pipe = fs::File::options().write(true).open(&path).unwrap();
    pipe.write_all(&text).unwrap();
    // Until it has read that, and sleeps.
    let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let (peak, _) = mote_tests::wait("the reporter to wait", Duration::from_secs(10), || {
        std::thread::sleep(Duration::from_millis(100));
        let status = status();
        status.contains("State:\tS").then(|| {
            let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse().unwrap()
        })
    });
    drop(pipe);
    assert!(child.wait().unwrap().success());
    let json: Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert!(json.is_object());
    fs::remove_file(&path).unwrap();
    fs::write(&path, text).unwrap();
    peak
}

#[test]
fn memory_does_not_grow_with_processes_and_mounts() {
    let (small, large) = (large(3, 2), large(10_000, 500));
    for (what, file) in [("state", "proc/meminfo"), ("metrics", "proc/mounts")] {
        let (few, many) = (peak(&small, what, file), peak(&large, what, file));
        println!("{what}: {few} kB with few, {many} kB with many");
        assert!(many < few + 64, "{what}: {few} kB with few, {many} kB with many");
    }
}

/// Mounts at which statfs(2) hangs: FUSE, with nobody behind it. In namespaces of its own, which
/// are gone with the last process.
#[test]
fn mounts_that_hang_cost_neither_the_others_nor_the_answer() {
    let scratch = large(3, 2);
    let mounts = scratch.0.join("proc/mounts");
    let healthy = fs::read_to_string(&mounts).unwrap();
    let (first, second) = healthy.split_once('\n').unwrap();
    let dead: String = (0..5).map(|at| format!("dead{at} /dead{at} fuse.x rw 0 0\n")).collect();
    fs::write(&mounts, format!("{first}\n{dead}{second}")).unwrap();
    // One descriptor a mount: it is over when that is closed. stat(1) says that it does hang.
    let script = "for at in 3 4 5 6 7; do dir=$1/dead$((at-3)); mkdir $dir && \
        eval \"exec $at<>/dev/fuse\" && mount -i -t fuse \
        -o fd=$at,rootmode=40000,user_id=0,group_id=0 dead $dir || exit 9; done; \
        timeout 1 stat -f $1/dead3; [ $? = 124 ] || exit 8; \
        exec \"$0\" report metrics --flavour incus --root $1";
    let begun = Instant::now();
    let out = Command::new("unshare")
        .args(["-rm", "sh", "-c", script])
        .arg(agent())
        .arg(&scratch.0)
        .output()
        .unwrap();
    assert!(out.status.success(), "{} {}", out.status, String::from_utf8_lossy(&out.stderr));
    // One second of it is stat's.
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let list = json["filesystem"].as_array().unwrap();
    let devices: Vec<_> = list.iter().map(|entry| entry["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["/dev/vd0", "/dev/vd1"]);
    assert_eq!(json["procs_total"], json!(3));
}
