//! The harness of the black-box tests: a host daemon, a booted VM, an agent on sockets. Everything
//! has a time limit and its own directory, and is removed when dropped. Failures panic, except in
//! suites that continue with their next check: these return a `Result`.
//!
//! Binaries come from the environment (`MOTE_AGENT`, `MOTE_HOST`, `MOTE_VSOCK`, ...), which
//! `scripts/test` and `scripts/run` set.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]
#![allow(missing_debug_implementations, reason = "no test prints these")]

pub mod agent;
pub mod attack;
pub mod bench;
pub mod clients;
pub mod conform;
pub mod cost;
pub mod guest;
pub mod host;
pub mod mutants;
pub mod pages;
pub mod prelude;
pub mod proc;
pub mod report;
pub mod sftp;
pub mod source;
pub mod vm;
pub mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use prelude::*;

pub use agent::Pair;

pub use conform::client::Client;
pub use guest::{Guest, Terminal};
pub use host::{Host, NAME};
pub use mote_checks::{Noise, noise, qmp};
pub use mote_machine::{
    Private, bounded, found, in_private, in_time, output, patient, private, skipped, slowdown,
    until, wait,
};
use rustix::process::{Pid, kill_process};

pub use vm::{Late, Share, Spec, Vm};
pub use world::{BACK, BOOT, Column, MOTE_BOOT, Outage, World};

/// Returns the path in an environment variable, or else the file `otherwise` of the project.
pub fn tool(variable: &str, otherwise: &str) -> PathBuf {
    std::env::var_os(variable).map_or_else(|| source::root().join(otherwise), PathBuf::from)
}

/// Without this variable the agent's workers refuse to start.
pub const AS_AGENT: (&str, &str) = ("MOTE_STARTED_BY", "agent");

pub fn agent() -> PathBuf {
    tool("MOTE_AGENT", "target/small/x86_64-unknown-linux-musl/release/mote-agent")
}

/// A directory for one test, removed when dropped.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// Creates a directory with a short path, because paths of unix sockets are limited.
    #[expect(clippy::new_without_default, reason = "it touches the disk")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("mote{}-{count}", std::process::id()));
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if std::env::var_os("MOTE_KEEP").is_none() {
            let _gone = fs::remove_dir_all(&self.0);
        }
    }
}

/// Defines a test for each name, which evaluates the expression after it.
#[macro_export]
macro_rules! tests {
    ($($name:ident: $run:expr),* $(,)?) => {
        $(#[test]
        fn $name() {
            $run;
        })*
    };
}

/// Returns a path as text for a command line.
pub fn plain(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

pub fn put(path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
    fs::write(path, content).expect("a file");
}

/// Copies a program by another process. If this process had the copy open for writing, children of
/// other tests could inherit the descriptor, and the copy could not be executed (ETXTBSY).
pub fn copy_program(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg(from).arg(to).status().expect("cp");
    assert!(copied.success(), "{} to {}", from.display(), to.display());
}

pub fn has_programs(names: &[&str]) -> bool {
    let has = |name| output(Command::new(name).arg("-V")).is_ok();
    names.iter().all(has)
}

/// Runs a program with this input. Returns its exit code, and stdout followed by stderr.
pub fn fed(program: &str, arguments: &[impl AsRef<OsStr>], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = bounded(&mut command).expect(program);
    // The program may have ended without reading its input.
    let _unread = child.stdin.take().expect("input").write_all(input.as_bytes());
    let out = child.wait_with_output().expect(program);
    let said = [out.stdout, out.stderr].concat();
    (out.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[track_caller]
pub fn contains(text: impl AsRef<str>, parts: &[&str]) {
    let text = text.as_ref();
    for part in parts {
        assert!(text.contains(part), "no {part:?} in: {text}");
    }
}

/// Requires a program's exit code, and that its text contains each of `parts`.
#[track_caller]
pub fn exits<C: PartialEq + Debug>((code, text): (C, String), wanted: C, parts: &[&str]) {
    assert_eq!(code, wanted, "{text}");
    contains(text, parts);
}

pub fn program(path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
    put(&path, text);
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("a mode");
}

pub fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns whether this is root; if not, reports the calling test as skipped.
#[track_caller]
pub fn by_root() -> bool {
    is_root() || {
        skipped("root");
        false
    }
}

pub fn kill(signal: Signal, pid: u32) {
    let process = pid.try_into().ok().and_then(Pid::from_raw).expect("a process id");
    kill_process(process, signal).unwrap_or_else(|error| panic!("{signal:?} to {pid}: {error}"));
}

/// Runs this and returns a panic as an error. The harness panics when a deadline is over.
pub fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic".into())
    })
}

pub struct Process(pub Child);

impl Process {
    pub fn start(command: &mut Command) -> Self {
        let name = command.get_program().to_string_lossy().into_owned();
        Self(command.spawn().unwrap_or_else(|error| panic!("{name}: {error}")))
    }

    pub fn bounded(command: &mut Command) -> Self {
        Self(bounded(command).unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn ends(&mut self, limit: Duration) -> Option<i32> {
        wait("its end", limit, || self.0.try_wait().expect("a child")).0.code()
    }

    pub fn kill(&mut self) {
        let _gone = self.0.kill();
        let _reaped = self.0.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
