//! OpenSSH's `sftp` in batch mode.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

pub(crate) fn batch(here: &Path, server: &str, options: &[&str], lines: &str) -> String {
    let mut client = Command::new("sftp");
    client
        .args(options)
        .args(["-b", "-", "-D", server])
        .current_dir(here)
        .env("TZ", "UTC")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut client = mote_tests::bounded(&mut client).expect("OpenSSH's sftp");
    client.stdin.take().expect("a pipe").write_all(lines.as_bytes()).expect("a reader");
    let output = client.wait_with_output().expect("its output");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}{errors}");
    // The server's log has audit lines.
    let errors: Vec<_> = errors.lines().filter(|line| !line.contains("info: audit: ")).collect();
    assert!(errors.is_empty(), "{printed}{errors:?}");
    printed
}

/// Creates a sparse file with short pieces that contain their own offset.
pub(crate) fn big_file(path: &Path, size: u64) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    for offset in (0..size - 16).step_by(64 * 1024) {
        let text = format!("{offset:016x}");
        file.write_all_at(text.as_bytes(), offset).unwrap();
    }
    file.write_all_at(b"the end", size - 7).unwrap();
}

pub(crate) fn assert_same(a: &Path, b: &Path) {
    let (mut a, mut b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let size = a.metadata().unwrap().len();
    assert_eq!(size, b.metadata().unwrap().len());
    let (mut left, mut right) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut compared = 0;
    while compared < size {
        let count = a.read(&mut left).unwrap();
        b.read_exact(&mut right[..count]).unwrap();
        assert!(left[..count] == right[..count], "they differ after byte {compared}");
        compared += u64::try_from(count).unwrap();
    }
}
