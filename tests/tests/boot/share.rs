//! The host's files: templates, a seed for cloud-init, shared directories.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use mote_tests::proc::children;
use mote_tests::wait;
use serde_json::json;

use crate::world::{Boot, LIMIT, fifo};

#[test]
fn a_failed_share_delays_the_start_only_briefly() {
    let boot = Boot::new("lxd");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"mote-none","target":"/mnt/a","fstype":"virtiofs","options":["ro"]},
            {"source":"mote-none","target":"/mnt/../b","fstype":"virtiofs","options":null},
            {"source":"mote-none","target":"mnt/c","fstype":"ext4"}]"#,
    );
    // It is repeated only if the kernel supports the file system.
    boot.put("proc/filesystems", "nodev\tvirtiofs\n");
    let begun = Instant::now();
    let _agent = boot.start(&[]);
    boot.logged("mote-none on /mnt/a: virtiofs: ");
    boot.logged("Path must not contain '..'");
    boot.logged("neither virtiofs nor 9p");
    boot.logged("STARTED");
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert!(boot.root("mnt/a").is_dir() && !boot.root("mnt/c").exists());
    let mode = fs::metadata(boot.root("mnt/a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
}

/// Posts a device event as the host does, with a longer time limit. Returns the answer.
fn post_device(boot: &Boot, name: &str, path: &str) -> String {
    let agent = boot.client();
    let event = json!({"type": "device", "metadata": {"action": "added", "name": name,
        "config": {"type": "disk", "source": "/tmp", "path": path}}});
    agent.ask("POST", "/1.0/events", &event.to_string()).expect("an answer").short()
}

#[test]
fn kills_a_mount_that_hangs() {
    let boot = Boot::new("lxd");
    let entry = r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#;
    boot.share("agent-mounts.json", entry);
    // The worker reads this before it mounts, and hangs on it in this test.
    fs::create_dir_all(boot.root("proc/self")).unwrap();
    let table = boot.root("proc/self/mountinfo");
    fifo(&table);
    let begun = Instant::now();
    let agent = boot.start(&[]);
    boot.logged("mount: timed out");
    boot.logged("CONNECTED");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(5), "{took:?}");
    let begun = Instant::now();
    let why = post_device(&boot, "disk1", "/mnt/d");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(2), "{took:?}");
    assert!(why.starts_with("500 ") && why.contains("\"lxd_disk1\": not mounted yet; "), "{why}");
    // The worker still hangs. Others are served meanwhile, and no process remains at the end.
    let workers = || children(agent.0.id());
    assert_eq!(workers().len(), 1);
    assert_eq!(boot.ask(&["config"]).0, Some(0));
    wait("no worker", LIMIT, || workers().is_empty().then_some(()));
    assert_eq!(boot.log().matches("mount: timed out").count(), 2);
}

#[test]
fn answers_hundreds_of_device_events_and_keeps_a_limited_number() {
    const EVENTS: usize = 120;
    let boot = Boot::new("lxd");
    fs::create_dir_all(boot.root("proc/self")).unwrap();
    // Each worker hangs here.
    fifo(&boot.root("proc/self/mountinfo"));
    let mut agent = boot.start(&[]);
    boot.logged("CONNECTED");
    let long = "./".repeat(30_000);
    let post =
        |number: usize| post_device(&boot, &format!("d{number}"), &format!("/{long}{number}"));
    let answers: Vec<String> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..EVENTS).map(|number| scope.spawn(move || post(number))).collect();
        all.into_iter().map(|one| one.join().expect("a thread")).collect()
    });
    let with = |why: &str| answers.iter().filter(|answer| answer.contains(why)).count();
    let (waiting, busy) = (with("not mounted yet"), with("too many device events at once"));
    assert!(waiting > 0 && busy > 0 && waiting + busy <= EVENTS, "{waiting} {busy}");
    assert!(answers.iter().all(|answer| answer.starts_with("50")), "{answers:?}");
    // Others are served meanwhile.
    assert_eq!(boot.ask(&["config"]).0, Some(0));
    // A killed agent leaves no worker, which would mount after its successor.
    let (worker, _) = wait("a worker", LIMIT, || children(agent.0.id()).pop());
    agent.kill();
    let line = || fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
    wait("the worker's end", LIMIT, || line().is_empty().then_some(()));
}
