//! Processes of users, containers and root that look like an agent. None keeps an agent from
//! starting or restarting, and the agent neither signals them nor copies their descriptors.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use mote_tests::{Process, agent, copy_program, is_root, kill, skipped, wait};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};

use crate::stuck::fuse::Fuse;
use crate::world::{Boot, LIMIT, connected, fifo, in_private_mounts, terminate};

/// The test that a holder of a lock runs.
const KEEPER: &str = "impostors::a_user_with_a_private_run_is_not_an_agent";
/// A user without privileges outside of private namespaces.
const USER: &str = "setpriv --reuid 65534 --regid 65534 --clear-groups unshare -Urm";
/// Root of a container, in all namespaces except for users.
const CONTAINER: &str = "unshare -mpf --kill-child";

/// Returns a guest with the machine's `/proc`; `None` if that is unreadable, or users cannot create
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

/// Starts a process with a private `/run` that runs a script. [`keeper`] in the script becomes
/// `program`.
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
    // Where any user may run it.
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

/// Returns a program that keeps running under the command line of an agent that hands over. The
/// signal for that kills it.
fn liar(boot: &Boot) -> String {
    let place = boot.scratch.0.join("nothing");
    if !place.exists() {
        fifo(&place);
    }
    format!("sh -c 'read x <{}' mote-agent --initramfs", place.display())
}

/// Waits until the process or a child of it holds this lock.
fn holds(process: &Process, lock: &Path) {
    let pid = process.0.id();
    let look = || {
        let mut all = mote_tests::proc::children(pid).into_iter().chain([pid]);
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
    let begun = Instant::now();
    let mut agent = boot.start(&[]);
    connected(boot, 1);
    println!("CONNECTED after {:?}", begun.elapsed());
    // A user who can read it can lock it.
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
fn a_user_with_a_private_run_is_not_an_agent() {
    if let Some(lock) = std::env::var_os("MOTE_LOCK") {
        keep(Path::new(&lock));
    }
    let Some(boot) = guest() else { return };
    let mut impostors = [impostor(&boot, USER, "sleep 1000"), impostor(&boot, USER, &liar(&boot))];
    starts_beside(&boot, &mut impostors);
}

#[test]
fn ignores_roots_agent_in_a_container() {
    let Some(boot) = guest() else { return };
    // A real agent, which still waits for its files.
    let program = format!(
        "sh -c 'exec {} --root {} --initramfs --config-dir /none 2>>{}/theirs' </dev/null",
        agent().display(),
        boot.root("").display(),
        boot.scratch.0.display()
    );
    let theirs = apart(&boot, CONTAINER, &format!("exec {program}"), "");
    holds(&theirs, &boot.root("run/mote/lock"));
    let flocked = impostor(&boot, CONTAINER, &liar(&boot));
    starts_beside(&boot, &mut [theirs, flocked]);
}

#[test]
fn does_not_open_copy_or_close_an_impostors_files() {
    const TEST: &str = "impostors::does_not_open_copy_or_close_an_impostors_files";
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
