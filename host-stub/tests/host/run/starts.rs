//! Errors before anything starts: exit code 125, and the option's name in the message. Several
//! kernels. Boots that never reach an agent: the first line names the cause.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;

use super::{World, ended};
use crate::peers::qmp::Qemu;

#[test]
fn rejects_invalid_options_before_starting_anything() {
    let world = World::new("refused", "exit 1");
    let [kernel, below, absent, inside, link, image, pipe, tmp] =
        ["kernel", "kernel/file", "absent", "absent/file", "link", "image", "pipe", "tmp"]
            .map(|at| world.path(at));
    // An earlier pull may have left such a link.
    std::os::unix::fs::symlink(&tmp, &link).unwrap();
    fs::write(&image, b"QFI\xfb\0\0\0\x03").unwrap();
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let [push, pull, to_link, from_pipe] =
        [(&absent, "/x"), (&"/x".to_owned(), &inside), (&"/x".to_owned(), &link), (&pipe, "/x")]
            .map(|(from, to)| format!("{from}:{to}"));
    let (none, irregular) =
        ("absent: No such file or directory", "pipe: this is a pipe or a socket");
    for (words, begin, end) in [
        (&["--initrd", &absent][..], "--initrd ", none),
        (&["--share", &absent], "--share ", none),
        (&["-t"], "-t needs a terminal on stdin", ""),
        (&["--qemu", "no-such-qemu"], "no-such-qemu not found", ""),
        (&["--", ""], "the command's name is empty", ""),
        (&["--push", &push], "--push ", none),
        (&["--pull", &pull], "--pull ", none),
        (&["--pull", &to_link], "--pull ", "the path that it points to (realpath)"),
        (&["--result", &inside], "--result ", none),
        (&["--junit", &inside], "--junit ", none),
        (&["--log", &below], "--log ", "kernel is not a directory"),
        (&["--console", &tmp], "--console ", "tmp: this is a directory"),
        (&["--disk", &image], "--disk ", "image=raw"),
        // The pipe has no writer, so it cannot be opened.
        (&["--initrd", &pipe], "--initrd ", irregular),
        (&["--push", &from_pipe], "--push ", irregular),
        (&["--console", &pipe], "--console ", "pipe: this is not a regular file; use -v"),
    ] {
        let words = [&["--kernel", &kernel], words, &["--", "true"]].concat();
        let (code, said) = ended(&mut world.bare(&words));
        assert_eq!((code, said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.starts_with(&format!("mote-host: {begin}")) && said.contains(end), "{said}");
    }
    let console = world.path("console");
    fs::write(&console, "of the last run").unwrap();
    for arch in ["aarch64", "riscv64"] {
        let reports = ["--console", &console, "--log", "in-this-directory", "--", "true"];
        let words = [&["--arch", arch, "--disk", &kernel], &reports[..]].concat();
        let (_, said) = ended(&mut world.bare(&words));
        let begin = format!("mote-host: QEMU has no firmware for {arch}: --kernel");
        assert!(said.starts_with(&begin), "{said}");
    }
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
    assert_eq!(fs::read_to_string(&console).unwrap(), "of the last run");
    assert!(!Path::new("in-this-directory").exists());
    // An existing file is truncated, not removed: it may belong to another program.
    let said = world.run(&["--console", &console]);
    assert!(said.starts_with("mote-host: QEMU ended (exit status: 1): no message\n"), "{said}");
    assert!(fs::read(&console).unwrap().is_empty());
}

#[test]
fn does_not_use_a_temporary_directory_with_a_comma() {
    let world = World::new("comma", "exit 1");
    let directory = world.at("a,b");
    fs::create_dir(&directory).unwrap();
    let (_, said) = ended(world.command(&[]).env("TMPDIR", &directory));
    assert!(said.starts_with("mote-host: QEMU ended"), "{said}");
    assert!(!fs::read_to_string(world.path("arguments")).unwrap().contains("a,,b"));
}

#[test]
fn an_invalid_command_line_exits_125_for_run_and_2_otherwise() {
    let world = World::new("line", "exit 1");
    let kernel = world.path("kernel");
    for words in [
        &["--kernel", &kernel, "--no-such-option", "--", "true"][..],
        &["--kernel", &kernel],
        &["--kernel", &kernel, "--kernel", &kernel, "--console", &world.path("c"), "--", "true"],
        &["--kernel", &kernel, "--timeout", "soon", "--", "true"],
    ] {
        assert_eq!(ended(&mut world.bare(words)).0, Some(125), "{words:?}");
    }
    assert!(world.bare(&["--help"]).output().unwrap().status.success());
    let mut other = Command::new(env!("CARGO_BIN_EXE_mote-host"));
    other.args(["exec", "--no-such-option"]).stderr(Stdio::null());
    assert_eq!(other.status().unwrap().code(), Some(2));
}

#[test]
fn rejects_an_invalid_matrix_before_starting_anything() {
    let world = World::new("unfit", "exit 1");
    let kernel = world.path("kernel");
    let three = ["--jobs", "3", "--kernel", &kernel, "--kernel", &kernel];
    let two = ["--initrd", &kernel, "--initrd", &kernel];
    let said = world.run(&[&three[..], &two].concat());
    assert_eq!(said, "mote-host: 3 kernels, but 2 initramfs: give one for all, or one for each\n");
    // A process that does not know its kernel must refuse, instead of running all of them.
    for said in ["3:/x", "-1:/x", "2", "", "x"] {
        let (code, text) = ended(world.command(&three).env("MOTE_HOST_RUN_ONLY", said));
        assert_eq!(code, Some(125), "{said}");
        let begin = "mote-host: MOTE_HOST_RUN_ONLY, which only mote-host sets, is invalid";
        assert!(text.starts_with(begin), "{text}");
    }
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
}

#[test]
fn reports_each_kernel_and_exits_with_the_worst_code() {
    let qemu = "case \"$*\" in *kernel2*/two* | *kernel2*/both*) echo 'qemu: two' >&2 ;; \
                */one* | */both*) echo 'qemu: one' >&2 ;; esac; exit 1";
    let world = World::new("matrix", qemu);
    let [second, one, two, both, file] =
        ["kernel2", "one", "two", "both", "junit"].map(|name| world.path(name));
    for path in [&second, &one, &two, &both] {
        fs::write(path, "").unwrap();
    }
    for initrds in [&["--initrd", &one, "--initrd", &two][..], &["--initrd", &both]] {
        let options = ["--kernel", &second, "--jobs", "2", "--junit", &file];
        let output = world.command(&[initrds, &options].concat()).output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.lines().all(|line| line.starts_with("FAILED ")), "{text}");
        assert!(text.contains("qemu: one") && text.contains("qemu: two"), "{text}");
        let junit = fs::read_to_string(&file).unwrap();
        assert!(junit.contains("tests=\"2\" skipped=\"0\" errors=\"0\" failures=\"2\""), "{junit}");
        let shown = "<system-err>mote-host: QEMU ended (exit status: 1): qemu: two\n</system-err>";
        assert!(junit.contains(shown), "{junit}");
        assert_eq!(world.left(), 0);
    }
}

#[test]
fn starts_the_agent_before_the_requested_init() {
    let world = World::new("rdinit", "exit 1");
    let kernel = world.path("kernel");
    let of = |mote: &[&str], append: &str| {
        let append = ["--initrd", &kernel, "--append", append, "--append", "y=2"];
        let options = [&["--dry-run"], mote, &append[..]].concat();
        String::from_utf8(world.command(&options).output().unwrap().stdout).unwrap()
    };
    let mote = ["--mote", &kernel];
    let text = of(&mote, "x=1 rdinit=/myinit -- rdinit=/its");
    assert!(text.contains("no_timer_check rdinit=/.mote/init x=1 -- rdinit=/its y=2'"), "{text}");
    let text = of(&[], "x=1 rdinit=/myinit");
    assert!(text.contains("no_timer_check x=1 rdinit=/myinit y=2'"), "{text}");
}

#[test]
fn any_directory_can_be_shared() {
    let world = World::new("paths", "exit 1");
    for name in ["a,b", "a:b", "a b"] {
        let directory = world.at(name);
        fs::create_dir(&directory).unwrap();
        let (path, link) = (directory.display().to_string(), world.path("link"));
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        for share in [path.clone(), format!("{path}:/m"), format!("{link}:/m")] {
            let mut run = world.command(&["--dry-run", "--share", &share]);
            let text = String::from_utf8(run.output().unwrap().stdout).unwrap();
            let value = path.replace(',', ",,");
            assert!(text.contains(&format!("path={value},security_model=")), "{share} in {text}");
        }
        fs::remove_file(link).unwrap();
    }
}

const ALERT: &str = "ALERT!  /dev/vda1 does not exist.  Dropping to a shell!";

#[test]
fn reports_a_boot_that_stops_in_its_initramfs_immediately() {
    let script = format!(
        "printf 'Gave up.\\r\\n{ALERT}\\r\\n\\r\\n(initramfs) ' >\"$console\"; exec sleep 1000"
    );
    let world = World::new("initramfs", &script);
    let said = world.run(&["--boot-timeout", "9999"]);
    let first = format!("mote-host: the guest's boot stopped at \"{ALERT}\": ");
    assert!(said.starts_with(&first), "{said}");
    assert!(said.ends_with(&format!("  Gave up.\n  {ALERT}\n  (initramfs) \n")), "{said}");
    // One guest restarts by itself. The other one reaches the time limit before it restarts.
    let script = format!("printf '{ALERT}\\r\\n' >\"$console\"; exit 0");
    let said = World::new("reboots", &script).run(&[]);
    assert!(said.starts_with(&first), "{said}");
    let script = "printf '\\033[0;1;31mYou are in emergency mode.\\033[0m After' >\"$console\"; exec sleep 1000";
    let world = World::new("emergency", script);
    let said = world.run(&["--boot-timeout", "0.5"]);
    let first = "mote-host: no agent after 0.5 s: the guest's boot stopped at \"You are in emergency mode. After\": ";
    assert!(said.starts_with(first), "{said}");
    // Quoted lines contain no colours.
    assert!(said.ends_with("\n  You are in emergency mode. After\n"), "{said}");
}

fn with_monitor(name: &str, script: &str, options: &[&str], act: impl FnOnce(&Qemu)) -> String {
    let world = World::new(name, &format!("{script}exec sleep 1000"));
    let disk = world.path("disk");
    fs::write(&disk, "no boot loader").unwrap();
    let program = world.path("qemu");
    let words = [&["--qemu", &program, "--disk", &disk], options, &["--", "true"]].concat();
    std::thread::scope(|threads| {
        let run = threads.spawn(|| ended(&mut world.bare(&words)));
        let qemu = Qemu::start(&world.instance().join("qmp"));
        qemu.inner().share_read = Some(0);
        qemu.is_read();
        act(&qemu);
        let (code, said) = run.join().unwrap();
        assert_eq!(code, Some(125), "{said}");
        said
    })
}

#[test]
fn distinguishes_an_unbootable_disk_from_a_missing_driver() {
    let run = |name, script| with_monitor(name, script, &["--boot-timeout", "2"], |_| ());
    let said = run("empty", "");
    let first = "mote-host: no agent after 2 s: nothing was booted: ";
    assert!(said.starts_with(first) && said.contains("console=ttyS0"), "{said}");
    let said = run("talks", "printf 'Linux\\r\\n' >\"$console\"; ");
    assert!(said.contains("(virtio_blk)") && !said.contains("nothing was booted"), "{said}");
}

#[test]
fn reports_a_full_disk_of_this_machine() {
    for (name, options) in [("full", &[][..]), ("fullwrite", &["--write"])] {
        let said = with_monitor(name, "", options, |qemu| {
            let data = json!({"operation": "write", "action": "stop", "nospace": true});
            qemu.event_with("BLOCK_IO_ERROR", &data);
            qemu.event("STOP");
        });
        let tmp = if name == "full" { "/tmp, which stores" } else { ", which stores" };
        assert!(said.starts_with("mote-host: /") && said.contains(tmp), "{said}");
        assert!(said.contains(" the guest's disk writes, is full"), "{said}");
    }
}
