//! Problems in the guest itself: signals, `/run`, descriptors, an endless port.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use mote_tests::{NAME, Process, agent, proc, wait};

use super::world::{Boot, LIMIT, in_private_mounts, mount, terminate, whole};

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
    // A few checks of the lock.
    std::thread::sleep(Duration::from_millis(2500));
    assert!(!boot.log().contains("no longer this agent's"), "{}", boot.log());
    assert_eq!(boot.log().matches("run/mote/status: ").count(), 1, "{}", boot.log());
    mount(&["-o", "remount,rw", "tmpfs"], &boot.root("run"));
    wait("Ready", LIMIT, || (boot.text("run/mote/ready") == "Ready").then_some(()));
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
    // A command of the agent with the same descriptors, and then with its own.
    for script in ["exec \"$@\" 0<&- 1>&- 2>&-", "exec \"$@\""] {
        let mut ready = start(script, &["ready"]);
        assert_eq!(ready.ends(LIMIT), Some(0), "{script}");
    }
    assert_eq!(terminate(&mut agent), Some(0));
}

/// Commands run. Programs that re-execute the agent or read `/proc` report what is missing.
#[test]
fn reports_a_missing_proc_everywhere() {
    const WHY: &str =
        "/proc is not mounted: no files, state or metrics for the host: mount -t proc proc /proc";
    let true = in_private_mounts("local::reports_a_missing_proc_everywhere") else { return };
    let boot = Boot::new("lxd");
    whole(&boot);
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
    let (code, text) = boot.says(&["--check"]);
    assert!(text.contains(&format!("missing  proc: {WHY}\n")), "{text}");
    assert_eq!(code, Some(1));
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn reports_an_endless_port_at_little_cost() {
    let boot = Boot::new("lxd");
    let path = boot.scratch.0.join("port");
    mote_tests::fifo(&path);
    let fifo = File::options().read(true).write(true).open(&path).unwrap();
    let _flood = Process::start(Command::new("cat").arg("/dev/zero").stdout(fifo));
    for port in [path.to_str().unwrap(), "/dev/zero", "/dev/urandom"] {
        let _stale = fs::remove_dir_all(boot.root("dev"));
        let mut agent = boot.start(&["--port", port]);
        boot.serves();
        std::thread::sleep(Duration::from_millis(500));
        let busy = proc::busy(agent.0.id(), Duration::from_secs(3));
        assert!(busy < 0.1, "{port}: {busy} of the time that it could have run");
        boot.serves();
        assert_eq!(terminate(&mut agent), Some(0));
    }
    boot.logged("serial line refused: bytes without an end");
    boot.logged("cannot open /dev/zero: that device is not a port");
    let mut log = String::new();
    File::open(boot.scratch.0.join("agent.log")).unwrap().read_to_string(&mut log).unwrap();
    assert!(log.matches("bytes without an end").count() <= 4, "{log}");
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
