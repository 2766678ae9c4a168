//! Peers that read nothing, write endlessly or are stopped do not block others.

use crate::world::{Boot, LIMIT, in_private_mounts, mount, terminate};
use fuse::{ACCESS, Fuse};
use mote_tests::prelude::*;

pub(crate) mod fuse;

#[test]
fn serves_although_its_files_may_not_grow() {
    let boot = Boot::new("lxd");
    let by = ["prlimit", "--fsize=0"];
    let mut agent = agent::command_by(&by, &boot.scratch.0, "lxd", &boot.host.share);
    // The log is a pipe, to which the file size limit does not apply.
    let mut agent = Process::start(agent.stderr(Stdio::inherit()));
    boot.serves();
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn a_closed_output_changes_the_exit_code() {
    let boot = Boot::new("lxd");
    for args in [&["--help"][..], &["--version"], &["--check"], &["status"]] {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let mut child = bounded(boot.command(args).stdout(writer)).unwrap();
        let (status, _) = wait("its end", LIMIT, || child.try_wait().ok().flatten());
        assert!(matches!(status.code(), Some(1 | 3)), "{args:?}: {status}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    assert_eq!(boot.command(&["--help"]).stdout(full).status().unwrap().code(), Some(1));
}

#[test]
fn an_unread_stderr_blocks_nothing_and_is_written_later() {
    let boot = Boot::new("lxd");
    let (mut reader, writer) = full_pipe(&boot.scratch.0.join("stderr"));
    let mut agent = Process::start(boot.command(&[]).stderr(writer));
    boot.serves();
    assert!(agent.0.try_wait().unwrap().is_none());
    // The reader continues and gets the earlier output.
    let begun = Instant::now();
    let mut text = read_some(&mut reader);
    assert!(!text.contains("devlxd"), "it was not full");
    assert_eq!(terminate(&mut agent), Some(0));
    while !text.contains("STOPPED") && begun.elapsed() < LIMIT {
        text += &read_some(&mut reader);
    }
    let text = text.trim_start_matches('#');
    let lines = ["mote-agent", "files from", "devlxd", "STARTED", "STOPPED"];
    assert!(lines.iter().all(|line| text.contains(line)) && !text.contains("lost"), "{text}");
}

#[test]
fn a_stopped_terminal_blocks_nothing() {
    let boot = Boot::new("lxd");
    // script(1) gives the agent a terminal. Nothing reads what script prints, so the terminal
    // fills.
    let (_reader, writer) = full_pipe(&boot.scratch.0.join("stdout"));
    let plain = boot.command(&[]);
    let words: Vec<_> = std::iter::once(plain.get_program()).chain(plain.get_args()).collect();
    let line =
        words.iter().map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ");
    // Before the agent starts, write many times what a terminal holds.
    let pid = boot.scratch.0.join("pid");
    let line = format!("echo $$ >'{}'; seq 1 9000 >&2 & sleep 1; exec {line}", pid.display());
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::null()).stdout(writer);
    let _script = Process::start(&mut script);
    boot.serves();
    // The agent survives the end of its terminal.
    kill(Signal::KILL, fs::read_to_string(pid).unwrap().trim().parse().unwrap());
}

#[test]
fn an_invalid_port_blocks_nothing() {
    let boot = Boot::new("lxd");
    let path = |name: &str| boot.scratch.0.join(name);
    let (_reader, _writer) = full_pipe(&path("fifo"));
    put(path("file"), "");
    fs::create_dir(path("directory")).unwrap();
    // The terminal is full, because nothing reads what script(1) prints.
    let (_screen, screen) = full_pipe(&path("screen"));
    let line = format!("tty >'{}'; seq 1 90000; sleep 99", path("tty").display());
    let mut script = Command::new("script");
    script.args(["-q", "-c", &line, "/dev/null"]).stdin(Stdio::null()).stdout(screen);
    let _script = Process::start(&mut script);
    let tty = || fs::read_to_string(path("tty")).ok().filter(|name| name.ends_with('\n'));
    let (tty, _) = wait("a terminal", LIMIT, tty);
    thread::sleep(Duration::from_millis(500));
    let others = ["fifo", "file", "directory", "none"].map(path);
    for port in others.into_iter().chain([PathBuf::from(tty.trim())]) {
        let _stale = fs::remove_dir_all(boot.root("dev"));
        let mut agent = boot.start(&["--port", &port.display().to_string()]);
        boot.serves();
        // Wait long enough for a few steps of the status machine.
        thread::sleep(Duration::from_millis(1500));
        boot.serves();
        assert_eq!(terminate(&mut agent), Some(0), "{}", port.display());
    }
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "");
}

#[test]
fn the_client_reports_whether_an_agent_runs() {
    let boot = Boot::new("lxd");
    let ask = |args: &[&str]| boot.ask(args);
    exits(ask(&["get", "user.x"]), Some(3), &["no agent is running"]);
    let mut agent = boot.start(&["--deny", "guestapi"]);
    boot.logged("STARTED");
    exits(ask(&["ready"]), Some(3), &["an agent is running, but"]);
    agent.kill();
    let agent = boot.start(&[]);
    boot.serves();
    assert_eq!(ask(&["config"]), (Some(0), String::new()));
    // The agent is stopped, and the queue of its socket is full.
    kill(Signal::STOP, agent.0.id());
    let (sender, queue) = mpsc::channel();
    let socket = boot.root("dev/lxd/sock");
    thread::spawn(move || {
        while let Ok(stream) = UnixStream::connect(&socket) {
            let _kept = sender.send(stream);
        }
    });
    let mut kept = Vec::new();
    while let Ok(stream) = queue.recv_timeout(Duration::from_secs(1)) {
        kept.push(stream);
    }
    exits(ask(&["get", "user.x"]), Some(3), &["does not answer"]);
}

/// Returns both ends of a full pipe. Its reader does not block.
fn full_pipe(path: &Path) -> (File, File) {
    const NONBLOCK: i32 = 0o4000;
    fifo(path);
    let open = |options: &mut OpenOptions| options.open(path).expect("a pipe");
    let reader = open(File::options().read(true).custom_flags(NONBLOCK));
    let mut fill = open(File::options().write(true).custom_flags(NONBLOCK));
    while fill.write(b"#").is_ok() {}
    (reader, open(File::options().write(true)))
}

fn read_some(reader: &mut File) -> String {
    let mut text = Vec::new();
    // The read ends with WouldBlock, or when the last writer closes the pipe.
    let _cut = reader.read_to_end(&mut text);
    thread::sleep(Duration::from_millis(20));
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn a_hanging_command_keeps_nothing_of_a_killed_agent() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        skipped("root and /dev/fuse");
        return;
    }
    let name = "stuck::a_hanging_command_keeps_nothing_of_a_killed_agent";
    let true = in_private_mounts(name) else { return };
    let boot = Boot::new("lxd");
    let place = boot.scratch.0.join("dead");
    fs::create_dir(&place).unwrap();
    let dead = Fuse::mount(&place);
    dead.fall_silent();
    let mut agent = boot.up(&[]);
    boot.serves();
    let cwd = place.display().to_string();
    let _exec = boot.host.launch(&["exec", NAME, "--cwd", &cwd, "--", "true"]);
    // chdir(2) calls the server, which has read the request: no signal can end the child.
    wait("chdir(2)", LIMIT, || dead.read.try_iter().find(|one| *one == ACCESS));
    let children = proc::children(agent.0.id());
    let [child] = children[..] else { panic!("{children:?}") };
    let open = fs::read_dir(format!("/proc/{child}/fd")).unwrap();
    let mut open: Vec<PathBuf> = open.flatten().map(|one| one.file_name().into()).collect();
    open.sort_unstable();
    assert_eq!(open, ["0", "1", "2", "3"].map(PathBuf::from), "its own and the pipe");
    agent.kill();
    kill(Signal::KILL, child);
    let mut second = boot.start(&[]);
    boot.serves();
    assert!(second.0.try_wait().unwrap().is_none());
    contains(fs::read_to_string(format!("/proc/{child}/stat")).unwrap(), &[") D "]);
}

// `freeze` and `thaw` end, and hooks run for the thaw, even if something hangs or fails. A file
// lists the mounts, so nothing of the machine that runs the test is frozen.

/// Returns a guest with these mounts, and a hook that records its calls.
fn guest(mounts: &[(&str, &Path)]) -> Boot {
    let boot = Boot::new("lxd");
    let line = |(at, (kind, point)): (usize, &(&str, &Path))| {
        format!("1 2 8:{at} / {} rw - {kind} /dev/x rw\n", point.display())
    };
    boot.put("proc/self/mountinfo", &mounts.iter().enumerate().map(line).collect::<String>());
    hook(&boot, "exit 0");
    boot
}

fn hook(boot: &Boot, then: &str) {
    let text = format!("#!/bin/sh\necho $1 >>{}\n{then}\n", boot.root("noted").display());
    program(boot.root("etc/mote/freeze.d/hook"), text);
}

fn says(boot: &Boot, args: &[&str]) -> (Option<i32>, String) {
    told(boot, boot.command(args))
}

fn told(boot: &Boot, mut command: Command) -> (Option<i32>, String) {
    let said = boot.scratch.0.join("said");
    let file = File::create(&said).expect("it works");
    command.stdout(file.try_clone().expect("it works")).stderr(file).stdin(Stdio::null());
    let mut child = command.spawn().expect("it works");
    let (status, _) = wait("its end", LIMIT, || child.try_wait().expect("it works"));
    (status.code(), fs::read_to_string(said).expect("it works"))
}

const NOTHING: &str = "mote-agent: no file system can be frozen\n";

fn can(test: &str, needs: &str) -> bool {
    if !is_root() || !Path::new(needs).exists() {
        skipped(&format!("root and {needs}"));
        return false;
    }
    in_private_mounts(&format!("stuck::{test}"))
}

#[test]
fn runs_hooks_for_the_thaw_if_freezing_fails() {
    let true = can("runs_hooks_for_the_thaw_if_freezing_fails", "/proc") else { return };
    // This mount cannot be frozen.
    let boot = guest(&[("ext4", Path::new("/proc"))]);
    assert_eq!(says(&boot, &["freeze"]), (Some(1), NOTHING.to_owned()));
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    hook(&boot, "exit 3");
    let hook = boot.root("etc/mote/freeze.d/hook").display().to_string();
    let why = format!("mote-agent: {hook} freeze: exit code 3; {hook} thaw: exit code 3\n");
    assert_eq!(says(&boot, &["freeze"]), (Some(1), why));
}

#[test]
fn a_hanging_open_delays_neither_hooks_nor_thaw() {
    let true = can("a_hanging_open_delays_neither_hooks_nor_thaw", "/dev/fuse") else { return };
    let place = Scratch::new();
    let dead = Fuse::mount(&place.0);
    dead.fall_silent();
    let file = dead.file();
    // The mount point is on the hanging file system.
    let boot = guest(&[("ext4", Path::new("/proc")), ("ext4", &file)]);
    let why = format!("mote-agent: {}: timed out, or it hangs\n", file.display());
    assert_eq!(says(&boot, &["freeze", "--for", "1s"]), (Some(1), why));
    assert_eq!(boot.text("noted"), "", "a hook was called");
    for (command, answer) in
        [(&["thaw"][..], "mote-agent: not frozen\n"), (&["freeze", "--status"], "not frozen\n")]
    {
        assert_eq!(says(&boot, command).1, answer);
    }
    // A FUSE mount covers the path, so the path must not be opened.
    let _asked = dead.read.try_iter().count();
    let boot = guest(&[("ext4", &file), ("fuse", &place.0), ("ext4", Path::new("/proc"))]);
    assert_eq!(says(&boot, &["freeze"]), (Some(1), NOTHING.to_owned()));
    assert_eq!(dead.read.try_iter().count(), 0, "it was asked");
}

fn disk(boot_dir: &Path) -> PathBuf {
    let (image, point) = (boot_dir.join("image"), boot_dir.join("point"));
    File::create(&image).expect("it works").set_len(4 << 20).expect("it works");
    let made = Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(&image).status();
    assert!(made.expect("it works").success());
    fs::create_dir(&point).expect("it works");
    mount(&["-o", "loop", &image.display().to_string()], &point);
    point
}

#[test]
fn reports_a_hook_that_fails_at_the_thaw() {
    let true = can("reports_a_hook_that_fails_at_the_thaw", "/dev/loop-control") else { return };
    let place = Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    let frozen = format!("frozen for 60 s: {}\n", point.display());
    hook(&boot, "[ $1 = freeze ] || exit 3");
    assert_eq!(says(&boot, &["freeze"]), (Some(0), frozen.clone()));
    let hook_path = boot.root("etc/mote/freeze.d/hook").display().to_string();
    let why = format!("mote-agent: thawed, but a hook failed; {hook_path} thaw: exit code 3\n");
    assert_eq!(says(&boot, &["thaw"]), (Some(5), why));
    fs::write(point.join("file"), "it is thawed").unwrap();
    // The next freeze is not affected.
    hook(&boot, "exit 0");
    assert_eq!(says(&boot, &["freeze"]), (Some(0), frozen));
    assert_eq!(says(&boot, &["thaw"]), (Some(0), "thawed\n".to_owned()));
    fs::write(point.join("file"), "it is thawed").unwrap();
}

#[test]
fn thaw_runs_hooks_if_the_guard_was_killed() {
    let true = can("thaw_runs_hooks_if_the_guard_was_killed", "/dev/loop-control") else { return };
    let place = Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    let kill_guard = || {
        let state = fs::read(boot.root("run/mote/freeze")).expect("it works");
        kill(Signal::KILL, u32::from_le_bytes(state[8..12].try_into().expect("it works")));
        let status = || says(&boot, &["freeze", "--status"]).1;
        until("its end", LIMIT, || status() == "not frozen\n");
    };
    assert_eq!(says(&boot, &["freeze"]).0, Some(0));
    kill_guard();
    let unguarded = "mote-agent: thawed file systems that had no guard\n".to_owned();
    // A caller may ignore SIGCHLD, and programs inherit that.
    let by = ["env", "--ignore-signal=CHLD"];
    let mut thaw = agent::command_by(&by, &boot.scratch.0, "lxd", &boot.host.share);
    thaw.arg("thaw");
    assert_eq!(told(&boot, thaw), (Some(1), unguarded));
    fs::write(point.join("file"), "it is thawed").unwrap();
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    // The hooks that ran for the freeze have run once for the thaw.
    assert_eq!(says(&boot, &["thaw"]), (Some(1), "mote-agent: not frozen\n".to_owned()));
    assert_eq!(boot.text("noted"), "freeze\nthaw\n");
    // The guard is killed while the agent runs the hooks.
    hook(&boot, "[ $1 = thaw ] || sleep 9999");
    let mut freeze = boot.command(&["freeze"]).stderr(Stdio::null()).spawn().expect("it works");
    until("its call", LIMIT, || boot.text("noted").ends_with("thaw\nfreeze\n"));
    kill_guard();
    assert_eq!(wait("its end", LIMIT, || freeze.try_wait().expect("it works")).0.code(), Some(1));
    assert_eq!(says(&boot, &["thaw"]).0, Some(1));
    assert_eq!(boot.text("noted"), "freeze\nthaw\nfreeze\nthaw\n");
}

#[test]
fn freezes_nothing_that_it_cannot_record() {
    let true = can("freezes_nothing_that_it_cannot_record", "/dev/loop-control") else { return };
    let place = Scratch::new();
    let point = disk(&place.0);
    let boot = guest(&[("ext4", &point)]);
    boot.put("run/mote/x", "");
    mount(&["-t", "tmpfs", "-o", "size=4k", "none"], &boot.root("run/mote"));
    fs::write(boot.root("run/mote/full"), [1; 4096]).expect("it works");
    exits(says(&boot, &["freeze"]), Some(1), &["No space left"]);
    fs::write(point.join("file"), "it is not frozen").unwrap();
    assert_eq!(boot.text("noted"), "");
}
