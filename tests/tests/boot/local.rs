//! Problems in the guest itself: signals, `/run`, descriptors, an endless port.

use mote_tests::prelude::*;

use crate::world::{Boot, LIMIT, connected, in_private_mounts, mount, terminate};

#[test]
fn creates_a_missing_run_readable_for_all() {
    let boot = Boot::new("lxd");
    let _agent = boot.start(&[]);
    boot.serves();
    for made in ["run", "run/mote"] {
        let mode = fs::metadata(boot.root(made)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "{made}");
    }
}

#[test]
fn reports_and_survives_a_read_only_run() {
    let true = in_private_mounts("local::reports_and_survives_a_read_only_run") else { return };
    let boot = Boot::new("lxd");
    fs::create_dir_all(boot.root("run")).unwrap();
    mount(&["-t", "tmpfs", "-o", "ro", "tmpfs"], &boot.root("run"));
    let mut agent = boot.start(&[]);
    boot.serves();
    boot.logged(
        "Read-only file system (os error 30); mount a tmpfs on /run; until then mote cannot",
    );
    boot.logged("CONNECTED");
    assert_eq!(boot.ask(&["ready"]).0, Some(0));
    // Wait long enough for a few checks of the lock.
    thread::sleep(Duration::from_millis(2500));
    assert!(!boot.log().contains("no longer this agent's"), "{}", boot.log());
    assert_eq!(boot.log().matches("run/mote/status: ").count(), 1, "{}", boot.log());
    mount(&["-o", "remount,rw", "tmpfs"], &boot.root("run"));
    until("Ready", LIMIT, || boot.text("run/mote/ready") == "Ready");
    assert!(boot.ask(&[]).1.contains("another mote-agent is running"));
    assert_eq!(terminate(&mut agent), Some(0));
    assert!(Command::new("umount").arg(boot.root("run")).status().unwrap().success());
}

#[test]
fn survives_closed_descriptors_and_a_missing_dev_null() {
    let true = in_private_mounts("local::survives_closed_descriptors_and_a_missing_dev_null")
    else {
        return;
    };
    let boot = Boot::new("lxd");
    let start = |script: &str, args: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]).arg(agent()).args(boot.command(args).get_args());
        Process::bounded(shell.stdin(Stdio::piped()).stdout(Stdio::piped()))
    };
    mount(&["-t", "tmpfs", "tmpfs"], "/dev".as_ref());
    let mut agent = start("exec \"$@\" 0<&- 1>&- 2>&-", &[]);
    boot.serves();
    // Runs a command of the agent without the standard descriptors, and then with them.
    for script in ["exec \"$@\" 0<&- 1>&- 2>&-", "exec \"$@\""] {
        let mut ready = start(script, &["ready"]);
        assert_eq!(ready.ends(LIMIT), Some(0), "{script}");
    }
    assert_eq!(terminate(&mut agent), Some(0));
}

/// Commands run, but actions that re-execute the agent or read `/proc` report that it is missing.
#[test]
fn reports_a_missing_proc_everywhere() {
    const WHY: &str = "/proc is not mounted, so the host gets no files, state or metrics: \
                       mount -t proc proc /proc";
    let true = in_private_mounts("local::reports_a_missing_proc_everywhere") else { return };
    let boot = Boot::whole("lxd");
    fs::remove_dir_all(boot.root("proc")).unwrap();
    let hide = "mount -t tmpfs none /proc && exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", hide, "sh"]).arg(agent()).args(boot.command(&[]).get_args());
    let log = File::options().append(true).open(boot.scratch.0.join("agent.log"));
    let mut agent = Process::start(shell.stdin(Stdio::null()).stderr(log.unwrap()));
    boot.serves();
    boot.logged(&format!("warn: {WHY}"));
    boot.logged("CONNECTED");
    assert_eq!(
        boot.host.run(&["exec", "-n", NAME, "--cwd", "/", "--", "echo", "served"]),
        "served\n"
    );
    let file = boot.scratch.0.join("file");
    fs::write(&file, "").unwrap();
    let push = ["file", "push", file.to_str().unwrap(), &format!("{NAME}/file")];
    for words in [&push[..], &["state", NAME], &["metrics", NAME]] {
        let why = boot.host.try_run(words).unwrap_err();
        assert!(why.contains(WHY), "{words:?}: {why}");
    }
    exits(boot.says(&["--check"]), Some(1), &[&format!("missing  proc: {WHY}\n")]);
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn reports_an_endless_port_at_little_cost() {
    let boot = Boot::new("lxd");
    let path = boot.scratch.0.join("port");
    fifo(&path);
    let fifo = File::options().read(true).write(true).open(&path).unwrap();
    let _flood = Process::start(Command::new("cat").arg("/dev/zero").stdout(fifo));
    for port in [path.to_str().unwrap(), "/dev/zero", "/dev/urandom"] {
        let _stale = fs::remove_dir_all(boot.root("dev"));
        let mut agent = boot.start(&["--port", port]);
        boot.serves();
        thread::sleep(Duration::from_millis(500));
        let busy = proc::busy(agent.0.id(), Duration::from_secs(3));
        assert!(busy < 0.1, "{port}: {busy} of the time that it could have run");
        boot.serves();
        assert_eq!(terminate(&mut agent), Some(0));
    }
    boot.logged("serial line refused: endless input");
    boot.logged("cannot open /dev/zero: that device is not a port");
    let mut log = String::new();
    File::open(boot.scratch.0.join("agent.log")).unwrap().read_to_string(&mut log).unwrap();
    assert!(log.matches("endless input").count() <= 4, "{log}");
}

#[test]
fn systemd_never_gives_up() {
    let unit = include_str!("../../../image/services/mote-agent.service");
    let has = |line: &str| unit.lines().any(|other| other == line);
    // systemd restarts it after any number of failures; both settings are in the section for it.
    assert!(has("Restart=on-failure") && has("StartLimitIntervalSec=0"), "{unit}");
    let (general, _) = unit.split_once("[Service]").unwrap();
    assert!(general.contains("StartLimitIntervalSec=0"));
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
    // The mount is repeated only if the kernel supports the file system.
    boot.put("proc/filesystems", "nodev\tvirtiofs\n");
    let begun = Instant::now();
    let _agent = boot.start(&[]);
    boot.logged("mote-none on /mnt/a: virtiofs: ");
    boot.logged("Path must not contain '..'");
    boot.logged("neither virtiofs nor 9p");
    boot.logged("STARTED");
    assert!(begun.elapsed() > Duration::from_millis(1500), "{:?}", begun.elapsed());
    assert!(boot.root("mnt/a").is_dir() && !boot.root("mnt/c").exists());
    assert_eq!(fs::metadata(boot.root("mnt/a")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn mounts_what_was_added_while_the_host_was_away() {
    let mut boot = Boot::new("lxd");
    let entry = |tag: &str| {
        format!(r#"[{{"source":"{tag}","target":"/mnt/a","fstype":"virtiofs","options":null}}]"#)
    };
    let _agent = boot.up(&[]);
    for (times, tag) in [(2, "first"), (3, "second")] {
        boot.share("agent-mounts.json", &entry(tag));
        boot.host.restart();
        boot.client().announce();
        connected(&boot, times);
        boot.logged(&format!("audit: mount \"{tag} on /mnt/a: "));
    }
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
    fifo(&boot.root("proc/self/mountinfo"));
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
    // The worker still hangs. The agent serves others meanwhile, and no process remains at the end.
    let workers = || proc::children(agent.0.id());
    assert_eq!(workers().len(), 1);
    assert_eq!(boot.ask(&["config"]).0, Some(0));
    until("no worker", LIMIT, || workers().is_empty());
    assert_eq!(boot.log().matches("mount: timed out").count(), 2);
}

#[test]
fn answers_hundreds_of_device_events_and_keeps_a_limited_number() {
    const EVENTS: usize = 120;
    let boot = Boot::new("lxd");
    fs::create_dir_all(boot.root("proc/self")).unwrap();
    // Each worker hangs when it reads this file.
    fifo(&boot.root("proc/self/mountinfo"));
    let mut agent = boot.up(&[]);
    let long = "./".repeat(30_000);
    let post =
        |number: usize| post_device(&boot, &format!("d{number}"), &format!("/{long}{number}"));
    let answers: Vec<String> = thread::scope(|scope| {
        let all: Vec<_> = (0..EVENTS).map(|number| scope.spawn(move || post(number))).collect();
        all.into_iter().map(|one| one.join().expect("a thread")).collect()
    });
    let with = |why: &str| answers.iter().filter(|answer| answer.contains(why)).count();
    let (waiting, busy) = (with("not mounted yet"), with("too many device events at once"));
    assert!(waiting > 0 && busy > 0 && waiting + busy <= EVENTS, "{waiting} {busy}");
    assert!(answers.iter().all(|answer| answer.starts_with("50")), "{answers:?}");
    // Meanwhile, the agent serves others.
    assert_eq!(boot.ask(&["config"]).0, Some(0));
    // A killed agent leaves no worker, which would mount after its successor.
    let (worker, _) = wait("a worker", LIMIT, || proc::children(agent.0.id()).pop());
    agent.kill();
    let line = || fs::read(format!("/proc/{worker}/cmdline")).unwrap_or_default();
    until("the worker's end", LIMIT, || line().is_empty());
}

// Templates and the guest's policy: denied templates are not written, nor the policy's own files.

/// A policy file that allows no commands.
const STRICT: &str = "features: {guestapi: true, templates: true}\n";
const EVIL: &str = "features: {exec: true}\n";

fn render(boot: &Boot, targets: &[&str]) {
    let listed: Vec<_> =
        targets.iter().map(|target| format!("  {target}: {{template: t}}\n")).collect();
    boot.share("files/metadata.yaml", &format!("templates:\n{}", listed.concat()));
    boot.share("files/t.out", EVIL);
}

#[test]
fn writes_no_template_if_the_guest_denies_them() {
    for (flavour, file, text, args) in [
        ("lxd", "etc/mote-agent.yml", "features: {guestapi: true}\n", &[][..]),
        ("lxd", "etc/none", "", &["--allow", "guestapi,exec"]),
        ("lxd", "etc/none", "", &["--deny", "templates"]),
        ("incus", "etc/incus-agent.yml", "features: {guestapi: true, templates: false}\n", &[]),
        // A policy that cannot be parsed may have denied templates.
        ("lxd", "etc/mote-agent.yml", "features: {templates: *x}\n", &["--allow", "guestapi"]),
    ] {
        let boot = Boot::new(flavour);
        boot.put(file, text);
        render(&boot, &["/etc/cron.d/evil", "/etc/hostname"]);
        boot.put("proc/sys/kernel/hostname", "old\n");
        let _agent = boot.start(args);
        boot.logged("STARTED");
        assert!(!boot.root("etc/cron.d").exists(), "{file} {args:?}");
        assert_eq!(boot.text("proc/sys/kernel/hostname"), "old\n");
        assert_eq!(boot.text(file), text);
        let log = boot.log();
        assert_eq!(log.matches("the policy denies templates").count(), 1, "{log}");
    }
}

#[test]
fn no_template_changes_the_policys_files() {
    let boot = Boot::new("incus");
    boot.put("etc/mote-agent.yml", STRICT);
    boot.put("etc/x/y", "");
    // Targets that lead to the policy's files: directories, files and links.
    symlink("etc", boot.root("config")).unwrap();
    symlink("../etc", boot.root("etc/up")).unwrap();
    symlink("x/../../etc/mote-agent.yml", boot.root("etc/file")).unwrap();
    symlink("file", boot.root("etc/again")).unwrap();
    symlink("incus-agent.yml", boot.root("etc/dangling")).unwrap();
    fs::hard_link(boot.root("etc/mote-agent.yml"), boot.root("hard")).unwrap();
    let bad = [
        "/etc/mote-agent.yml",
        "//etc/./mote-agent.yml",
        "/config/mote-agent.yml",
        "/etc/up/mote-agent.yml",
        "/etc/file",
        "/etc/again",
        "/hard",
        "/etc/incus-agent.yml",
        "/etc/incus-agent.yml/below",
        "/config/incus-agent.yml",
        "/etc/dangling",
    ];
    let good = ["/etc/good", "/etc/up/good2", "/etc/mote-agent.yml.d/good3"];
    render(&boot, &[&bad[..], &good[..]].concat());
    let _agent = boot.start(&[]);
    boot.logged("STARTED");
    let log = boot.log();
    for target in bad {
        let said = format!("template {target}: it would change the guest's policy");
        assert!(log.contains(&said), "{target}: {log}");
    }
    assert_eq!(boot.text("etc/mote-agent.yml"), STRICT);
    assert!(!boot.root("etc/incus-agent.yml").exists());
    for target in good {
        assert_eq!(boot.text(target.trim_start_matches('/')), EVIL, "{target}");
    }
}

#[test]
fn writes_no_seed_and_does_not_reboot_without_first_boot() {
    let boot = Boot::new("lxd");
    let seed = "var/lib/cloud/seed/nocloud-net/meta-data";
    fs::create_dir_all(boot.root("etc/cloud")).unwrap();
    render(&boot, &[&format!("/{seed}"), "/etc/other"]);
    let _agent = boot.start(&["--deny", "first-boot"]);
    boot.logged("STARTED");
    boot.logged("the policy denies cloud-init's seed");
    assert!(!boot.root(seed).exists() && !boot.log().contains("reboot"), "{}", boot.log());
    assert_eq!(boot.text("etc/other"), EVIL);
}

#[test]
fn changes_no_nic_without_network() {
    let nic = r#"{"device_name":"x","nic_name":"mote0","mac_address":"00:16:3e:00:00:77","mtu":0}"#;
    for (denied, said, unsaid) in [
        ("state", "no NIC has 00:16:3e:00:00:77", "the policy denies renaming"),
        ("network", "the policy denies renaming NICs", "no NIC has"),
    ] {
        let boot = Boot::new("lxd");
        boot.share("nics/x.json", nic);
        let _agent = boot.start(&["--deny", denied]);
        boot.logged("STARTED");
        let log = boot.log();
        assert!(log.contains(said) && !log.contains(unsaid), "{log}");
    }
}
