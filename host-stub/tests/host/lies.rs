//! Guests that lie about their files. mote-host writes nothing outside of the target, and no answer
//! makes it exceed its memory and time limits.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::peers::host::{Host, SOON, errors, wait};
use crate::peers::sftp::{
    Asked, FSTAT, LSTAT, OPEN, OPENDIR, READ, READDIR, READLINK, STAT, Said, guest, of_tree,
};

/// Memory limit of the command, KiB, including its program, its threads' stacks and one listing.
const MEMORY: u32 = 400 * 1024;

fn pulled(host: &Host) -> Result<(), String> {
    let target = host.path("target");
    let output =
        host.run_within(MEMORY, &["file", "pull", "-r", "vm1/t", target.to_str().unwrap()]);
    if output.status.success() { Ok(()) } else { Err(errors(&output)) }
}

fn outside(host: &Host) -> PathBuf {
    let outside = host.path("outside");
    fs::write(&outside, "mine").unwrap();
    outside
}

/// Answers as a guest with a directory /t that contains files with these names.
fn of_files(asked: &Asked, names: &[&str]) -> Said {
    of_tree(asked, |path| if path == "/t" { Said::Directory } else { Said::File }, names)
}

fn is_untouched(host: &Host) {
    assert_eq!(fs::read_to_string(host.path("outside")).unwrap(), "mine");
}

#[test]
fn rejects_a_name_that_is_listed_twice() {
    let host = guest(|asked| match (asked.kind, asked.path.as_str(), asked.nth) {
        (LSTAT, "/t/x", 0) => Said::Link,
        (READLINK, ..) => Said::Target("../outside"),
        _ => of_files(asked, &["x", "x"]),
    });
    outside(&host);
    let error = pulled(&host).unwrap_err();
    is_untouched(&host);
    assert!(error.contains("lists x twice"), "{error}");
    assert!(!host.path("target/x").exists());
}

#[test]
fn never_writes_a_file_through_a_link_of_an_earlier_pull() {
    let host = guest(|asked| of_files(asked, &["x", "y"]));
    outside(&host);
    fs::create_dir(host.path("target")).unwrap();
    fs::create_dir(host.path("target/t")).unwrap();
    std::os::unix::fs::symlink("../../outside", host.path("target/t/x")).unwrap();
    fs::hard_link(host.path("outside"), host.path("target/t/y")).unwrap();
    pulled(&host).unwrap();
    is_untouched(&host);
    for name in ["x", "y"] {
        let here = host.path("target/t").join(name);
        assert!(here.symlink_metadata().unwrap().is_file());
        assert_eq!(fs::read_to_string(here).unwrap(), "of the guest");
    }
}

#[test]
fn a_directory_replaced_during_a_pull_has_no_effect() {
    // Like a user who can write to the target, replaces a directory with a link between two files.
    let target = Arc::new(OnceLock::<PathBuf>::new());
    let ours = target.clone();
    let host = guest(move |asked| {
        if (asked.kind, asked.path.as_str()) == (LSTAT, "/t/outside") {
            let target = ours.get().unwrap();
            fs::rename(target, target.with_extension("old")).unwrap();
            std::os::unix::fs::symlink(".", target).unwrap();
        }
        of_files(asked, &["a", "outside"])
    });
    outside(&host);
    target.set(host.path("target")).unwrap();
    pulled(&host).unwrap();
    is_untouched(&host);
    assert_eq!(fs::read_to_string(host.path("target.old/outside")).unwrap(), "of the guest");
}

#[test]
fn keeps_existing_devices_and_directories() {
    let host = guest(|asked| of_files(asked, &["x"]));
    fs::create_dir_all(host.path("target/t/x")).unwrap();
    let error = pulled(&host).unwrap_err();
    assert!(error.contains("target/t/x") && error.contains("directory on this"), "{error}");
    fs::remove_dir(host.path("target/t/x")).unwrap();
    let fifo = Command::new("mkfifo").arg(host.path("target/t/x")).status().unwrap();
    assert!(fifo.success());
    let error = pulled(&host).unwrap_err();
    assert!(error.contains("neither a file nor a link"), "{error}");
    let pipe = host.path("target/t/x");
    let error = host.refused(MEMORY, &["file", "pull", "vm1/t/f", pipe.to_str().unwrap()]);
    assert!(error.contains("neither a file nor a link"), "{error}");
}

#[test]
fn rejects_names_with_paths_and_never_follows_links() {
    for name in ["../outside", "/outside", "", "a\0b"] {
        let host = guest(move |asked| of_files(asked, &[name]));
        outside(&host);
        assert!(pulled(&host).is_err(), "{name:?}");
        is_untouched(&host);
    }
    let host = guest(|asked| {
        let what = |path: &str| if path == "/t" { Said::Directory } else { Said::Link };
        if asked.kind == READLINK {
            return Said::Target("/etc/passwd");
        }
        of_tree(asked, what, &[".", "..", "x"])
    });
    pulled(&host).unwrap();
    assert_eq!(fs::read_link(host.path("target/x")).unwrap(), PathBuf::from("/etc/passwd"));
}

#[test]
fn gives_up_an_endless_listing() {
    let many: fn(usize) -> Vec<String> =
        |nth| (0..500).map(|number| format!("name-{nth}-{number}")).collect();
    let nothing: fn(usize) -> Vec<String> = |_| Vec::new();
    let dots: fn(usize) -> Vec<String> = |_| vec![".".to_owned(); 4000];
    let long: fn(usize) -> Vec<String> = |nth| vec![format!("{nth}{}", "x".repeat(100_000))];
    let full = "exceed 64 MiB";
    for (what, told) in [(many, full), (dots, full), (long, full), (nothing, "an empty list")] {
        let host = guest(move |asked| match asked.kind {
            READDIR => Said::Names(what(asked.nth)),
            _ => of_tree(asked, |_| Said::Directory, &[]),
        });
        let target = host.path("target");
        let pull = &["file", "pull", "-r", "vm1/t", target.to_str().unwrap()][..];
        let others: [&[&str]; 2] = [&["file", "ls", "vm1/t"], &["file", "rm", "-r", "vm1/t"]];
        // Listing 64 MiB takes a while, so the other commands skip this case.
        let others = if told == full { &others[..0] } else { &others[..] };
        for args in [pull].iter().chain(others) {
            let error = host.refused(MEMORY, args);
            assert!(error.contains("in the guest, /t") && error.contains(told), "{error}");
        }
    }
}

#[test]
fn gives_up_an_endlessly_deep_tree() {
    // Each directory has such a list. The limit covers all directories on the path together.
    let wide: Vec<String> = (0..3000).map(|number| format!("d{number}")).collect();
    for (names, told) in [(vec!["d".to_owned()], "deeper than 256"), (wide, "exceed 64 MiB")] {
        let host = guest(move |asked| match (asked.kind, asked.nth) {
            (READDIR, nth) if nth % 2 == 0 => Said::Names(names.clone()),
            _ => of_tree(asked, |_| Said::Directory, &[]),
        });
        let error = pulled(&host).unwrap_err();
        assert!(error.contains(told), "{}", &error[error.len().saturating_sub(300)..]);
        let error = host.refused(MEMORY, &["file", "rm", "-r", "vm1/t"]);
        assert!(error.contains(told), "{}", &error[error.len().saturating_sub(300)..]);
        assert!(error.len() < 10_000, "{} bytes", error.len());
    }
}

#[test]
fn an_unsolicited_answer_ends_the_session() {
    let host = guest(|asked| match asked.kind {
        STAT | LSTAT => Said::Flood,
        _ => Said::Done,
    });
    let error = host.refused(MEMORY, &["file", "stat", "vm1/t"]);
    assert!(error.contains("an unrequested answer"), "{error}");
}

#[test]
fn survives_excess_data() {
    let host = guest(|asked| match asked.kind {
        READ => Said::Data(vec![b'x'; 40_000]),
        OPEN | OPENDIR => Said::Handle,
        STAT | LSTAT => Said::File,
        _ => Said::Done,
    });
    let target = host.path("target");
    let error = host.refused(MEMORY, &["file", "pull", "vm1/t", target.to_str().unwrap()]);
    assert!(error.contains("40000 bytes instead of at most 32768"), "{error}");
    // The host still serves others.
    wait("the host", SOON, || host.try_run(&["list"]).ok());
}

#[test]
fn never_follows_a_link_of_an_earlier_pull() {
    // Names that are links in the first pull are files or directories in the second.
    let is_second = Arc::new(AtomicBool::new(false));
    let ours = is_second.clone();
    let host = guest(move |asked| {
        let is_second = ours.load(Ordering::Relaxed);
        match (asked.kind, asked.path.as_str()) {
            (LSTAT, "/d" | "/t/sub") if !is_second => Said::Link,
            (READLINK, ..) => Said::Target("elsewhere"),
            _ => {
                let what = |path: &str| match path {
                    "/d" | "/t" | "/t/sub" => Said::Directory,
                    _ => Said::File,
                };
                of_tree(asked, what, if asked.path == "/t" { &["sub"] } else { &["outside"] })
            }
        }
    });
    fs::create_dir(host.path("elsewhere")).unwrap();
    let pull = |args: &[&str], to: &str| {
        let to = host.path(to).display().to_string();
        host.try_run(&[&["file", "pull"], args, &[to.as_str()]].concat())
    };
    pull(&["-r", "vm1/d"], "target").unwrap();
    // The second time, the target exists, so the tree goes to tree/t.
    pull(&["-r", "vm1/t"], "tree").unwrap();
    pull(&["-r", "vm1/t"], "tree").unwrap();
    assert!(host.path("target").is_symlink() && host.path("tree/t/sub").is_symlink());
    std::os::unix::fs::symlink("../elsewhere", host.path("tree/dangling")).unwrap();
    is_second.store(true, Ordering::Relaxed);
    for (args, to) in [
        (&["-r", "vm1/d"][..], "target"),
        (&["-r", "vm1/d"], "target/"),
        (&["vm1/outside"], "target"),
        (&["vm1/outside"], "target/outside"),
        (&["-r", "vm1/t"], "tree"),
        (&["-r", "vm1/d"], "tree/dangling"),
        (&["vm1/outside"], "tree/dangling/new"),
        (&["-p", "vm1/outside"], "tree/dangling/new/"),
        (&["-p", "vm1/outside"], "target/new/outside"),
    ] {
        let error = pull(args, to).unwrap_err();
        assert!(error.contains("is a symbolic link here and"), "{to}: {error}");
    }
    assert_eq!(fs::read_dir(host.path("elsewhere")).unwrap().count(), 0);
    // Symbolic links in the part of the path that names the current directory (`$PWD`) belong to
    // the user.
    std::os::unix::fs::symlink(&host.directory, host.path("home")).unwrap();
    let (home, to) = (host.path("home"), host.path("home/new"));
    let mut command = host.command(&["file", "pull", "vm1/outside", to.to_str().unwrap()]);
    assert!(!command.output().unwrap().status.success());
    assert!(command.env("PWD", &home).current_dir(home).status().unwrap().success());
    assert_eq!(fs::read_to_string(host.path("new")).unwrap(), "of the guest");
}

#[test]
fn reports_what_cannot_be_copied_and_copies_the_rest() {
    let names: Vec<String> = (0..20).map(|number| format!("pipe{number:02}")).collect();
    let host = guest(move |asked| {
        let what = |path: &str| match path {
            "/t" => Said::Directory,
            "/t/a" | "/t/z" => Said::File,
            _ => Said::Other(0o010_644, 0),
        };
        let names: Vec<&str> =
            ["a", "z"].into_iter().chain(names.iter().map(|name| &**name)).collect();
        of_tree(asked, what, &names)
    });
    let target = host.path("target").display().to_string();
    let output = host.command(&["file", "pull", "-r", "vm1/t", &target]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("mote-host: skipped, ") && said.contains("/t/pipe00, "), "{said}");
    assert!(said.ends_with("/t/pipe07 and 12 more\n"), "{said}");
    for name in ["a", "z"] {
        assert_eq!(fs::read_to_string(host.path("target").join(name)).unwrap(), "of the guest");
    }
    // A pipe that is named on the command line is an error.
    let error = host.refused(MEMORY, &["file", "pull", "-r", "vm1/t/pipe00", &target]);
    assert!(error.contains("not a file, directory or symbolic link"), "{error}");
    // The reverse direction: no process ever opens the other end of a local pipe.
    let source = host.path("source");
    fs::create_dir(&source).unwrap();
    for name in ["a", "z"] {
        fs::write(source.join(name), "mine").unwrap();
    }
    assert!(Command::new("mkfifo").arg(source.join("p")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(source.join("s")).unwrap();
    let source = source.display().to_string();
    let output = host.run_within(MEMORY, &["file", "push", "-r", &source, "vm1/t"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let names = format!("{source}/p, {source}/s\n");
    assert!(said.starts_with("mote-host: skipped, ") && said.ends_with(&names), "{said}");
}

#[test]
fn a_directory_replaced_during_a_push_has_no_effect() {
    // If the source is on a share, a guest can replace the directory with a link before it answers.
    let source = Arc::new(OnceLock::<PathBuf>::new());
    let opened = Arc::new(AtomicBool::new(false));
    let (ours, seen) = (source.clone(), opened.clone());
    let host = guest(move |asked| {
        if asked.kind == LSTAT && asked.path.ends_with("/d") {
            let d = ours.get().unwrap().join("d");
            fs::rename(&d, d.with_extension("old")).unwrap();
            std::os::unix::fs::symlink("../secrets", d).unwrap();
        }
        seen.fetch_or(asked.kind == OPEN && asked.path.ends_with("key"), Ordering::Relaxed);
        let is_file = asked.path.ends_with("key") || asked.path.ends_with("/f");
        of_tree(asked, |_| if is_file { Said::File } else { Said::Directory }, &[])
    });
    let here = host.path("source");
    for (directory, file) in [(here.join("d"), "f"), (host.path("secrets"), "key")] {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(file), "mine").unwrap();
    }
    source.set(here.clone()).unwrap();
    host.run(&["file", "push", "-r", here.to_str().unwrap(), "vm1/t"]);
    assert!(here.join("d").is_symlink() && !opened.load(Ordering::Relaxed));
}

#[test]
fn a_push_reports_dropped_bits_and_protected_files() {
    use std::os::unix::fs::PermissionsExt;
    let host = guest(|asked| match (asked.kind, asked.path.as_str()) {
        (OPEN, "/tmp/theirs") => Said::Refused(3),
        (STAT, "/tmp") => Said::Other(0o041_777, 0),
        (LSTAT, "/tmp/theirs") => Said::Other(0o100_600, 1000),
        (FSTAT, "/kept/source/f") => Said::Other(0o104_755, 0),
        (FSTAT, _) => Said::File,
        _ => {
            let is_tree = |path: &str| path == "/dropped" || path == "/kept";
            of_tree(asked, |path| if is_tree(path) { Said::Directory } else { Said::File }, &[])
        }
    });
    let source = host.path("source");
    fs::create_dir(&source).unwrap();
    fs::write(source.join("f"), "x").unwrap();
    fs::set_permissions(source.join("f"), fs::Permissions::from_mode(0o4755)).unwrap();
    let push = |to: &str| {
        let args = ["file", "push", "-r", source.to_str().unwrap(), to];
        let output = host.command(&args).output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(push("vm1/kept/"), (true, String::new()));
    let said = "mote-host: the guest did not apply the original's setuid, setgid or sticky bit: ";
    assert_eq!(push("vm1/dropped/"), (true, format!("{said}/dropped/source/f (4755)\n")));
    let error = host
        .refused(MEMORY, &["file", "push", source.join("f").to_str().unwrap(), "vm1/tmp/theirs"]);
    assert!(error.contains("belongs to user 1000, and in a sticky directory"), "{error}");
    assert!(error.contains("permission denied"), "{error}");
}
