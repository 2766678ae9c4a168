//! What the agent remembers about its host, and its messages about the host.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use mote_tests::prelude::*;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::set_parent_process_death_signal;

use crate::stuck::fuse::Fuse;
use crate::world::{Boot, LIMIT, connected, in_private_mounts, terminate};

fn status(boot: &Boot) -> Value {
    serde_json::from_str(&boot.text("run/mote/status")).unwrap_or_default()
}

#[test]
fn is_not_connected_to_a_host_that_refuses_it() {
    const WHY: &str = "the host refused this agent's certificate (401): its files may be \
                       another instance's";
    for flavour in ["lxd", "incus"] {
        let boot = Boot::whole(flavour);
        let elsewhere = Scratch::new();
        let other = Host::on_sockets(&elsewhere.0, &elsewhere.0.join("vs"), flavour, &[]);
        for file in ["agent.crt", "agent.key"] {
            fs::copy(other.share.join(file), boot.host.share.join(file)).unwrap();
        }
        let _agent = boot.start(&[]);
        boot.serves();
        boot.logged(WHY);
        // Forwarded calls get the host's 401, which proves nothing.
        for _ in 0..5 {
            exits(boot.ask(&["get", "user.a"]), Some(1), &["Unauthorized"]);
            thread::sleep(Duration::from_millis(300));
        }
        assert!(!boot.log().contains("CONNECTED"), "{}", boot.log());
        let status = status(&boot);
        assert_eq!((&status["state"], &status["last_error"]), (&"STARTED".into(), &WHY.into()));
        let (code, text) = boot.says(&["--check"]);
        let mine = format!("missing  agent: {WHY}\n");
        contains(&text, &[&mine, "ok       certificates: they match\n"]);
        assert!(code == Some(1) && text.starts_with("missing  agent: "), "{text}");
        assert_eq!(boot.ask(&["status"]), (Some(4), format!("mote-agent: {WHY}\n")));
    }
}

#[test]
fn clears_the_hosts_error_after_it_recovers() {
    let boot = Boot::new("lxd");
    boot.host.ok(&["fault", NAME, "garbage"]);
    let _agent = boot.start(&[]);
    boot.logged("the host's answer: ");
    assert!(status(&boot)["last_error"].is_string(), "{}", status(&boot));
    assert!(!boot.log().contains("lost host"), "it never had one: {}", boot.log());
    boot.host.ok(&["fault", NAME, "none"]);
    boot.logged(" CONNECTED");
    // The missing port is the only error here; it says nothing about the host.
    let over = || !status(&boot)["last_error"].to_string().contains("answer");
    until("the error to be forgotten", LIMIT, over);
}

#[test]
fn a_killed_agent_remembers_its_host() {
    let (mut boot, mut agent) = Boot::running("lxd", &[]);
    // A new daemon with another address announces itself to this agent, but not to the next one.
    // agent.conf is unchanged.
    boot.host.restart();
    let client = boot.client();
    let told = client.host_info().unwrap();
    client.announce();
    agent.kill();
    fs::remove_file(boot.host.share.join("agent.conf")).unwrap();
    let before = boot.log().len();
    let _agent = boot.start(&[]);
    let connected = format!(" CONNECTED 2:{}", told["port"]);
    until("CONNECTED again", LIMIT, || boot.log()[before..].contains(&connected));
    assert!(boot.log()[before..].contains("(from /run/mote/known-host)\n"), "{}", boot.log());
    boot.serves();
    let quiet = boot.command(&["get", "user.none"]).stderr(Stdio::null()).status().unwrap();
    assert_eq!(quiet.code(), Some(1), "the host says that there is none");
}

/// After the restore of a snapshot, the port may have data that the kernel does not report. The
/// agent reads it at the interval of its state (`status/tests` in the core).
#[test]
fn reads_a_port_whose_wake_ups_are_lost() {
    let boot = Boot::new("lxd");
    let port = Terminal::open(80, 24);
    port.never_signal();
    let _agent = boot.up(&["--port", &port.path()]);
    // The agent refuses the line, and logs that.
    port.say("CONNECT nowhere\n");
    boot.logged("serial line refused");
}

#[test]
fn host_text_cannot_control_a_terminal() {
    const EVIL: &str = "a\x1b[2Jb\u{9b}c\nd";
    let boot = Boot::new("lxd");
    boot.host.ok(&["set", NAME, &format!("user.evil={EVIL}")]);
    let _agent = boot.start(&[]);
    boot.serves();
    let get = || boot.command(&["get", "user.evil"]);
    // Programs get the raw text, people an escaped one.
    assert_eq!(get().output().unwrap().stdout, format!("{EVIL}\n").into_bytes());
    let mut screen = Terminal::open(80, 24);
    assert!(get().stdout(screen.side()).status().unwrap().success());
    screen.until("a\\u{1b}[2Jb\\u{9b}c");
}

// Processes of users, containers and root that look like an agent. None keeps an agent from
// starting or restarting, and the agent neither signals them nor copies their descriptors.

/// The test in whose process a lock is taken and held.
const KEEPER: &str = "host::a_process_in_another_namespace_is_not_an_agent";
/// A user without privileges outside of private namespaces.
const USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm";
/// Root of a container, in all namespaces except for users.
const CONTAINER: &str = "unshare -mpf --kill-child";

/// Returns a guest with the machine's `/proc`; `None` without root, or if users cannot create
/// namespaces (in a chroot).
#[track_caller]
fn guest() -> Option<Boot> {
    let mut words = USER.split(' ');
    let try_out = Command::new(words.next().unwrap()).args(words).arg("true").status();
    if !is_root() || !try_out.is_ok_and(|status| status.success()) {
        skipped("root, and namespaces for users");
        return None;
    }
    let boot = Boot::new("lxd");
    fs::remove_dir_all(boot.root("proc")).unwrap();
    symlink("/proc", boot.root("proc")).unwrap();
    fs::create_dir_all(boot.root("run")).unwrap();
    Some(boot)
}

/// Starts a process with a private `/run` that holds a lock there.
fn impostor(boot: &Boot, who: &str, program: &str) -> Process {
    let impostor = apart(boot, who, &format!("exec {}", keeper(boot)), program);
    holds(&impostor, &boot.root("run/mote/lock"));
    impostor
}

/// Starts a script with a private `/run`. A [`keeper`] in the script becomes `program`.
fn apart(boot: &Boot, who: &str, script: &str, program: &str) -> Process {
    let run = boot.root("run");
    let run = run.display();
    let script = format!("mount -t tmpfs -o mode=755 tmpfs {run} && mkdir {run}/mote && {script}");
    let mut words = who.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).args(["sh", "-c", &script]);
    Process::start(keeps(&mut command, &boot.root("run/mote/lock"), program))
}

/// Returns the command line of a process that takes the lock as an agent does, and becomes a
/// program that holds it.
fn keeper(boot: &Boot) -> String {
    // The copy is where any user may run it.
    let place = boot.scratch.0.join("keeper");
    if !place.exists() {
        copy_program(&std::env::current_exe().unwrap(), &place);
    }
    format!("{} --exact {KEEPER}", place.display())
}

fn keeps<'a>(command: &'a mut Command, lock: &Path, program: &str) -> &'a mut Command {
    command.env("MOTE_LOCK", lock).env("MOTE_PROGRAM", program).stdout(Stdio::null())
}

fn keep(lock: &Path) -> ! {
    let file = File::options().write(true).create(true).truncate(false).open(lock).unwrap();
    fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    fcntl_setfd(&file, FdFlags::empty()).unwrap();
    // unshare(1)'s option applies only to the thread that it started.
    set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
    let program = std::env::var("MOTE_PROGRAM").unwrap();
    panic!("{}", Command::new("sh").arg("-c").arg(format!("exec {program}")).exec());
}

/// Returns a program with the command line of an agent that can hand over. It keeps running until
/// the signal for a hand-over kills it.
fn liar(boot: &Boot) -> String {
    let place = boot.scratch.0.join("nothing");
    if !place.exists() {
        fifo(&place);
    }
    format!("sh -c 'read x <{}' mote-agent --initramfs", place.display())
}

/// Waits until the process or one of its children holds this lock.
fn holds(process: &Process, lock: &Path) {
    let pid = process.0.id();
    let look = || {
        let mut all = proc::children(pid).into_iter().chain([pid]);
        all.find(|pid| {
            let locked = fs::read_to_string("/proc/locks").unwrap_or_default();
            let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
            let mut links = open.filter_map(|file| fs::read_link(file.path()).ok());
            locked.contains(&format!(" WRITE {pid} ")) && links.any(|link| link == lock)
        })
    };
    wait("an impostor's lock", LIMIT, look);
}

/// Checks that an agent starts and restarts next to these processes, and does not signal them.
fn starts_beside(boot: &Boot, impostors: &mut [Process]) {
    let mut agent = boot.start(&[]);
    connected(boot, 1);
    // A user who can read the lock's file can lock it.
    assert_eq!(fs::metadata(boot.root("run/mote/lock")).unwrap().mode() & 0o7777, 0o600);
    kill(Signal::HUP, agent.0.id());
    connected(boot, 2);
    assert_eq!(terminate(&mut agent), Some(0), "{}", boot.log());
    let (_, said) = boot.ask(&["status"]);
    assert!(said.contains("no agent is running"), "{said}");
    assert!(!boot.log().contains("another mote-agent"), "{}", boot.log());
    assert!(!boot.log().contains("taking over"), "{}", boot.log());
    for impostor in impostors {
        assert!(impostor.0.try_wait().unwrap().is_none(), "it was signalled");
    }
}

#[test]
fn a_process_in_another_namespace_is_not_an_agent() {
    if let Some(lock) = std::env::var_os("MOTE_LOCK") {
        keep(Path::new(&lock));
    }
    let Some(boot) = guest() else { return };
    // Root's agent in a container is a real one, which still waits for its files.
    let program = format!(
        "sh -c 'exec {} --root {} --initramfs --config-dir /none 2>>{}/theirs' </dev/null",
        agent().display(),
        boot.root("").display(),
        boot.scratch.0.display()
    );
    let theirs = apart(&boot, CONTAINER, &format!("exec {program}"), "");
    holds(&theirs, &boot.root("run/mote/lock"));
    let liar = liar(&boot);
    let others = [(USER, "sleep 1000"), (USER, &liar), (CONTAINER, &liar)];
    let [one, two, three] = others.map(|(who, program)| impostor(&boot, who, program));
    starts_beside(&boot, &mut [theirs, one, two, three]);
}

#[test]
fn does_not_open_copy_or_close_an_impostors_files() {
    const TEST: &str = "host::does_not_open_copy_or_close_an_impostors_files";
    if !is_root() || !Path::new("/dev/fuse").exists() {
        skipped("root and /dev/fuse");
        return;
    }
    let true = in_private_mounts(TEST) else { return };
    let Some(boot) = guest() else { return };
    let place = boot.scratch.0.join("fuse");
    fs::create_dir(&place).unwrap();
    // Dropped after the file system: nothing can wait for a process that hangs on it.
    let mut agent;
    let mut impostor;
    let fuse = Fuse::mount(&place);
    let lock = boot.root("run/mote/lock");
    let opened = format!("exec 8<{} && exec {}", fuse.file().display(), keeper(&boot));
    impostor = apart(&boot, USER, &opened, &liar(&boot));
    holds(&impostor, &lock);
    fuse.fall_silent();
    agent = boot.start(&[]);
    connected(&boot, 1);
    kill(Signal::HUP, agent.0.id());
    connected(&boot, 2);
    assert_eq!(terminate(&mut agent), Some(0), "{}", boot.log());
    assert_eq!(fuse.read.try_iter().next(), None, "its server was asked");
    assert!(impostor.0.try_wait().unwrap().is_none(), "it was signalled");
}
