//! Peers that read nothing, write endlessly or are stopped do not block others.

mod freeze;
pub(crate) mod fuse;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mote_tests::{NAME, Process, is_root, kill, put, wait};
use rustix::process::Signal;

use crate::world::{Boot, LIMIT, in_private_mounts, terminate};
use fuse::{ACCESS, Fuse};

#[test]
fn serves_although_its_files_may_not_grow() {
    let boot = Boot::new("lxd");
    let by = ["prlimit", "--fsize=0"];
    let mut agent = mote_tests::agent::command_by(&by, &boot.scratch.0, "lxd", &boot.host.share);
    // The log is a pipe, which the limit does not concern.
    let mut agent = Process::start(agent.stderr(Stdio::inherit()));
    boot.serves();
    assert_eq!(terminate(&mut agent), Some(0));
}

#[test]
fn a_closed_output_changes_the_exit_code() {
    let boot = Boot::new("lxd");
    for args in [&["--help"][..], &["--version"], &["--check"], &["status"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut child = mote_tests::bounded(boot.command(args).stdout(writer)).unwrap();
        let (status, _) = wait("its end", LIMIT, || child.try_wait().ok().flatten());
        assert!(matches!(status.code(), Some(1 | 3)), "{args:?}: {status}");
    }
    let full = File::options().write(true).open("/dev/full").unwrap();
    let status = boot.command(&["--help"]).stdout(full).status().unwrap();
    assert_eq!(status.code(), Some(1));
}

#[test]
fn an_unread_stderr_blocks_nothing_and_is_written_later() {
    let boot = Boot::new("lxd");
    let (mut reader, writer) = full_pipe(&boot.scratch.0.join("stderr"));
    let mut agent = Process::start(boot.command(&[]).stderr(writer));
    boot.serves();
    assert!(agent.0.try_wait().unwrap().is_none());
    // A reader returns and gets the earlier output.
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
    // script(1) gives the agent a terminal; nobody reads what script prints, so the terminal fills.
    let (_reader, writer) = full_pipe(&boot.scratch.0.join("stdout"));
    let plain = boot.command(&[]);
    let words: Vec<_> = std::iter::once(plain.get_program()).chain(plain.get_args()).collect();
    let line =
        words.iter().map(|word| format!("'{}'", word.display())).collect::<Vec<_>>().join(" ");
    // Many times what a terminal holds, before the agent starts.
    let pid = boot.scratch.0.join("pid");
    let line = format!("echo $$ >'{}'; seq 1 9000 >&2 & sleep 1; exec {line}", pid.display());
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::null()).stdout(writer);
    let _script = Process::start(&mut script);
    boot.serves();
    // The agent survives the end of its terminal.
    let pid = fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    kill(Signal::KILL, pid);
}

#[test]
fn an_invalid_port_blocks_nothing() {
    let boot = Boot::new("lxd");
    let path = |name: &str| boot.scratch.0.join(name);
    let (_reader, _writer) = full_pipe(&path("fifo"));
    put(path("file"), "");
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
        // A few steps of the status machine.
        std::thread::sleep(Duration::from_millis(1500));
        boot.serves();
        assert_eq!(terminate(&mut agent), Some(0), "{}", port.display());
    }
    assert_eq!(fs::read_to_string(path("file")).unwrap(), "");
}

#[test]
fn the_client_reports_whether_an_agent_runs() {
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
    // A stopped agent, with a full queue at its socket.
    kill(Signal::STOP, agent.0.id());
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
}

/// Returns both ends of a full pipe. Its reader does not block.
fn full_pipe(path: &Path) -> (File, File) {
    const NONBLOCK: i32 = 0o4000;
    mote_tests::fifo(path);
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

#[test]
fn a_hanging_command_keeps_nothing_of_a_killed_agent() {
    if !is_root() || !Path::new("/dev/fuse").exists() {
        mote_tests::skipped("root and /dev/fuse");
        return;
    }
    let name = "stuck::a_hanging_command_keeps_nothing_of_a_killed_agent";
    let true = in_private_mounts(name) else { return };
    let boot = Boot::new("lxd");
    let place = boot.scratch.0.join("dead");
    fs::create_dir(&place).unwrap();
    let dead = Fuse::mount(&place);
    dead.fall_silent();
    let mut agent = boot.start(&[]);
    boot.serves();
    boot.logged("CONNECTED");
    let cwd = place.display().to_string();
    let _exec = boot.host.launch(&["exec", NAME, "--cwd", &cwd, "--", "true"]);
    // chdir(2) calls the server, which has read the request: no signal can end the child.
    wait("chdir(2)", LIMIT, || dead.read.try_iter().find(|one| *one == ACCESS));
    let children = mote_tests::proc::children(agent.0.id());
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
    let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    assert!(state.contains(") D "), "it still hangs: {state}");
}
