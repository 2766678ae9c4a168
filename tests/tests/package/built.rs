//! Builds the packages once for all tests of this program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use mote_tests::Scratch;

/// A version above the tree's.
pub(crate) const NEWER: &str = "9.0.0";

#[derive(Debug)]
pub(crate) struct Other {
    /// Name in Rust, in the tarball and .rpm, and in Debian.
    target: &'static str,
    pub(crate) name: &'static str,
    pub(crate) debian: &'static str,
    /// `e_machine` of its ELF files.
    pub(crate) machine: u8,
}

pub(crate) const OTHERS: [Other; 2] = [
    Other { target: "aarch64-unknown-linux-musl", name: "aarch64", debian: "arm64", machine: 183 },
    Other {
        target: "riscv64gc-unknown-linux-musl",
        name: "riscv64",
        debian: "riscv64",
        machine: 243,
    },
];

/// The packages; fields have the names that `scripts/package` uses.
#[derive(Debug)]
pub(crate) struct Packages {
    pub(crate) first: PathBuf,
    /// The same, built again in another directory at another time.
    pub(crate) second: PathBuf,
    pub(crate) newer: PathBuf,
    /// The packages of [`OTHERS`], each built twice.
    pub(crate) others: [[PathBuf; 2]; OTHERS.len()],
}

/// Changes settings that must not affect a reproducible build.
pub(crate) const ELSEWHERE: &str = "umask 077; export TZ=Asia/Tokyo LANG=C.UTF-8; ";

pub(crate) static PACKAGES: LazyLock<Packages> = LazyLock::new(|| {
    let newer = format!("scripts/package --version {NEWER} deb");
    // `target/package` contains the last build, which must be the tree's own.
    let others = OTHERS.map(|Other { target, name, .. }| {
        let script = format!("scripts/package --target {target}");
        let second = make(&format!("{name}-second"), &format!("{ELSEWHERE}{script}"));
        [make(name, &script), second]
    });
    let second = make("second", &format!("{ELSEWHERE}scripts/package"));
    Packages {
        newer: make("newer", &newer),
        first: make("first", "scripts/package"),
        second,
        others,
    }
});

fn make(name: &str, script: &str) -> PathBuf {
    let to = source().join("target/package/tested").join(name);
    let _old = std::fs::remove_dir_all(&to);
    std::fs::create_dir_all(&to).expect("a directory");
    let made = run(shell().args(["-c", script]).current_dir(source()));
    assert!(!made.is_empty(), "nothing was made");
    for path in made.lines().map(Path::new) {
        std::fs::copy(path, to.join(path.file_name().expect("a name"))).expect("a copy");
    }
    to
}

/// Returns a shell without cargo's variables, which would make build scripts rebuild everything.
fn shell() -> Command {
    let mut shell = Command::new("/bin/bash");
    let own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    let names = std::env::vars().map(|(name, _)| name).filter(|name| own(name));
    names.for_each(|name| {
        shell.env_remove(name);
    });
    shell.env_remove("CARGO").env_remove("LD_LIBRARY_PATH");
    shell
}

pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("a path")
}

pub(crate) fn file(directory: &Path, begin: &str, end: &str) -> PathBuf {
    let files =
        std::fs::read_dir(directory).expect("packages").map(|entry| entry.expect("one").path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with(begin) && name.ends_with(end)
    };
    let mut files = files.filter(fits);
    let file = files.next().unwrap_or_else(|| panic!("no {begin}*{end}"));
    assert_eq!(files.next(), None);
    file
}

pub(crate) fn deb() -> PathBuf {
    file(&PACKAGES.first, "mote-agent_", ".deb")
}

pub(crate) fn newer() -> PathBuf {
    file(&PACKAGES.newer, "mote-agent_", ".deb")
}

pub(crate) fn tarball(into: &Scratch) -> PathBuf {
    unpacked(&PACKAGES.first, into)
}

pub(crate) fn unpacked(directory: &Path, into: &Scratch) -> PathBuf {
    let tar = file(directory, "mote-agent-", ".tar.gz");
    run(Command::new("tar").arg("-xzf").arg(tar).arg("-C").arg(&into.0));
    file(&into.0, "mote-agent-", "")
}

pub(crate) fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}: {:?}\n{out}{err}", output.status);
    out
}
