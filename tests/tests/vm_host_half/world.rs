//! A VM with one of the agents, its host, and `mote-host` to be run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;

use mote_tests::column::Column;
use mote_tests::guest::Guest;
use mote_tests::host::{Host, NAME};
use mote_tests::vm::{Spec, Vm};
use mote_tests::world::{self, BOOT};
use mote_tests::{Scratch, wait};

/// For anything that does not move much.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// An agent, and what is known of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Judge {
    pub(crate) column: Column,
    /// What a command killed by SIGKILL ends with: the Go agents up to LXD 5.0 and Incus 6.0 give -1.
    pub(crate) killed: i32,
    /// What is moved each way, MiB.
    pub(crate) mebibytes: usize,
}

impl Judge {
    pub(crate) fn what(&self) -> String {
        format!("{}, {} MiB", self.column.title(), self.mebibytes)
    }
}

pub(crate) struct World {
    pub(crate) judge: Judge,
    pub(crate) guest: Guest,
    pub(crate) vm: Vm,
    pub(crate) host: Host,
    pub(crate) scratch: Scratch,
}

impl World {
    pub(crate) fn boot(judge: Judge) -> Self {
        let spec = Spec { memory: 384, ..world::spec(judge.column) };
        let mut world = world::World::boot(judge.column, &spec, &["environment.FROM_HOST=yes"]);
        world.connected(BOOT);
        let world::World { mut vm, host, scratch } = world;
        let guest = vm.guest();
        Self { judge, guest, vm, host, scratch }
    }

    /// A file beside everything else.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.0.join(name)
    }

    /// Runs `mote-host` with this input.
    pub(crate) fn host(&self, args: &[&str], input: &[u8]) -> Output {
        let mut child = self
            .host
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mote-host");
        let mut stdin = child.stdin.take().expect("a pipe");
        std::thread::scope(|threads| {
            // Whoever does not want it hangs up.
            threads.spawn(move || stdin.write_all(input).ok());
            child.wait_with_output().expect("its output")
        })
    }

    /// `exec` in pipes: exit code, stdout, stderr.
    pub(crate) fn exec(&self, args: &[&str], input: &str) -> (i32, String, String) {
        let output = self.host(&[&["exec", "-T"], args].concat(), input.as_bytes());
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
    }

    pub(crate) fn sh(&self, script: &str) -> (i32, String, String) {
        self.exec(&[NAME, "--", "sh", "-c", script], "")
    }

    /// A subcommand that must succeed; what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.host(args, b"");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{:?} {args:?}: {error}", self.judge);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A subcommand that must fail; what it said.
    pub(crate) fn fails(&self, args: &[&str]) -> String {
        let output = self.host(args, b"");
        assert!(!output.status.success(), "{:?} {args:?} succeeded", self.judge);
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

/// Its exit code.
pub(crate) fn within(child: &mut Child, what: &str) -> Option<i32> {
    wait(what, SOON, || child.try_wait().expect("a child")).0.code()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}
