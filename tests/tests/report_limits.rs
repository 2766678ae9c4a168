//! `mote-agent report state|metrics` with many processes and mounts, and with mounts that hang.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use fuse::Fuse;
use mote_tests::host;
use mote_tests::prelude::*;
use mote_tests::report::{report, root};

#[allow(dead_code, reason = "another test uses the rest of it")]
#[path = "boot/stuck/fuse.rs"]
mod fuse;

/// An opcode (`linux/fuse.h`).
const STATFS: u32 = 17;

fn large(processes: u32, mounts: u32) -> Scratch {
    let mut scratch = Scratch::new();
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        scratch = Scratch(memory.join(scratch.0.file_name().unwrap()));
    }
    root(&scratch.0, (1..=processes).map(|pid| (pid, true)));
    let mut lines = String::new();
    for mount in 0..mounts {
        fs::create_dir(scratch.0.join(format!("m{mount}"))).unwrap();
        lines += &format!("/dev/vd{mount} /m{mount} ext4 rw,relatime,errors=remount-ro 0 0\n");
    }
    fs::write(scratch.0.join("proc/mounts"), lines).unwrap();
    scratch
}

/// Returns the CPU time of a report in milliseconds, from several reports in a row.
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
fn reports_many_processes_and_mounts_within_fifty_milliseconds() {
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

#[test]
fn a_report_is_complete_or_fails() {
    let scratch = Scratch::new();
    root(&scratch.0, [(1, true)].into_iter());
    for what in ["state", "metrics"] {
        // Compared without what changes on this machine: times, addresses, free space.
        let complete = report(&scratch.0, "lxd", what);
        let memory = |json: &Value| json.get("memory").cloned();
        let mounts = |json: &Value| {
            let all = json.get("filesystem")?.as_object()?.iter();
            let size = |fs: &Value| fs["filesystem_size_bytes"].clone();
            Some(all.map(|(device, fs)| (device.clone(), size(fs))).collect::<Vec<_>>())
        };
        let mut failed = 0;
        for most in 3..=16 {
            let mut command = Command::new("sh");
            command.args(["-c", "ulimit -n $1; shift; exec \"$@\"", "sh", &most.to_string()]);
            command.arg(agent()).args(["report", what, "--flavour", "lxd", "--root"]);
            let out = command.arg(&scratch.0).output().unwrap();
            if out.status.success() {
                let json = serde_json::from_slice(&out.stdout).unwrap();
                assert!(memory(&json) == memory(&complete) && mounts(&json) == mounts(&complete));
            } else {
                failed += 1;
                let why = String::from_utf8_lossy(&out.stderr);
                assert!(out.stdout.is_empty() && why.contains("(os error 24)"), "{why}");
            }
        }
        assert!((1..8).contains(&failed), "{what}: {failed}");
    }
}

/// Returns the peak memory in kB after the report has read everything except `file`. A pipe
/// replaces `file`, so the report waits there until the test writes the content.
fn peak(scratch: &Scratch, what: &str, file: &str) -> u64 {
    let path = scratch.0.join(file);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    fifo(&path);
    let mut command = Command::new(agent());
    command.args(["report", what, "--flavour", "lxd", "--root"]).arg(&scratch.0);
    let mut child = bounded(command.stdout(Stdio::piped())).unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = thread::spawn(move || io::read_to_string(&mut out).unwrap());
    let mut pipe = File::options().write(true).open(&path).unwrap();
    pipe.write_all(&text).unwrap();
    // The report is blocked in the read.
    let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let (peak, _) = wait("the reporter to wait", Duration::from_secs(10), || {
        thread::sleep(Duration::from_millis(100));
        let status = status();
        status.contains("State:\tS").then(|| proc::kilobytes(&status, "VmHWM:").unwrap())
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
    let (small, large) = (large(3, 2), large(10_000, 5000));
    for (what, file) in [("state", "proc/meminfo"), ("metrics", "proc/mounts")] {
        let (few, many) = (peak(&small, what, file), peak(&large, what, file));
        println!("{what}: {few} kB with few, {many} kB with many");
        // Kept in memory, the names would take 500 kB and the text about the mounts 850 kB. A busy
        // machine may need more threads.
        assert!(many < few + 256, "{what}: {few} kB with few, {many} kB with many");
    }
}

/// A FUSE mount without a server makes statfs(2) hang, until its private namespaces end.
#[test]
fn hanging_mounts_affect_neither_others_nor_the_answer() {
    if no_fuse() {
        return;
    }
    let way = match private(Private::Mounts) {
        Ok(way) => way,
        Err(why) => return skipped(&why),
    };
    let scratch = large(3, 2);
    let mounts = scratch.0.join("proc/mounts");
    let healthy = fs::read_to_string(&mounts).unwrap();
    let (first, second) = healthy.split_once('\n').unwrap();
    let mut dead: String = (0..5).map(|at| format!("dead{at} /dead{at} fuse.x rw 0 0\n")).collect();
    // The path of this mount leads through a hanging one, so it hangs, too.
    dead += "/dev/vdz /dead0/local ext4 rw 0 0\n";
    fs::write(&mounts, format!("{first}\n{dead}{second}")).unwrap();
    // Closing a mount's descriptor ends it. stat(1) proves that it hangs; the agent waits 2.5 s.
    let script = "for at in 3 4 5 6 7; do dir=$1/dead$((at-3)); mkdir $dir && \
        eval \"exec $at<>/dev/fuse\" && mount -i -t fuse \
        -o fd=$at,rootmode=40000,user_id=0,group_id=0 dead $dir || exit 9; done; \
        timeout 1 stat -f $1/dead3; [ $? = 124 ] || exit 8; \
        exec timeout 2.5 \"$0\" report metrics --flavour incus --root $1";
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).args(["sh", "-c", script]);
    let out = command.arg(agent()).arg(&scratch.0).output().unwrap();
    assert!(out.status.success(), "{} {}", out.status, String::from_utf8_lossy(&out.stderr));
    let json: Value = serde_json::from_slice(&out.stdout).unwrap();
    let list = json["filesystem"].as_array().unwrap();
    let devices: Vec<_> = list.iter().map(|entry| entry["device"].as_str().unwrap()).collect();
    assert_eq!(devices, ["/dev/vd0", "/dev/vd1"]);
    assert_eq!(json["procs_total"], json!(3));
}

/// Some containers have no /dev/fuse, and without udev only root may open it.
#[track_caller]
fn no_fuse() -> bool {
    let missing = File::options().read(true).write(true).open("/dev/fuse").is_err();
    if missing {
        skipped("/dev/fuse, which cannot be opened");
    }
    missing
}

/// Mounts a FUSE server that answers no request, so nothing can kill a waiting process.
fn silent_server(directory: &Path) -> Fuse {
    fs::create_dir(directory).unwrap();
    let server = Fuse::mount(directory);
    server.fall_silent();
    server
}

fn queried(server: &Fuse) {
    let look = || server.read.try_iter().find(|one| *one == STATFS);
    wait("the query", Duration::from_secs(10), look);
}

#[test]
fn queries_a_mount_with_unkillable_processes_once() {
    const NAME: &str = "queries_a_mount_with_unkillable_processes_once";

    if no_fuse() || !in_private(Private::Mounts, NAME) {
        return;
    }
    let scratch = large(3, 1);
    fs::create_dir_all(scratch.0.join("run/mote")).unwrap();
    let mounts = scratch.0.join("proc/mounts");
    let healthy = fs::read_to_string(&mounts).unwrap();
    fs::write(&mounts, format!("silent /si\\012lent fuse.x rw 0 0\n{healthy}")).unwrap();
    let server = silent_server(&scratch.0.join("si\nlent"));
    let start = || {
        let mut command = Command::new(agent());
        command.args(["report", "metrics", "--flavour", "incus", "--root"]).arg(&scratch.0);
        bounded(command.stdout(Stdio::piped())).unwrap()
    };
    let read = |child: &mut Child| {
        let text = io::read_to_string(child.stdout.take().unwrap()).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["filesystem"].as_array().unwrap().len(), 1, "{text}");
    };
    let mut first = start();
    queried(&server);
    // The report is complete, although the process that queries that mount cannot end.
    read(&mut first);
    assert!(first.wait().unwrap().success());
    let hanging = || fs::read_to_string(scratch.0.join("run/mote/hanging")).unwrap();
    let noted = hanging();
    let process = noted.strip_suffix(" /si\\012lent\n").unwrap().to_owned();
    let is_there = || Path::new("/proc").join(&process).exists();
    thread::sleep(Duration::from_millis(200));
    assert!(is_there(), "it was killed");
    // The next report skips that mount.
    for _ in 0..2 {
        let mut next = start();
        read(&mut next);
        assert!(next.wait().unwrap().success());
        assert_eq!(hanging(), noted);
    }
    drop(server);
    until("the end of who hangs", Duration::from_secs(10), || !is_there());
    // No process hangs there, so the next report queries it again: an error costs no time.
    fs::remove_dir(scratch.0.join("si\nlent")).unwrap();
    read(&mut start());
    assert_eq!(hanging(), "");
    // If the list of hanging mounts is full, no other mount is queried.
    let many: String = (0..64).map(|at| format!("{} /{at}\n", std::process::id())).collect();
    fs::write(scratch.0.join("run/mote/hanging"), &many).unwrap();
    let server = silent_server(&scratch.0.join("another"));
    fs::write(&mounts, format!("silent /another fuse.x rw 0 0\n{healthy}")).unwrap();
    read(&mut start());
    assert!(server.read.try_iter().all(|one| one != STATFS) && hanging() == many);
}

#[test]
fn the_host_gets_its_answer_although_the_process_cannot_end() {
    const NAME: &str = "the_host_gets_its_answer_although_the_process_cannot_end";

    if no_fuse() || !in_private(Private::Mounts, NAME) {
        return;
    }
    let pair = Pair::start("incus", &[]);
    let inside = pair.scratch.0.join("root");
    root(&inside, [(1, true), (2, true)].into_iter());
    let state = pair.host.run(&["state", host::NAME, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&state).unwrap()["processes"], json!(2));
    let mounts = "silent /silent fuse.x rw 0 0\n/dev/vda1 / ext4 rw 0 0\n";
    fs::write(inside.join("proc/mounts"), mounts).unwrap();
    let server = silent_server(&inside.join("silent"));
    for _ in 0..2 {
        let metrics = pair.host.run(&["metrics", host::NAME, "--json"]);
        let metrics: Value = serde_json::from_str(&metrics).unwrap();
        let list = metrics["filesystem"].as_array().unwrap();
        assert_eq!((list.len(), &list[0]["device"]), (1, &json!("/dev/vda1")));
    }
    queried(&server);
}
