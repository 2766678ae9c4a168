//! The host's files: templates, a seed for cloud-init, shared directories.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mote_tests::conform::client::{Client, Way};
use mote_tests::host::NAME;
use mote_tests::{Process, by_root, wait};
use serde_json::json;

use crate::world::{Boot, LIMIT, NOBODY, fifo, terminate};

#[test]
fn applies_templates_and_hostname_before_serving() {
    for flavour in ["lxd", "lxd-5.0", "incus"] {
        let boot = Boot::new(flavour);
        boot.put("proc/sys/kernel/hostname", "old\n");
        boot.put("etc/kept", "kept");
        boot.share(
            "files/metadata.yaml",
            "architecture: x86_64\ntemplates:\n  /etc/hostname:\n    when:\n    - create\n    template: \
             hostname.tpl\n  /etc/kept: {template: kept, create_only: true}\n  /etc/notdue: {template: \
             other}\n  /../etc/out: {template: kept}\n  /opt/app/conf: {template: conf, mode: '0600'}\n",
        );
        boot.share("files/hostname.tpl.out", "c1-from-host\n");
        boot.share("files/kept.out", "not this");
        boot.share("files/conf.out", "a=b\n");
        let _agent = boot.start(&[]);
        boot.serves();
        assert_eq!(boot.text("etc/hostname"), "c1-from-host\n");
        assert_eq!(boot.text("proc/sys/kernel/hostname"), "c1-from-host\n");
        assert_eq!(boot.text("etc/kept"), "kept");
        assert_eq!(boot.text("opt/app/conf"), "a=b\n");
        let mode = |path| fs::metadata(boot.root(path)).unwrap().permissions().mode() & 0o7777;
        let expected = if flavour == "incus" { 0o600 } else { 0o644 };
        assert_eq!(
            (mode("opt/app/conf"), mode("opt/app"), mode("etc/hostname")),
            (expected, 0o755, 0o644)
        );
        assert!(!boot.root("etc/notdue").exists() && !boot.scratch.0.join("etc").exists());
        let log = boot.log();
        assert!(log.contains("absolute path without '..'"), "{log}");
        let served = log.find("devlxd on").unwrap();
        assert!(log.find("hostname c1-from-host").unwrap() < served, "{log}");
    }
}

#[test]
fn templates_do_not_follow_a_users_links() {
    if !by_root() {
        return;
    }
    let boot = Boot::new("lxd");
    boot.put("etc/a", "old");
    boot.put("etc/b", "old");
    boot.share(
        "files/metadata.yaml",
        "templates: {/home/a: {template: t}, /home/b/c: {template: t}, /home/d: {template: t}, \
         /home/e: {template: t}, /link/f: {template: t}}",
    );
    boot.share("files/t.out", "new");
    fs::create_dir(boot.root("home")).unwrap();
    let links = [("../etc/a", "home/a"), ("/etc", "home/b"), ("etc", "link")];
    for (target, link) in links {
        symlink(target, boot.root(link)).unwrap();
    }
    fs::hard_link(boot.root("etc/b"), boot.root("home/d")).unwrap();
    chown(boot.root("home"), Some(NOBODY), None).unwrap();
    lchown(boot.root("home/a"), Some(NOBODY), None).unwrap();
    let _agent = boot.start(&[]);
    boot.serves();
    // A user may have his own file, and root's link leads where root wants.
    assert_eq!((boot.text("home/e"), boot.text("etc/f")), ("new".into(), "new".into()));
    assert_eq!((boot.text("etc/a"), boot.text("etc/b")), ("old".into(), "old".into()));
    assert!(!boot.root("etc/c").exists());
    let log = boot.log();
    for part in ["home/a is not followed", "home/b is not followed", "home/d: a hard link"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

#[test]
fn ignores_a_working_directory_that_others_can_write() {
    let boot = Boot::new("lxd");
    boot.put("etc/x", "");
    let place = boot.root("tmp");
    let copied = Command::new("cp").arg("-R").arg(&boot.host.share).arg(&place).status();
    assert!(copied.unwrap().success());
    let check = |mode| {
        fs::set_permissions(&place, fs::Permissions::from_mode(mode)).unwrap();
        let mut agent = Command::new(mote_tests::agent());
        let agent = agent.arg("--root").arg(boot.root("")).arg("--check").current_dir(&place);
        String::from_utf8(agent.output().expect("an agent").stdout).unwrap()
    };
    let text = check(0o1777);
    let refused = "the working directory: not used, because users other than root can change it";
    assert!(text.contains(refused), "{text}");
    let text = check(0o755);
    assert!(!text.contains(refused) && text.contains("the working directory"), "{text}");
}

/// Returns whether the root is on a disk: a seed in memory causes no reboot.
fn on_disk(boot: &Boot) -> bool {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("boot{}", std::process::id()));
    let _stale = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    let _first = fs::remove_dir_all(boot.root(""));
    symlink(&path, boot.scratch.0.join("root")).expect("a link");
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&path).output();
    let kind = kind.expect("stat").stdout;
    !["tmpfs", "ramfs"].contains(&String::from_utf8_lossy(&kind).trim())
}

#[test]
fn a_new_cloud_init_seed_reboots_once_before_any_announcement() {
    let boot = Boot::new("lxd");
    let keeps = on_disk(&boot);
    boot.put("run/cloud-init/result.json", "{}");
    boot.put("sbin/reboot", "#!/bin/sh\necho called >>\"${0%/*}/called\"\n");
    fs::set_permissions(boot.root("sbin/reboot"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir_all(boot.root("etc/cloud")).unwrap();
    let seed = "var/lib/cloud/seed/nocloud-net/meta-data";
    boot.share("files/metadata.yaml", &format!("templates: {{/{seed}: {{template: seed}}}}"));
    boot.share("files/seed.out", "instance-id: a\n");
    let port = boot.scratch.0.join("port");
    assert!(Command::new("mkfifo").arg(&port).status().unwrap().success());
    let port = port.display().to_string();
    let mut agent = boot.start(&["--port", &port]);
    if keeps {
        boot.logged("rebooting");
        wait("the command", LIMIT, || boot.root("sbin/called").exists().then_some(()));
        assert!(!boot.root("run/cloud-init").exists());
        // In this second it could have announced itself several times.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!boot.root("run/mote/status").exists() && !boot.root("dev/lxd/sock").exists());
        assert_eq!(terminate(&mut agent), Some(0));
        assert!(!boot.log().contains("STARTED"), "{}", boot.log());
    } else {
        boot.serves();
        assert!(boot.log().contains("it is in memory"), "{}", boot.log());
        agent.kill();
    }
    // After the reboot the share is unchanged, and the seed exists: no second reboot.
    let _agent = boot.start(&["--port", &port]);
    boot.serves();
    let called = boot.text("sbin/called");
    assert_eq!(called, if keeps { "called\n" } else { "" });
    let _gone = fs::remove_dir_all(fs::canonicalize(boot.root("")).unwrap());
}

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
    // The caller that adds a device gets the error, but the device stays.
    boot.put("proc/filesystems", "nodev\ttmpfs\n");
    // The host tells agents that have called.
    boot.logged("CONNECTED");
    let add = ["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"];
    let why = boot.host.try_run(&add).unwrap_err();
    let said = "Failed hotpluging device \"lxd_disk1\": lxd_disk1 on /mnt/d: virtiofs: ";
    assert!(why.contains(said), "{why}");
    boot.logged("lxd_disk1 on /mnt/d: virtiofs: ");
    boot.host.ok(&["device-remove", NAME, "disk1"]);
    boot.logged("nothing is mounted");
}

/// Posts a device event as the host does, with a longer time limit. Returns the answer.
fn post_device(boot: &Boot, action: &str, name: &str, path: &str) -> String {
    let agent = Client::new(Way::Socket(boot.scratch.0.join("vs.listen_8443")), &boot.host);
    let event = json!({"type": "device", "metadata": {"action": action, "name": name,
        "config": {"type": "disk", "source": "/tmp", "path": path}}});
    agent.ask("POST", "/1.0/events", &event.to_string()).expect("an answer").short()
}

/// The vectors of LXD's `lxd-agent/events_test.go`, and what others answer.
#[test]
fn reports_a_failed_mount_only_to_lxds_host() {
    for flavour in ["lxd", "lxd-5.0", "incus"] {
        let boot = Boot::new(flavour);
        let _agent = boot.start(&[]);
        boot.logged("STARTED");
        let post = |action, path: &str| post_device(&boot, action, "d1", path);
        let added = |path: &str, why: &str| {
            let expected = if flavour == "lxd" { format!("500 {why}") } else { "200".into() };
            assert_eq!(post("added", path), expected, "{flavour}");
        };
        added("/mnt/../d1", "Invalid path \"/mnt/../d1\": Path must not contain '..'");
        added("/", "Invalid path \"/\": not a valid mount point");
        added("/\u{1b}]0;x/..", "Invalid path \"/\\u{1b}]0;x/..\": Path must not contain '..'");
        assert_eq!(post("removed", "/mnt/../d1"), "200");
        assert_eq!(post("updated", "/mnt/../d1"), "200");
    }
}

#[test]
fn kills_a_mount_that_hangs() {
    let boot = Boot::new("lxd");
    let entry = r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#;
    boot.share("agent-mounts.json", entry);
    // The worker reads this before it mounts, and hangs on it in this test.
    fs::create_dir_all(boot.root("proc/self")).unwrap();
    let table = boot.root("proc/self/mountinfo");
    assert!(Command::new("mkfifo").arg(&table).status().unwrap().success());
    let begun = Instant::now();
    let agent = boot.start(&[]);
    boot.logged("mount: timed out");
    boot.logged("CONNECTED");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(5), "{took:?}");
    let begun = Instant::now();
    let why = post_device(&boot, "added", "disk1", "/mnt/d");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(2), "{took:?}");
    assert!(why.starts_with("500 ") && why.contains("\"lxd_disk1\": not mounted yet; "), "{why}");
    // The worker still hangs. Others are served meanwhile, and no process remains in the end.
    let workers = || children(&agent);
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
    let _agent = boot.start(&[]);
    boot.logged("CONNECTED");
    let long = "./".repeat(30_000);
    let post = |number: usize| {
        post_device(&boot, "added", &format!("d{number}"), &format!("/{long}{number}"))
    };
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
}

/// Returns the child processes, including dead ones.
fn children(process: &Process) -> Vec<String> {
    let pid = process.0.id();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a living agent");
    let text: String = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect();
    text.split_whitespace().map(str::to_owned).collect()
}
