//! `mote-host file` as users call it: both ways to name a file, errors that name their place, and
//! hostile names.

use std::fs;

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
