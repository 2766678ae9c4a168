//! The real binary at its start, in a directory in place of `/`: what it makes of the host's files,
//! what the guest's policy allows, and that no reader of its output can stop it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mote_tests::host::{Host, NAME};
use mote_tests::{Process, Scratch, agent, wait};

/// For each thing that is waited for, on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// A host, and a root that no agent has started in yet.
struct Boot {
    host: Host,
    flavour: &'static str,
    scratch: Scratch,
}

impl Boot {
    fn new(flavour: &'static str) -> Self {
        let scratch = Scratch::new();
        let prefix = scratch.0.join("vs").display().to_string();
        let args = ["--flavour", flavour, "--vsock-plain", &prefix, "--qmp", "/nowhere"];
        let mut host = Host::new(&scratch.0, &args);
        host.start();
        fs::create_dir_all(scratch.0.join("root/proc/sys/kernel")).expect("a root");
        Self { host, flavour, scratch }
    }

    fn root(&self, path: &str) -> PathBuf {
        self.scratch.0.join("root").join(path)
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root(path)).unwrap_or_default()
    }

    /// A file of the guest.
    fn put(&self, path: &str, text: &str) {
        write(&self.root(path), text);
    }

    /// A file of the share.
    fn share(&self, path: &str, text: &str) {
        write(&self.host.share.join(path), text);
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = agent::command(&self.scratch.0, self.flavour, &self.host.share);
        command.args(args);
        command
    }

    fn start(&self, args: &[&str]) -> Process {
        Process::start(&mut self.command(args))
    }

    /// Asks the running agent; exit code and complaint.
    fn ask(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).stderr(Stdio::piped()).output().expect("an agent");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.scratch.0.join("agent.log")).unwrap_or_default()
    }

    fn logged(&self, mark: &str) {
        wait(mark, LIMIT, || self.log().contains(mark).then_some(()));
    }

    /// Waits until guests are served.
    fn serves(&self) {
        let sockets = [self.root("dev/lxd/sock"), self.root("dev/incus/sock")];
        wait("devlxd", LIMIT, || sockets.iter().find_map(|path| UnixStream::connect(path).ok()));
    }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, text).expect("a file");
}

fn terminate(agent: &mut Process) -> Option<i32> {
    let pid = agent.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().expect("kill").success());
    let (status, _) = wait("its end", LIMIT, || agent.0.try_wait().ok().flatten());
    status.code()
}

#[test]
fn templates_are_applied_and_the_hostname_is_set_before_anybody_is_served() {
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

/// A root on a disk: a seed in memory asks for no reboot.
fn on_disk(boot: &Boot) -> bool {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("boot{}", std::process::id()));
    let _stale = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("a directory");
    let _first = fs::remove_dir_all(boot.root(""));
    std::os::unix::fs::symlink(&path, boot.scratch.0.join("root")).expect("a link");
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(&path).output();
    let kind = kind.expect("stat").stdout;
    !["tmpfs", "ramfs"].contains(&String::from_utf8_lossy(&kind).trim())
}

#[test]
fn a_new_seed_for_cloud_init_asks_for_one_reboot_and_nothing_is_announced_meanwhile() {
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
        // A second in which it could have announced itself a few times.
        std::thread::sleep(Duration::from_secs(1));
        assert!(!boot.root("run/mote/status").exists() && !boot.root("dev/lxd/sock").exists());
        assert_eq!(terminate(&mut agent), Some(0));
        assert!(!boot.log().contains("STARTED"), "{}", boot.log());
    } else {
        boot.serves();
        assert!(boot.log().contains("it is in memory"), "{}", boot.log());
        agent.kill();
    }
    // After the reboot the share is as it was, and the seed is there: no second one.
    let _agent = boot.start(&["--port", &port]);
    boot.serves();
    let called = boot.text("sbin/called");
    assert_eq!(called, if keeps { "called\n" } else { "" });
    let _gone = fs::remove_dir_all(fs::canonicalize(boot.root("")).unwrap());
}

#[test]
fn shares_are_tried_and_what_fails_holds_nothing_up_for_long() {
    let boot = Boot::new("lxd");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"mote-none","target":"/mnt/a","fstype":"virtiofs","options":["ro"]},
            {"source":"mote-none","target":"/mnt/../b","fstype":"virtiofs","options":null},
            {"source":"mote-none","target":"mnt/c","fstype":"ext4"}]"#,
    );
    // It is tried again only where the kernel has the file system.
    boot.put("proc/filesystems", "nodev\tvirtiofs\n");
    let begun = Instant::now();
    let _agent = boot.start(&[]);
    boot.logged("mote-none on /mnt/a: virtiofs: ");
    boot.logged("not a path to mount on");
    boot.logged("neither virtiofs nor 9p");
    boot.logged("STARTED");
    assert!(
        begun.elapsed() > Duration::from_millis(1500) && begun.elapsed() < Duration::from_secs(30)
    );
    assert!(boot.root("mnt/a").is_dir() && !boot.root("mnt/c").exists());
    let mode = fs::metadata(boot.root("mnt/a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    // A device event is answered well, whatever comes of it.
    boot.put("proc/filesystems", "nodev\ttmpfs\n");
    // The host tells agents that have called.
    boot.logged("CONNECTED");
    boot.host.ok(&["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"]);
    boot.logged("lxd_disk1 on /mnt/d: virtiofs: ");
    boot.host.ok(&["device-remove", NAME, "disk1"]);
    boot.logged("nothing is mounted");
}

#[test]
fn a_mount_that_hangs_for_ever_is_killed_and_keeps_nobody_waiting_longer() {
    let boot = Boot::new("lxd");
    let entry = r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#;
    boot.share("agent-mounts.json", entry);
    // The worker reads this before it mounts: where it hangs in a test.
    fs::create_dir_all(boot.root("proc/self")).unwrap();
    let table = boot.root("proc/self/mountinfo");
    assert!(Command::new("mkfifo").arg(&table).status().unwrap().success());
    let begun = Instant::now();
    let agent = boot.start(&[]);
    boot.logged("mount: timed out");
    boot.logged("CONNECTED");
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(5) && took < Duration::from_secs(20), "{took:?}");
    let begun = Instant::now();
    boot.host.ok(&["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"]);
    let took = begun.elapsed();
    assert!(took > Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    boot.logged("the host is answered before");
    // It is still at it; others are served meanwhile, and nothing is left of it in the end.
    let workers = || children(&agent);
    assert_eq!(workers().len(), 1);
    assert_eq!(boot.ask(&["config"]).0, Some(0));
    wait("no worker", LIMIT, || workers().is_empty().then_some(()));
    assert_eq!(boot.log().matches("mount: timed out").count(), 2);
}

/// The processes that this one has started, dead ones among them.
fn children(process: &Process) -> Vec<String> {
    let pid = process.0.id();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a living agent");
    let text: String = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default())
        .collect();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn a_guest_that_denies_mounts_mounts_nothing_and_answers_all_the_same() {
    let boot = Boot::new("lxd");
    boot.put("etc/mote-agent.yml", "features: {guestapi: true, exec: true}\n");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"t","target":"/mnt/a","fstype":"virtiofs","options":null}]"#,
    );
    let _agent = boot.start(&[]);
    boot.logged("agent-mounts.json is not read");
    boot.logged("CONNECTED");
    boot.host.ok(&["device-add", NAME, "disk1", "type=disk", "path=/mnt/d", "source=/srv"]);
    boot.logged("a device event mounts nothing");
    assert!(!boot.root("mnt").exists());
}

#[test]
fn the_guests_policy_counts_for_every_server_and_a_broken_one_denies_everything() {
    let exec = |boot: &Boot| boot.host.try_run(&["exec", NAME, "--", "true"]);
    for (flavour, file) in [("lxd", "etc/mote-agent.yml"), ("incus", "etc/incus-agent.yml")] {
        let boot = Boot::new(flavour);
        boot.put(file, "features:\n  guestapi: true\n  exec: false\n");
        let mut agent = boot.start(&[]);
        boot.serves();
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("allow exec")));
        agent.kill();
        boot.put(file, "features: {guestapi: true, exec: true}\n");
        agent = boot.start(&["--deny", "guestapi"]);
        boot.logged("STARTED");
        wait("exec", LIMIT, || exec(&boot).ok());
        assert!(!boot.log().split("policy: denied").last().unwrap().contains("devlxd on"));
        agent.kill();
        boot.put(file, "features: {exec: *x}\n");
        let _agent = boot.start(&[]);
        boot.logged("line 1: an alias is not supported");
        wait("a refusal", LIMIT, || exec(&boot).err().filter(|why| why.contains("policy")));
    }
}

#[test]
fn check_tells_what_would_be_done_and_does_nothing() {
    let boot = Boot::new("incus");
    boot.share("files/metadata.yaml", "templates: {/etc/x: {template: x}, /etc/y: {template: y}}");
    boot.share("files/x.out", "x");
    boot.share(
        "agent-mounts.json",
        r#"[{"source":"incus_d","target":"/mnt/d","fstype":"virtiofs"}]"#,
    );
    boot.put("etc/incus-agent.yml", "features: {exec: true}");
    let output = boot.command(&["--check"]).stdout(Stdio::piped()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    for line in [
        "templates: 1 due at start",
        "mount: incus_d on /mnt/d",
        "policy: denied: guestapi files mounts port-forward metrics state",
        "NICs: 0 to be named",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!boot.root("etc/x").exists() && !boot.root("mnt").exists());
}

#[test]
fn a_closed_output_is_an_exit_code() {
    let boot = Boot::new("lxd");
    for args in [&["--help"][..], &["--version"], &["--check"], &["status"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = boot.command(args).stdout(writer).spawn().unwrap();
        let (status, _) = wait("its end", LIMIT, || child.try_wait().ok().flatten());
        assert!(matches!(status.code(), Some(1 | 3)), "{args:?}: {status}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = boot.command(&["--help"]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn an_error_output_that_nobody_reads_stops_nothing_and_the_loss_is_told() {
    let boot = Boot::new("lxd");
    let (mut reader, writer) = full_pipe(&boot.scratch.0.join("stderr"));
    let mut agent = Process::start(boot.command(&[]).stderr(writer));
    boot.serves();
    assert!(agent.0.try_wait().unwrap().is_none());
    // Somebody comes back and reads: the next lines are there, and how many were not.
    let begun = Instant::now();
    let mut text = read_some(&mut reader);
    assert!(!text.contains("devlxd"), "it was not full");
    assert_eq!(terminate(&mut agent), Some(0));
    while !text.contains("STOPPED") && begun.elapsed() < LIMIT {
        text += &read_some(&mut reader);
    }
    let text = text.trim_start_matches('#');
    assert!(text.contains("lines lost") && text.contains("STOPPED"), "{text}");
}

#[test]
fn a_terminal_that_is_stopped_stops_nothing() {
    let boot = Boot::new("lxd");
    // script(1) gives the agent a terminal; nobody reads what script prints, so the terminal fills.
    let (_reader, writer) = full_pipe(&boot.scratch.0.join("stdout"));
    let plain = boot.command(&[]);
    let words: Vec<_> = std::iter::once(plain.get_program()).chain(plain.get_args()).collect();
    let line =
        words.iter().map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ");
    // Many times what a terminal holds, before the agent starts.
    let line = format!("seq 1 9000 >&2 & sleep 1; exec {line}");
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::null()).stdout(writer);
    let _script = Process::start(&mut script);
    boot.serves();
}

#[test]
fn a_port_that_is_no_port_stops_nothing_and_ends_with_the_agent() {
    let boot = Boot::new("lxd");
    let path = |name: &str| boot.scratch.0.join(name);
    let (_reader, _writer) = full_pipe(&path("fifo"));
    write(&path("file"), "");
    fs::create_dir(path("directory")).unwrap();
    // A terminal that is full: nobody reads what script(1) prints.
    let (_screen, screen) = full_pipe(&path("screen"));
    let line = format!("tty >'{}'; seq 1 90000; sleep 99", path("tty").display());
    let mut script = Command::new("script");
    script.args(["-q", "-c", &line, "/dev/null"]).stdin(Stdio::null()).stdout(screen);
    let _script = Process::start(&mut script);
    let tty = || fs::read_to_string(path("tty")).ok().filter(|name| name.ends_with('\n'));
    let (tty, _) = wait("a terminal", LIMIT, tty);
    std::thread::sleep(Duration::from_millis(500));
    let others = ["fifo", "file", "directory", "none"].map(path);
    for port in others.into_iter().chain([PathBuf::from(tty.trim())]) {
        let _stale = fs::remove_dir_all(boot.root("dev"));
        let mut agent = boot.start(&["--port", &port.display().to_string()]);
        boot.serves();
        // A few turns of the status machine.
        std::thread::sleep(Duration::from_millis(1500));
        boot.serves();
        let begun = Instant::now();
        assert_eq!(terminate(&mut agent), Some(0), "{}", port.display());
        assert!(begun.elapsed() < Duration::from_secs(10), "{}", port.display());
    }
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "");
}

#[test]
fn a_port_that_never_stops_talking_keeps_nobody_else_waiting() {
    let boot = Boot::new("lxd");
    let path = boot.scratch.0.join("port");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let fifo = File::options().read(true).write(true).open(&path).unwrap();
    let _flood = Process::start(Command::new("cat").arg("/dev/zero").stdout(fifo));
    let mut agent = boot.start(&["--port", &path.display().to_string()]);
    boot.serves();
    std::thread::sleep(Duration::from_millis(1500));
    let (code, text) = boot.ask(&["config"]);
    assert_eq!(code, Some(0), "{text}");
    let begun = Instant::now();
    assert_eq!(terminate(&mut agent), Some(0));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn the_client_says_whether_there_is_an_agent() {
    let boot = Boot::new("lxd");
    let ask = |args: &[&str]| boot.ask(args);
    let (code, text) = ask(&["get", "user.x"]);
    assert!(code == Some(3) && text.contains("no agent is running"), "{text}");
    let mut agent = boot.start(&["--deny", "guestapi"]);
    boot.logged("STARTED");
    let (code, text) = ask(&["ready"]);
    assert!(code == Some(3) && text.contains("an agent is running, but"), "{text}");
    agent.kill();
    let agent = boot.start(&[]);
    boot.serves();
    assert_eq!(ask(&["config"]), (Some(0), String::new()));
    // An agent that is stopped, and a queue before its socket that is full.
    assert!(
        Command::new("kill").args(["-STOP", &agent.0.id().to_string()]).status().unwrap().success()
    );
    let begun = Instant::now();
    let (sender, queue) = std::sync::mpsc::channel();
    let socket = boot.root("dev/lxd/sock");
    std::thread::spawn(move || {
        while let Ok(stream) = UnixStream::connect(&socket) {
            let _kept = sender.send(stream);
        }
    });
    let mut kept = Vec::new();
    while let Ok(stream) = queue.recv_timeout(Duration::from_secs(1)) {
        kept.push(stream);
    }
    let (code, text) = ask(&["get", "user.x"]);
    assert!(code == Some(3) && text.contains("does not answer"), "{text}");
    assert!(begun.elapsed() < LIMIT, "{} in the queue", kept.len());
}

/// Both ends of a pipe that takes nothing more; its reader does not wait.
fn full_pipe(path: &Path) -> (File, File) {
    const NONBLOCK: i32 = 0o4000;
    let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
    assert!(made.success());
    let open = |options: &mut fs::OpenOptions| options.open(path).expect("a pipe");
    let reader = open(File::options().read(true).custom_flags(NONBLOCK));
    let mut fill = open(File::options().write(true).custom_flags(NONBLOCK));
    while fill.write(b"#").is_ok() {}
    (reader, open(File::options().write(true)))
}

fn read_some(reader: &mut File) -> String {
    let mut text = Vec::new();
    // Ends with WouldBlock, or with the last writer.
    let _cut = reader.read_to_end(&mut text);
    std::thread::sleep(Duration::from_millis(20));
    String::from_utf8_lossy(&text).into_owned()
}
