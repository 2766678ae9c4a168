//! Guests that lie about their files: nothing is written outside of the target, and nothing they say costs more than
//! it may.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};

use crate::peers::host::{Host, SOON, wait};
use crate::peers::sftp::{
    LSTAT, OPEN, OPENDIR, READ, READDIR, READLINK, STAT, Said, guest, of_tree,
};

/// Memory that the command may have, KiB: with its program, its threads' stacks and one listing in it.
const MEMORY: u32 = 400 * 1024;

/// Its complaint; it must fail.
fn refused(host: &Host, args: &[&str]) -> String {
    let output = host.run_within(MEMORY, args);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
    error
}

/// Pulls /t of the guest into `target`.
fn pulled(host: &Host) -> Result<(), String> {
    let target = host.path("target");
    let output =
        host.run_within(MEMORY, &["file", "pull", "-r", "vm1/t", target.to_str().unwrap()]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(error) }
}

/// A file that is not the guest's to write.
fn outside(host: &Host) -> PathBuf {
    let outside = host.path("outside");
    fs::write(&outside, "mine").unwrap();
    outside
}

fn is_untouched(host: &Host) {
    assert_eq!(fs::read_to_string(host.path("outside")).unwrap(), "mine");
}

#[test]
fn a_name_that_is_listed_twice_is_refused() {
    let host = guest(|asked| match (asked.kind, asked.path.as_str(), asked.nth) {
        (LSTAT, "/t/x", 0) => Said::Link,
        (READLINK, ..) => Said::Target("../outside"),
        _ => of_tree(
            asked,
            |path| if path == "/t" { Said::Directory } else { Said::File },
            &["x", "x"],
        ),
    });
    outside(&host);
    let error = pulled(&host).unwrap_err();
    is_untouched(&host);
    assert!(error.contains("lists x twice"), "{error}");
    assert!(!host.path("target/x").exists());
}

#[test]
fn a_file_is_never_written_through_a_link_that_an_earlier_pull_left() {
    let host = guest(|asked| {
        let what = |path: &str| if path == "/t" { Said::Directory } else { Said::File };
        of_tree(asked, what, &["x", "y"])
    });
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
fn a_directory_is_never_filled_through_a_link() {
    let host = guest(|asked| {
        let what = |path: &str| match path {
            "/t" | "/t/d" => Said::Directory,
            _ => Said::File,
        };
        of_tree(asked, what, if asked.path == "/t" { &["d"] } else { &["outside"] })
    });
    outside(&host);
    // Also where the link is the target's own name.
    for link in ["target/t/d", "target/t"] {
        let _none = fs::remove_dir_all(host.path("target"));
        fs::create_dir_all(host.path(link).parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&host.directory, host.path(link)).unwrap();
        let error = pulled(&host).unwrap_err();
        is_untouched(&host);
        assert!(error.contains("is a link here: nothing is written through it"), "{error}");
    }
}

#[test]
fn a_directory_that_is_replaced_meanwhile_leads_nowhere_else() {
    // As whoever may write to the target would do it: between two files a link takes its directory's place.
    let target = Arc::new(OnceLock::<PathBuf>::new());
    let ours = target.clone();
    let host = guest(move |asked| {
        if (asked.kind, asked.path.as_str()) == (LSTAT, "/t/outside") {
            let target = ours.get().unwrap();
            fs::rename(target, target.with_extension("old")).unwrap();
            std::os::unix::fs::symlink(".", target).unwrap();
        }
        let what = |path: &str| if path == "/t" { Said::Directory } else { Said::File };
        of_tree(asked, what, &["a", "outside"])
    });
    outside(&host);
    target.set(host.path("target")).unwrap();
    pulled(&host).unwrap();
    is_untouched(&host);
    assert_eq!(fs::read_to_string(host.path("target.old/outside")).unwrap(), "of the guest");
}

#[test]
fn devices_and_directories_that_are_in_the_way_are_left_alone() {
    let host = guest(|asked| {
        let what = |path: &str| if path == "/t" { Said::Directory } else { Said::File };
        of_tree(asked, what, &["x"])
    });
    fs::create_dir_all(host.path("target/t/x")).unwrap();
    let error = pulled(&host).unwrap_err();
    assert!(error.contains("target/t/x") && error.contains("is a directory here"), "{error}");
    fs::remove_dir(host.path("target/t/x")).unwrap();
    let fifo = Command::new("mkfifo").arg(host.path("target/t/x")).status().unwrap();
    assert!(fifo.success());
    let error = pulled(&host).unwrap_err();
    assert!(error.contains("neither a file nor a link"), "{error}");
}

#[test]
fn names_that_lead_elsewhere_are_refused_and_links_are_never_followed() {
    for name in ["../outside", "/outside", "", "a\0b"] {
        let host = guest(move |asked| {
            of_tree(asked, |path| if path == "/t" { Said::Directory } else { Said::File }, &[name])
        });
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
fn a_listing_without_end_is_given_up() {
    let many: fn(usize) -> Vec<String> =
        |nth| (0..500).map(|number| format!("name-{nth}-{number}")).collect();
    let nothing: fn(usize) -> Vec<String> = |_| Vec::new();
    let dots: fn(usize) -> Vec<String> = |_| vec![".".to_owned(); 4000];
    let long: fn(usize) -> Vec<String> = |nth| vec![format!("{nth}{}", "x".repeat(100_000))];
    for (what, told) in [
        (many, "longer than 64 MiB"),
        (dots, "longer than 64 MiB"),
        (long, "longer than 64 MiB"),
        (nothing, "a list of no names"),
    ] {
        let host = guest(move |asked| match asked.kind {
            READDIR => Said::Names(what(asked.nth)),
            _ => of_tree(asked, |_| Said::Directory, &[]),
        });
        let target = host.path("target");
        let pull = &["file", "pull", "-r", "vm1/t", target.to_str().unwrap()][..];
        let others: [&[&str]; 2] = [&["file", "ls", "vm1/t"], &["file", "rm", "-r", "vm1/t"]];
        // 64 MiB take their time.
        let others = if told.contains("MiB") { &others[..0] } else { &others[..] };
        for args in [pull].iter().chain(others) {
            let error = refused(&host, args);
            assert!(
                error.contains("in the guest, /t") && error.contains(told),
                "{args:?}: {error}"
            );
        }
    }
}

#[test]
fn a_tree_without_a_bottom_is_given_up() {
    // Each directory has one; what is held of all above it counts too.
    let wide: Vec<String> = (0..3000).map(|number| format!("d{number}")).collect();
    for (names, told) in [(vec!["d".to_owned()], "deeper than 256"), (wide, "longer than 64 MiB")] {
        let host = guest(move |asked| match (asked.kind, asked.nth) {
            (READDIR, nth) if nth % 2 == 0 => Said::Names(names.clone()),
            _ => of_tree(asked, |_| Said::Directory, &[]),
        });
        let error = pulled(&host).unwrap_err();
        assert!(error.contains(told), "{}", &error[error.len().saturating_sub(300)..]);
        let error = refused(&host, &["file", "rm", "-r", "vm1/t"]);
        assert!(error.contains(told), "{}", &error[error.len().saturating_sub(300)..]);
        assert!(error.len() < 10_000, "{} bytes", error.len());
    }
}

#[test]
fn what_nobody_asked_for_ends_the_session() {
    let host = guest(|asked| match asked.kind {
        STAT | LSTAT => Said::Flood,
        _ => Said::Done,
    });
    let error = refused(&host, &["file", "stat", "vm1/t"]);
    assert!(error.contains("an answer to no request"), "{error}");
}

#[test]
fn more_than_was_asked_for_and_numbers_that_overflow_are_survived() {
    let host = guest(|asked| match asked.kind {
        READ => Said::Data(vec![b'x'; 40_000]),
        OPEN | OPENDIR => Said::Handle,
        STAT | LSTAT => Said::File,
        200 => Said::Numbers(u64::MAX),
        _ => Said::Done,
    });
    let target = host.path("target");
    let error = refused(&host, &["file", "pull", "vm1/t", target.to_str().unwrap()]);
    assert!(error.contains("40000 bytes where up to 32768 were asked for"), "{error}");
    let output = host.run_within(MEMORY, &["file", "df", "vm1/"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // The host is there for all that.
    wait("the host", SOON, || host.try_run(&["list"]).ok());
}
