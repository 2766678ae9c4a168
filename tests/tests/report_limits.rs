//! `mote-agent report state|metrics` with many processes and mounts, and with mounts that hang.
#![allow(clippy::unwrap_used)] // in helpers too: all of this is a test

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use mote_tests::proc::kilobytes;
use mote_tests::report::{report, root};
use mote_tests::{Pair, Private, Scratch, agent, host, in_private, private, skipped};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

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
    root(&scratch.0, (1..=processes).map(|pid| (pid, true)));
    let mut lines = String::new();
    for mount in 0..mounts {
        fs::create_dir(scratch.0.join(format!("m{mount}"))).unwrap();
        lines += &format!("/dev/vd{mount} /m{mount} ext4 rw,relatime,errors=remount-ro 0 0\n");
    }
    fs::write(scratch.0.join("proc/mounts"), lines).unwrap();
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
        // Names and values, without the times and addresses of this machine.
        let complete = report(&scratch.0, "lxd", what);
        let memory = |json: &Value| json.get("memory").cloned();
        let mounts = |json: &Value| json.get("filesystem").cloned();
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

/// Returns the peak memory in kB once everything except `file` is read. A pipe replaces `file`, so
/// the report waits there. The test writes its content later, to let the report end.
fn peak(scratch: &Scratch, what: &str, file: &str) -> u64 {
    use std::io::Write;

    let path = scratch.0.join(file);
    let text = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let mut command = Command::new(agent());
    command.args(["report", what, "--flavour", "lxd", "--root"]).arg(&scratch.0);
    let mut child = mote_tests::bounded(command.stdout(Stdio::piped())).unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(&mut out).unwrap());
    let mut pipe = fs::File::options().write(true).open(&path).unwrap();
    pipe.write_all(&text).unwrap();
    // The report is blocked in the read.
    let status = || fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let (peak, _) = mote_tests::wait("the reporter to wait", Duration::from_secs(10), || {
        std::thread::sleep(Duration::from_millis(100));
        let status = status();
        status.contains("State:\tS").then(|| kilobytes(&status, "VmHWM:").unwrap())
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
        // The names would take 500 kB, and the text about the mounts 850 kB. A busy machine may
        // have more threads.
        assert!(many < few + 256, "{what}: {few} kB with few, {many} kB with many");
    }
}

/// A FUSE mount without a server makes statfs(2) hang. It is in private namespaces, which end with
/// the last process.
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
    // A path through this mount hangs, too.
    dead += "/dev/vdz /dead0/local ext4 rw 0 0\n";
    fs::write(&mounts, format!("{first}\n{dead}{second}")).unwrap();
    // One descriptor per mount: closing it ends the mount. stat(1) proves that the mount hangs; the
    // agent waits 2.5 s.
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
    let missing = fs::File::options().read(true).write(true).open("/dev/fuse").is_err();
    if missing {
        skipped("/dev/fuse, which cannot be opened");
    }
    missing
}

/// Mounts a FUSE server that reads requests but answers none, so nothing can kill a waiting
/// process. Returns the descriptor that keeps it alive.
fn silent_server(directory: &Path) -> fs::File {
    use std::io::{Read, Write};

    let mut device = fs::File::options().read(true).write(true).open("/dev/fuse").unwrap();
    fs::create_dir(directory).unwrap();
    let status = Command::new("mount")
        .args(["-i", "-t", "fuse", "-o", "fd=0,rootmode=40000,user_id=0,group_id=0", "silent"])
        .arg(directory)
        .stdin(device.try_clone().unwrap())
        .status();
    assert!(status.unwrap().success());
    let mut request = vec![0; 1 << 20];
    let length = device.read(&mut request).unwrap();
    assert!(length > 40 && request[4] == 26, "FUSE_INIT");
    // fuse_out_header (length, no error, the request's id), fuse_init_out of version 7.31.
    let mut answer = vec![0; 16 + 64];
    answer[0] = 80;
    answer[8..16].copy_from_slice(&request[8..16]);
    (answer[16], answer[20]) = (7, 31);
    answer[36..40].copy_from_slice(&4096u32.to_ne_bytes());
    device.write_all(&answer).unwrap();
    device
}

/// Unmounts lazily, because a reporter may still be in the directory. A mounted directory cannot be
/// removed.
fn unmount(directory: &Path) {
    assert!(Command::new("umount").arg("-l").arg(directory).status().unwrap().success());
}

#[test]
fn queries_a_mount_with_unkillable_processes_once() {
    use std::io::Read;
    const NAME: &str = "queries_a_mount_with_unkillable_processes_once";

    if no_fuse() || !in_private(Private::Mounts, NAME) {
        return;
    }
    let scratch = large(3, 1);
    fs::create_dir_all(scratch.0.join("run/mote")).unwrap();
    let mounts = scratch.0.join("proc/mounts");
    let healthy = fs::read_to_string(&mounts).unwrap();
    fs::write(&mounts, format!("silent /si\\012lent fuse.x rw 0 0\n{healthy}")).unwrap();
    let mut server = silent_server(&scratch.0.join("si\nlent"));
    let start = || {
        let mut command = Command::new(agent());
        command.args(["report", "metrics", "--flavour", "incus", "--root"]).arg(&scratch.0);
        mote_tests::bounded(command.stdout(Stdio::piped())).unwrap()
    };
    let read = |child: &mut std::process::Child| {
        let text = std::io::read_to_string(child.stdout.take().unwrap()).unwrap();
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["filesystem"].as_array().unwrap().len(), 1, "{text}");
    };
    let mut first = start();
    let mut request = vec![0; 1 << 20];
    assert!(server.read(&mut request).unwrap() >= 40 && request[4] == 17, "FUSE_STATFS");
    // The report is complete, although the process that queries that mount cannot end.
    read(&mut first);
    assert!(first.wait().unwrap().success());
    let hanging = || fs::read_to_string(scratch.0.join("run/mote/hanging")).unwrap();
    let noted = hanging();
    let process = noted.strip_suffix(" /si\\012lent\n").unwrap().to_owned();
    let is_there = || Path::new("/proc").join(&process).exists();
    std::thread::sleep(Duration::from_millis(200));
    assert!(is_there(), "it was killed after all");
    // The next report skips that mount.
    for _ in 0..2 {
        let mut next = start();
        read(&mut next);
        assert!(next.wait().unwrap().success());
        assert_eq!(hanging(), noted);
    }
    drop(server);
    mote_tests::wait("the end of who hangs", Duration::from_secs(10), || {
        (!is_there()).then_some(())
    });
    // No process hangs there, so the next report queries it again: an error costs no time.
    read(&mut start());
    assert_eq!(hanging(), "");
    // If the list of hanging mounts is full, no other mount is queried.
    let many: String = (0..64).map(|at| format!("{} /{at}\n", std::process::id())).collect();
    fs::write(scratch.0.join("run/mote/hanging"), &many).unwrap();
    let server = silent_server(&scratch.0.join("another"));
    fs::write(&mounts, format!("silent /another fuse.x rw 0 0\n{healthy}")).unwrap();
    read(&mut start());
    let asked = poll(&mut [PollFd::new(&server, PollFlags::IN)], Some(&Timespec::default()));
    assert_eq!((asked, hanging()), (Ok(0), many));
    unmount(&scratch.0.join("another"));
    unmount(&scratch.0.join("si\nlent"));
}

#[test]
fn a_bind_mount_does_not_hide_the_root_from_lxd() {
    let pair = Pair::start("lxd", &[]);
    let inside = pair.scratch.0.join("root");
    root(&inside, [(1, true)].into_iter());
    fs::create_dir_all(inside.join("srv")).unwrap();
    let mounts = "/dev/vda1 / ext4 rw 0 0\n/dev/vda1 /srv ext4 rw 0 0\n";
    // A worker reads the second, because a mount may hang.
    for other in ["", "share /nowhere 9p rw 0 0\n"] {
        fs::write(inside.join("proc/mounts"), format!("{mounts}{other}")).unwrap();
        let metrics = pair.host.run(&["metrics", host::NAME, "--json"]);
        let metrics: Value = serde_json::from_str(&metrics).unwrap();
        assert_eq!(metrics["filesystem"]["/dev/vda1"]["mountpoint"], "/", "{metrics}");
    }
}

#[test]
fn the_host_gets_its_answer_although_the_process_cannot_end() {
    use std::io::Read;
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
    let mut server = silent_server(&inside.join("silent"));
    let server = std::thread::spawn(move || {
        let mut request = vec![0; 1 << 20];
        assert!(server.read(&mut request).unwrap() >= 40 && request[4] == 17, "FUSE_STATFS");
        server
    });
    for _ in 0..2 {
        let metrics = pair.host.run(&["metrics", host::NAME, "--json"]);
        let metrics: Value = serde_json::from_str(&metrics).unwrap();
        let list = metrics["filesystem"].as_array().unwrap();
        assert_eq!((list.len(), &list[0]["device"]), (1, &json!("/dev/vda1")));
    }
    let server = server.join().unwrap();
    drop(server);
    unmount(&inside.join("silent"));
}
