//! Files.

use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Instant;

use mote_tests::host::NAME;
use mote_tests::{noise, tool};

use crate::world::{World, text};

pub(crate) fn files_come_and_go_unchanged(world: &World) {
    let (sent, back) = (world.path("sent"), world.path("back"));
    std::fs::write(&sent, noise(world.judge.mebibytes << 20)).expect("a file");
    let begun = Instant::now();
    world.ok(&["file", "push", NAME, text(&sent), "/tmp/sent", "--mode", "640"]);
    let pushed = begun.elapsed();
    let sum = Command::new("sha256sum").stdin(File::open(&sent).expect("a file")).output();
    let sum = String::from_utf8_lossy(&sum.expect("sha256sum").stdout).into_owned();
    assert_eq!(world.exec(&["-n", NAME, "--", "sh", "-c", "sha256sum </tmp/sent"], "").1, sum);
    let begun = Instant::now();
    world.ok(&["file", "pull", NAME, "/tmp/sent", text(&back)]);
    println!("{}: pushed in {pushed:?}, pulled in {:?}", world.judge.what(), begun.elapsed());
    assert!(std::fs::read(&sent).expect("sent") == std::fs::read(&back).expect("back"));
    world.ok(&["file", "rm", NAME, "/tmp/sent"]);
    assert!(world.fails(&["file", "stat", NAME, "/tmp/sent"]).contains("no such file"));
    // Files without a length.
    let version = world.ok(&["file", "pull", NAME, "/proc/version", "-"]);
    assert!(version.starts_with("Linux version"), "{version}");
    // Trees.
    let tree = world.path("tree");
    std::fs::create_dir_all(tree.join("a/b")).expect("a tree");
    std::fs::write(tree.join("a/b/file"), b"content").expect("a file");
    std::fs::write(tree.join("empty"), b"").expect("a file");
    std::os::unix::fs::symlink("a/b/file", tree.join("link")).expect("a link");
    world.ok(&["file", "push", "-r", NAME, text(&tree), "/tmp/tree"]);
    let copy = world.path("copy");
    world.ok(&["file", "pull", "-r", NAME, "/tmp/tree", text(&copy)]);
    let mut diff = Command::new("diff");
    let diff = diff.args(["-r", "--no-dereference", text(&tree), text(&copy)]);
    let diff = diff.output().expect("diff");
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    world.ok(&["file", "rm", "-r", NAME, "/tmp/tree"]);
}

pub(crate) fn links_modes_and_directories(world: &World) {
    let stat = |path: &str| -> serde_json::Value {
        serde_json::from_str(&world.ok(&["file", "stat", NAME, path])).expect("JSON")
    };
    world.ok(&["file", "mkdir", "-p", NAME, "/tmp/d/e", "--mode", "750"]);
    assert_eq!(
        (&stat("/tmp/d/e")["type"], &stat("/tmp/d/e")["mode"]),
        (&"directory".into(), &"0750".into())
    );
    let pushed = world.host(
        &["file", "push", NAME, "-", "/tmp/d/x", "--mode", "600", "--uid", "5", "--gid", "6"],
        b"hi\n",
    );
    assert!(pushed.status.success(), "{}", String::from_utf8_lossy(&pushed.stderr));
    let shown = stat("/tmp/d/x");
    assert_eq!((&shown["uid"], &shown["gid"]), (&5.into(), &6.into()));
    assert_eq!((&shown["mode"], &shown["size"]), (&"0600".into(), &3.into()));
    world.ok(&["file", "chmod", NAME, "644", "/tmp/d/x"]);
    assert_eq!(stat("/tmp/d/x")["mode"], "0644");
    world.ok(&["file", "ln", "-s", NAME, "x", "/tmp/d/soft"]);
    assert_eq!(stat("/tmp/d/soft")["target"], "x");
    world.ok(&["file", "ln", NAME, "/tmp/d/x", "/tmp/d/hard"]);
    world.ok(&["file", "mv", NAME, "/tmp/d/hard", "/tmp/d/moved"]);
    let listed = world.ok(&["file", "ls", NAME, "/tmp/d"]);
    let names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().nth(8)).collect();
    assert_eq!(names, ["e", "moved", "soft", "x"], "{listed}");
    assert!(listed.contains("drwxr-x---") && listed.contains("soft -> x"), "{listed}");
    assert!(!world.fails(&["file", "rm", NAME, "/tmp/d"]).is_empty());
    world.ok(&["file", "rm", "-r", NAME, "/tmp/d"]);
    assert!(world.ok(&["file", "df", NAME, "/tmp"]).contains("\"size\":"));
}

/// OpenSSH's `sftp`, if this machine has it.
pub(crate) fn a_foreign_client_works_through_the_pipe(world: &World) {
    let (source, back) = (world.path("to-sftp"), world.path("from-sftp"));
    std::fs::write(&source, noise(1_000_000)).expect("a file");
    let program = tool("MOTE_HOST", "target/debug/mote-host");
    let pipe = format!("{} --dir {} sftp {NAME}", text(&program), text(&world.host.directory));
    let script = format!(
        "put {} /tmp/y\nrename /tmp/y /tmp/z\nls -l /tmp\nget /tmp/z {}\nrm /tmp/z\nbye\n",
        text(&source),
        text(&back)
    );
    let mut command = Command::new("sftp");
    command.args(["-q", "-b", "-", "-D", &pipe]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(mut child) = command.spawn() else {
        return mote_tests::skipped("sftp (openssh-client)");
    };
    child.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("commands");
    let output = child.wait_with_output().expect("output");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1000000"), "{:?}: {said}", world.judge);
    assert!(std::fs::read(&source).expect("sent") == std::fs::read(&back).expect("back"));
}
