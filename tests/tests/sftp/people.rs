//! `mote-host file` as users call it: both ways to name a file, errors that name their place, and
//! hostile names.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use mote_tests::{NAME, Pair};

fn start() -> (Pair, String) {
    let pair = Pair::start("lxd", &[]);
    let directory = pair.scratch.0.join("files");
    fs::create_dir(&directory).unwrap();
    let directory = directory.display().to_string();
    (pair, directory)
}

fn fails(pair: &Pair, args: &[&str]) -> String {
    pair.host.try_run(args).unwrap_err()
}

#[test]
fn errors_name_the_side_once() {
    let (pair, directory) = start();
    let here = format!("{directory}/f1");
    fs::write(&here, "content").unwrap();
    let lacking = format!("{directory}/missing/f");
    let error = fails(&pair, &["file", "push", NAME, &here, &lacking]);
    let expected = format!(
        "mote-host: in the guest, there is no directory {directory}/missing; -p creates it\n"
    );
    assert_eq!(error, expected);
    let error = fails(&pair, &["file", "push", "-r", NAME, &directory, &lacking]);
    assert_eq!(error, expected, "a tree");
    let error = fails(&pair, &["file", "push", NAME, "/no/such/file", &lacking]);
    assert_eq!(error, "mote-host: /no/such/file: No such file or directory\n");
    let error = fails(&pair, &["file", "pull", NAME, &lacking, "-"]);
    assert_eq!(error, format!("mote-host: in the guest, {lacking}: no such file or directory\n"));
    let error = fails(&pair, &["file", "pull", NAME, &here, "/no/such/x"]);
    assert_eq!(error, "mote-host: /no: No such file or directory\n");
    let error = fails(&pair, &["file", "pull", NAME, &directory, "/tmp/x"]);
    assert_eq!(
        error,
        format!("mote-host: in the guest, {directory} is a directory; -r pulls directories\n")
    );
    let error = fails(&pair, &["file", "rm", NAME, &directory]);
    assert!(error.starts_with(&format!("mote-host: in the guest, {directory}: ")), "{error}");
}

#[test]
fn names_cannot_control_the_terminal() {
    let (pair, directory) = start();
    let hostile = OsStr::from_bytes(b"\x1b[2J\n\xff\xe2\x80\xae");
    fs::write(std::path::Path::new(&directory).join(hostile), "").unwrap();
    std::os::unix::fs::symlink(hostile, format!("{directory}/link")).unwrap();
    let listed = pair.host.run(&["file", "ls", NAME, &directory]);
    assert_eq!(listed.lines().count(), 2, "{listed:?}");
    let steers = |letter: char| letter != '\n' && (letter.is_control() || letter == '\u{202e}');
    assert!(!listed.contains(steers), "{listed:?}");
    assert!(listed.contains("link -> \\x1b[2J\\n\\xff\\u{202e}\n"), "{listed}");
    let path = format!("{directory}/\x1b]0;x\x07");
    assert!(!fails(&pair, &["file", "stat", NAME, &path]).contains(steers));
}
