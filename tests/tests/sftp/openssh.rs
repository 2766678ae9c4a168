//! OpenSSH's `sftp` in batch mode.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mote_tests::{Scratch, agent};

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

struct Sides(Scratch);

impl Sides {
    fn new() -> Self {
        let sides = Self(Scratch::new());
        fs::create_dir(sides.here()).unwrap();
        fs::create_dir(sides.there()).unwrap();
        sides
    }

    fn here(&self) -> PathBuf {
        self.0.0.join("here")
    }

    fn there(&self) -> PathBuf {
        self.0.0.join("there")
    }

    fn run_with(&self, options: &[&str], lines: &str) -> String {
        let server = format!(
            "env MOTE_STARTED_BY=agent {} sftp-server -d {}",
            agent().display(),
            self.there().display()
        );
        batch(&self.here(), &server, options, lines)
    }
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

#[test]
fn transfers_files_of_all_lengths_around_the_limits() {
    let sides = Sides::new();
    let data: Vec<u8> = (0..600_000u32).flat_map(u32::to_le_bytes).collect();
    let lengths = [0, 1, 32_767, 32_768, 65_535, 261_119, 261_120, 261_121, 262_144, 2_400_000];
    for length in lengths {
        fs::write(sides.here().join(format!("f{length}")), &data[..length]).unwrap();
    }
    // The limits that the server reports, and buffer sizes that clients use.
    for options in [&[][..], &["-B", "32768"], &["-B", "8192", "-R", "1"]] {
        let (here, there) = (sides.here(), sides.there());
        fs::create_dir(here.join("back")).unwrap();
        sides.run_with(options, "put f*\nlcd back\nget f*");
        for length in lengths {
            let name = format!("f{length}");
            assert!(fs::read(there.join(&name)).unwrap() == data[..length], "put {name}");
            assert!(fs::read(here.join("back").join(&name)).unwrap() == data[..length], "{name}");
        }
        fs::remove_dir_all(here.join("back")).unwrap();
    }
}
