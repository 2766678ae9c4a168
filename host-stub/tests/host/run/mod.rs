//! `run` with programs that replace QEMU and vhost-device-vsock: messages, exit codes, and complete
//! clean-up. tests/tests/vm/run does the same with a VM.

mod slow;
mod starts;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tempfile::TempDir;

use crate::peers::host::{SOON, wait};

/// A directory with the programs. All files of `run` are in its `tmp`.
pub(crate) struct World(TempDir);

impl World {
    /// Creates the directory. `qemu` is the script that replaces QEMU.
    pub(crate) fn new(name: &str, qemu: &str) -> Self {
        let prefix = format!("mote-host-run-{name}-");
        let world = Self(tempfile::Builder::new().prefix(&prefix).tempdir().unwrap());
        fs::create_dir(world.at("tmp")).unwrap();
        let console =
            "console=$(echo \"$*\" | sed -n 's/.*file,id=console,path=\\([^ ]*\\).*/\\1/p')";
        let arguments = world.path("arguments");
        world.program("qemu", &format!("{console}\necho \"$*\" >\"{arguments}\"\n{qemu}"));
        let socket = "socket=$(echo \"$*\" | sed 's/.*socket=//'); : >\"$socket\"";
        world.program("vsock", &format!("{socket}\nexec sleep 1000"));
        fs::write(world.at("kernel"), "").unwrap();
        world
    }

    /// Writes a script that stores its process id in a file.
    fn program(&self, name: &str, script: &str) {
        let path = self.at(name);
        let text = format!("#!/bin/sh\necho $$ >\"{}\"\n{script}\n", self.pid_file(name).display());
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }

    fn pid_file(&self, name: &str) -> PathBuf {
        self.at(&format!("{name}.pid"))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.at(name).display().to_string()
    }

    fn command(&self, options: &[&str]) -> Command {
        let (program, kernel) = (self.path("qemu"), self.path("kernel"));
        let ours = ["--qemu", &program, "--kernel", &kernel];
        self.bare(&[&ours, options, &["--", "true"]].concat())
    }

    fn bare(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mote-host"));
        command.arg("run").args(words);
        command.env("TMPDIR", self.at("tmp")).env("MOTE_VSOCK", self.at("vsock"));
        command.env("MOTE_HOST_ACCEL", "tcg");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the directory of the instance once the run has started.
    fn instance(&self) -> PathBuf {
        let path = self.at("arguments");
        wait("QEMU's arguments", SOON, || {
            let text = fs::read_to_string(&path).ok()?;
            let (_, monitor) = text.split_once("unix:")?;
            Some(Path::new(monitor.split_once(',')?.0).parent()?.to_owned())
        })
    }

    /// Runs a command that must fail, and returns the messages.
    #[track_caller]
    fn run(&self, options: &[&str]) -> String {
        let (code, said) = ended(&mut self.command(options));
        assert_eq!(code, Some(125), "{said}");
        said
    }

    fn process(&self, name: &str) -> Pid {
        let path = self.pid_file(name);
        wait(name, SOON, || Pid::from_raw(fs::read_to_string(&path).ok()?.trim().parse().ok()?))
    }

    fn left(&self) -> usize {
        fs::read_dir(self.at("tmp")).unwrap().count()
    }
}

fn ended(command: &mut Command) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = mote_machine::output(command).unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn is_gone(process: Pid) -> bool {
    // A killed process whose parent was also killed stays until init reaps it.
    let state = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    test_kill_process(process).is_err() || state.is_ok_and(|state| state.contains(") Z "))
}

fn result(path: &Path) -> serde_json::Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn quotes_a_failed_qemu_and_exits_125() {
    let world =
        World::new("fails", "echo 'qemu: warning: x' >&2; echo 'qemu: no such device' >&2; exit 1");
    let file = world.path("result");
    let said = world.run(&["--result", &file]);
    assert_eq!(said, "mote-host: QEMU ended (exit status: 1): qemu: no such device\n");
    let result = result(Path::new(&file));
    assert_eq!((&result["outcome"], &result["code"]), (&"not-run".into(), &125.into()), "{result}");
    assert_eq!(result["vm"]["accel"], "tcg");
    assert_eq!(world.left(), 0);
    assert!(is_gone(world.process("vsock")));
}

#[test]
fn a_failed_write_to_stderr_changes_no_exit_code_and_leaves_no_files() {
    let world = World::new("mute", "printf 'one\\r\\n' >\"$console\"; sleep 0.3; exit 1");
    let file = world.path("result");
    for more in [&["--console", &world.path("console")][..], &["-v"]] {
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let options = [&["--result", &file], more].concat();
        let status = world.command(&options).stderr(full).status().unwrap();
        assert_eq!((status.code(), world.left()), (Some(125), 0), "{more:?}");
        assert_eq!(result(Path::new(&file))["outcome"], "not-run");
        fs::remove_file(&file).unwrap();
    }
}

#[test]
fn reports_a_panic_at_boot_first() {
    let panic = "Kernel panic - not syncing: VFS: Unable to mount root fs";
    let qemu = format!("printf 'one\\r\\n[    1.5] {panic}\\r\\nlast\\r\\n' >\"$console\"; exit 0");
    let world = World::new("panic", &qemu);
    let said = world.run(&["--boot-timeout", "9999"]);
    let first = format!("mote-host: guest panicked: \"{panic}\"\n");
    assert!(said.starts_with(&first), "{said}");
    assert!(said.ends_with(&format!("  one\n  [    1.5] {panic}\n  last\n")), "{said}");
    // The user asked to keep the console.
    let console = world.path("console");
    let said = world.run(&["--console", &console]);
    assert!(said.ends_with(&format!("the whole console: {console}\n")), "{said}");
    assert!(fs::read_to_string(console).unwrap().contains(panic));
}

/// The device's process continues after the panic, as with version 0.3.0.
#[test]
fn reports_the_panic_of_the_vsock_device() {
    let world = World::new("device", "exec sleep 1000");
    let panic = "thread 'vring_worker' panicked at src/vsock_conn.rs:238:64:";
    let vsock = format!(
        "echo vring_worker >/proc/$$/comm; socket=$(echo \"$*\" | sed 's/.*socket=//'); : >\"$socket\"
         until [ -e \"{}\" ]; do sleep 0.1; done
         echo \"{panic}\" >&2; echo 'Broken pipe' >&2; echo note >&2; exec sleep 1000",
        world.path("arguments")
    );
    world.program("vsock", &vsock);
    let said = world.run(&["--boot-timeout", "1000"]);
    let why = format!("mote-host: vhost-device-vsock stopped serving: {panic} Broken pipe\n");
    assert_eq!(said, why);
    assert_eq!(world.left(), 0);
}

#[test]
fn cleans_up_after_every_signal() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::KILL] {
        let world = World::new(&format!("signal{}", signal.as_raw()), "exec sleep 1000");
        let mut run: Child = mote_machine::bounded(&mut world.command(&[])).unwrap();
        let processes = [world.process("qemu"), world.process("vsock")];
        kill_process(Pid::from_child(&run), signal).unwrap();
        let status = run.wait().unwrap();
        for process in processes {
            wait("its end", SOON, || is_gone(process).then_some(()));
        }
        let mut said = String::new();
        run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "");
        if signal == Signal::KILL {
            // A later run removes the directory once it is old.
            assert_eq!(world.left(), 1);
        } else {
            assert_eq!(status.code(), Some(128 + signal.as_raw()), "{signal:?}");
            assert_eq!(world.left(), 0, "{signal:?}");
        }
    }
}

#[test]
fn a_kvm_that_is_slow_or_fails_is_not_used() {
    if fs::File::options().read(true).write(true).open("/dev/kvm").is_err() {
        eprintln!("skipped: no /dev/kvm here");
        return;
    }
    let slow = "a VM is slower with it than without";
    for (kvm, why) in [("exec sleep 1000", slow), ("exit 1", "QEMU fails with it")] {
        let qemu =
            format!("case \"$*\" in *accel=kvm*) {kvm} ;; esac; echo 'qemu: tcg' >&2; exit 1");
        let world = World::new("kvm", &qemu);
        let file = world.path("result");
        let said = world.run(&["--accel", "auto", "--result", &file]);
        assert!(said.contains("qemu: tcg\n"), "{said}");
        let why = format!("emulated (TCG), which is slow: /dev/kvm exists, but {why}\n");
        assert!(said.contains(&why), "{said}");
        assert_eq!(result(Path::new(&file))["vm"]["accel"], "tcg");
    }
}

#[test]
fn a_dry_run_prints_the_command_and_starts_nothing() {
    let world = World::new("dry", "exit 1");
    let plain = "--accel tcg --dry-run --memory 300 --cpus 3 --network user".split(' ');
    let options = plain.chain(["--append", "a b", "--qemu-arg", "-device 'x y'"]);
    let options = options.collect::<Vec<_>>();
    let mut run = world.command(&options);
    // `run` needs no directory of instances.
    run.env_remove("HOME").env_remove("XDG_STATE_HOME").env_remove("MOTE_HOST_DIR");
    let output = run.output().unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    for part in [
        "-m 300M",
        "-smp 3",
        "-machine q35,accel=tcg",
        "-cpu max",
        "virtio-rng-pci",
        "panic=-1 quiet no_timer_check a b'",
        "-netdev user,id=net",
        "-device 'x y'",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let output =
        world.command(&[&options[..], &["--machine", "microvm"]].concat()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        "-machine microvm,",
        "virtio-rng-device,rng=rng",
        "virtio-net-device,netdev=net ",
        "addr=851968,force-raw=on",
        " acpi_rsdp=0xd0000 a b'",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("-pci") && !text.contains("romfile"), "{text}");
    let many = ["--machine", "microvm", "--share", "/usr:ro", "--share", "/var:ro", "--share"];
    let said = world.run(&[&options[..], &many, &["/etc:ro"]].concat());
    assert!(said.contains("8 virtio devices without KVM, not 9: use fewer"), "{said}");
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
}

#[test]
fn writes_a_disk_only_on_request() {
    let world = World::new("disk", "exit 1");
    let disk = world.path("disk.qcow2");
    fs::write(&disk, "").unwrap();
    let printed = |options: &[&str]| {
        let more = ["--dry-run", "--disk", &disk];
        let output = world.command(&[&more, options].concat()).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = printed(&[]);
    assert!(text.contains("id=root,format=qcow2,snapshot=on"), "{text}");
    assert!(text.contains("-m 512M"), "{text}");
    let text = printed(&["--write"]);
    assert!(text.contains("format=qcow2,discard=on") && !text.contains("snapshot"), "{text}");
}

#[test]
fn ignores_files_that_others_put_next_to_the_runs() {
    let world = World::new("planted", "echo 'qemu: here' >&2; exit 1");
    let make = |name: &str| {
        let path = world.at(name);
        fs::create_dir(&path).unwrap();
        path
    };
    let (pipe, victim, theirs) =
        (make("tmp/mote-run-pipe"), make("victim"), make("tmp/mote-run-theirs"));
    let mkfifo = Command::new("mkfifo").arg(pipe.join("lock")).status().unwrap();
    assert!(mkfifo.success());
    for lock in [&victim, &theirs] {
        fs::write(lock.join("lock"), "").unwrap();
    }
    let to_lock = make("tmp/mote-run-to-lock");
    std::os::unix::fs::symlink(victim.join("lock"), to_lock.join("lock")).unwrap();
    std::os::unix::fs::symlink(&victim, world.at("tmp/mote-run-link")).unwrap();
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        std::os::unix::fs::chown(&theirs, Some(1000), None).unwrap();
    } else {
        fs::remove_dir_all(&theirs).unwrap();
    }
    // The directory of a run that was killed is removed.
    let left = make("tmp/mote-run-left");
    fs::write(left.join("lock"), "").unwrap();
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(3600);
    for path in fs::read_dir(world.at("tmp")).unwrap().flatten().map(|entry| entry.path()) {
        let times = fs::FileTimes::new().set_modified(long_ago);
        fs::File::open(path).unwrap().set_times(times).unwrap();
    }
    let mut run = world.command(&[]).spawn().unwrap();
    let ended = wait("its end", SOON, || run.try_wait().unwrap());
    assert_eq!(ended.code(), Some(125));
    assert!(!left.exists());
    assert!(pipe.exists() && to_lock.exists() && victim.join("lock").exists());
    assert_eq!(theirs.exists(), is_root);
}

#[test]
fn other_users_cannot_read_a_run() {
    let world = World::new("private", "exec sleep 1000");
    let mut run = world.command(&[]).spawn().unwrap();
    let instance = world.instance();
    let run_directory = instance.ancestors().nth(2).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(run_directory), mode(&instance)), (0o700, 0o700));
    for file in ["config.iso", "instance.json"] {
        assert_eq!(mode(&instance.join(file)), 0o600, "{file}");
    }
    assert_eq!(mode(&run_directory.join("lock")), 0o600);
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    run.wait().unwrap();
}

#[test]
fn a_guest_cannot_reach_the_runs_files_or_create_devices() {
    let world = World::new("own", "grep CapEff /proc/self/status >\"$0.caps\"; exit 1");
    let share = world.path("");
    let said = world.run(&["--share", &format!("{share}:/m")]);
    assert!(said.contains("the guest could change this program's own files"), "{said}");
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
    let said = world.run(&["--share", &format!("{share}:/m:ro")]);
    assert!(said.contains("QEMU ended"), "{said}");
    if rustix::process::geteuid().is_root() {
        const MKNOD: u64 = 1 << 27;
        let caps = fs::read_to_string(world.path("qemu.caps")).unwrap();
        let caps = caps.trim_start_matches("CapEff:").trim();
        assert_eq!(u64::from_str_radix(caps, 16).unwrap() & MKNOD, 0, "{caps}");
    }
}

#[test]
fn does_not_read_a_console_that_a_guest_replaced() {
    let qemu = "rm \"$console\"; ln -s secret \"$console\"; sleep 0.2; exit 1";
    let world = World::new("replaced", qemu);
    fs::write(world.path("secret"), "mine\n").unwrap();
    let said = world.run(&["--console", &world.path("console")]);
    assert!(said.contains("QEMU ended") && !said.contains("mine"), "{said}");
}

#[test]
fn does_not_write_a_report_through_a_link() {
    let world = World::new("reports", "exit 1");
    let (victim, link) = (world.path("victim"), world.path("link"));
    fs::write(&victim, "mine").unwrap();
    std::os::unix::fs::symlink(&victim, &link).unwrap();
    for option in ["--result", "--junit", "--log", "--console"] {
        let said = world.run(&[option, &link]);
        assert!(said.contains("link is a symbolic link here"), "{option}: {said}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{option}");
    }
    let pipe = world.path("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for option in ["--result", "--junit", "--log"] {
        let mut run = world.command(&[option, &pipe]).spawn().unwrap();
        let ended = wait("its end", SOON, || run.try_wait().unwrap());
        assert_eq!(ended.code(), Some(125), "{option}");
    }
    let said = world.run(&["--result", "/dev/stderr"]);
    assert!(said.contains("\"outcome\":\"not-run\""), "{said}");
}
