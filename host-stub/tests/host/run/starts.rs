//! Errors before anything starts: exit code 125, and the option's name in the message. Also several
//! kernels.

use std::fs;
use std::process::{Command, Stdio};

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::{World, ended};

#[test]
fn rejects_invalid_options_before_starting_anything() {
    let world = World::new("refused", "exit 1");
    let [kernel, absent, inside, link, image, pipe, tmp] =
        ["kernel", "absent", "absent/file", "link", "image", "pipe", "tmp"]
            .map(|at| world.path(at));
    // As an earlier pull may have left it.
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
        (&["--pull", &to_link], "--pull ", "the path it leads to (realpath)"),
        (&["--result", &inside], "--result ", none),
        (&["--junit", &inside], "--junit ", none),
        (&["--log", &inside], "--log ", none),
        (&["--console", &tmp], "--console ", "tmp: this is a directory"),
        (&["--disk", &image], "--disk ", "image=raw"),
        // The pipe has no writer, so it cannot be opened.
        (&["--initrd", &pipe], "--initrd ", irregular),
        (&["--push", &from_pipe], "--push ", irregular),
        (&["--console", &pipe], "--console ", "pipe: this is not a regular file; use -v"),
    ] {
        let words = [&["--accel", "tcg", "--kernel", &kernel], words, &["--", "true"]].concat();
        let (code, said) = ended(&mut world.bare(&words));
        assert_eq!((code, said.lines().count()), (Some(125), 1), "{said}");
        assert!(said.starts_with(&format!("mote-host: {begin}")) && said.contains(end), "{said}");
    }
    for arch in ["aarch64", "riscv64"] {
        let words = ["--arch", arch, "--disk", &kernel, "--", "true"];
        let (_, said) = ended(&mut world.bare(&words));
        let begin = format!("mote-host: QEMU has no firmware for {arch}: --kernel");
        assert!(said.starts_with(&begin), "{said}");
    }
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
    // An existing file is truncated, not removed: it may belong to another program.
    let console = world.path("console");
    fs::write(&console, "of the last run").unwrap();
    let (_, said) = world.run(&["--accel", "tcg", "--console", &console]);
    assert!(said.starts_with("mote-host: QEMU ended (exit status: 1): no message\n"), "{said}");
    assert!(fs::read(&console).unwrap().is_empty());
}

#[test]
fn does_not_use_a_temporary_directory_with_a_comma() {
    let world = World::new("comma", "exit 1");
    let directory = world.0.join("a,b");
    fs::create_dir(&directory).unwrap();
    let (_, said) = ended(world.command(&["--accel", "tcg"]).env("TMPDIR", &directory));
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
fn run_works_without_home() {
    let world = World::new("home", "exit 1");
    let mut run = world.command(&["--accel", "tcg", "--dry-run"]);
    for name in ["HOME", "XDG_STATE_HOME", "MOTE_HOST_DIR"] {
        run.env_remove(name);
    }
    let output = run.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn rejects_an_invalid_matrix_before_starting_anything() {
    let world = World::new("unfit", "exit 1");
    let kernel = world.path("kernel");
    let three = ["--accel", "tcg", "--jobs", "3", "--kernel", &kernel, "--kernel", &kernel];
    let two = ["--initrd", &kernel, "--initrd", &kernel];
    let (code, said) = world.run(&[&three[..], &two].concat());
    assert_eq!(code, Some(125), "{said}");
    assert_eq!(said, "mote-host: 3 kernels, but 2 initramfs: give one for all, or one for each\n");
    // A process that does not know its kernel must refuse, instead of running all of them.
    for said in ["3:/x", "-1:/x", "2", "", "x"] {
        let (code, text) = ended(world.command(&three).env("MOTE_HOST_RUN_ONLY", said));
        assert_eq!(code, Some(125), "{said}");
        let begin = "mote-host: MOTE_HOST_RUN_ONLY is set by mote-host only";
        assert!(text.starts_with(begin), "{text}");
    }
    assert!(!world.pid_file("qemu").exists() && world.left() == 0);
}

#[test]
fn reports_each_kernel_and_exits_with_the_worst_code() {
    let qemu =
        "case \"$*\" in *kernel2*) echo 'qemu: two' >&2 ;; *) echo 'qemu: one' >&2 ;; esac; exit 1";
    let world = World::new("matrix", qemu);
    let second = world.path("kernel2");
    fs::write(&second, "").unwrap();
    let file = world.path("junit");
    let options = ["--accel", "tcg", "--kernel", &second, "--jobs", "2", "--junit", &file];
    let output = world.command(&options).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().all(|line| line.starts_with("FAILED ")), "{text}");
    assert!(text.contains("qemu: one") && text.contains("qemu: two"), "{text}");
    let junit = fs::read_to_string(file).unwrap();
    assert!(junit.contains("tests=\"2\" skipped=\"0\" errors=\"0\" failures=\"2\""), "{junit}");
    let shown = "<system-err>mote-host: QEMU ended (exit status: 1): qemu: two\n</system-err>";
    assert!(junit.contains(shown), "{junit}");
    assert_eq!(world.left(), 0);
}

#[test]
fn starts_the_agent_before_the_requested_init() {
    let world = World::new("rdinit", "exit 1");
    let kernel = world.path("kernel");
    let of = |mote: &[&str], append: &str| {
        let append = ["--initrd", &kernel, "--append", append, "--append", "y=2"];
        let options = [&["--accel", "tcg", "--dry-run"], mote, &append[..]].concat();
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
        let directory = world.0.join(name);
        fs::create_dir(&directory).unwrap();
        let link = world.0.join("link");
        std::os::unix::fs::symlink(&directory, &link).unwrap();
        for source in [&directory, &link] {
            let share = format!("{}:/m", source.display());
            let output = world.command(&["--accel", "tcg", "--dry-run", "--share", &share]);
            let text = { output }.output().unwrap().stdout;
            let text = String::from_utf8(text).unwrap();
            let path = directory.display().to_string().replace(',', ",,");
            assert!(text.contains(&format!("path={path},security_model=")), "{path} in {text}");
        }
        fs::remove_file(link).unwrap();
    }
}
