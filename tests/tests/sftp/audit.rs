//! Each change writes a line to the log, however many there are.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use mote_tests::sftp::{Int, Session, Text, kind, open};
use mote_tests::{Scratch, agent, is_root, wait};

fn logged(scratch: &Scratch, arguments: &[&Path]) -> Session {
    let root = scratch.0.join("root");
    fs::create_dir_all(root.join("run/mote")).unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>>log", "-"]).arg(agent()).arg("--root").arg(root);
    let mut session =
        Session::with(command.arg("sftp-server").args(arguments).current_dir(&scratch.0));
    session.hello();
    session
}

fn lines(scratch: &Scratch, part: &str) -> usize {
    let log = fs::read_to_string(scratch.0.join("log")).unwrap_or_default();
    assert!(!log.contains("too many") && !log.contains("lost"), "{log}");
    log.lines().filter(|line| line.contains("info: audit: sftp ") && line.contains(part)).count()
}

#[test]
fn logs_each_change_and_limits_the_rate() {
    let scratch = Scratch::new();
    let mut session = logged(&scratch, &[]);
    let begun = Instant::now();
    for number in 0..5_400 {
        session.done(kind::MKDIR, &[Text(format!("d{number}").as_bytes()), Int(0)]);
    }
    let took = begun.elapsed();
    wait("a line for each", Duration::from_secs(5), || {
        (lines(&scratch, " mkdir \"d") == 5_400).then_some(())
    });
    // A burst of 5,000 lines, then 200 per second.
    assert!(took >= Duration::from_millis(1_900), "{took:?}");
}

#[test]
fn names_a_changed_open_file_without_proc() {
    let limits: &[&[&Path]] = if is_root() { &[&[], &["-b".as_ref()]] } else { &[&[]] };
    for limit in limits {
        let scratch = Scratch::new();
        let shown = scratch.0.join("shown");
        fs::create_dir(&shown).unwrap();
        let path = shown.join("a \" b\nc");
        fs::write(&path, "").unwrap();
        let with = [limit, &[&*shown][..]].concat();
        let mut session = logged(&scratch, if limit.is_empty() { limit } else { &with });
        let handle = session.open(path.as_os_str().as_bytes(), open::READ);
        session.done(kind::FSETSTAT, &[Text(&handle), Int(4), Int(0o600)]);
        let quoted = format!(" setstat \"{}/a \\\" b\\nc\"", shown.display());
        wait("its line", Duration::from_secs(5), || (lines(&scratch, &quoted) == 1).then_some(()));
    }
}
