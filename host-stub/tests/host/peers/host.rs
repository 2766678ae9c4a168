//! A `mote-host` in its own directory, which tests call, kill and restart.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::qmp::Qemu;

/// Limit for actions that are immediate on an idle machine.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Polls until `look` returns something.
#[track_caller]
pub(crate) fn wait<T>(what: &str, limit: Duration, look: impl FnMut() -> Option<T>) -> T {
    mote_machine::wait(what, limit, look).0
}

/// A host. Dropping it kills its daemon and removes its directory.
pub(crate) struct Host {
    /// The host's directory, which also contains the sockets of QEMU, agents and guests.
    pub(crate) directory: PathBuf,
    _temporary: TempDir,
    daemon: Option<Child>,
}

impl Host {
    pub(crate) fn new() -> Self {
        // Use a short path, because paths of unix sockets are limited.
        let temporary = tempfile::Builder::new().prefix("mh").tempdir().unwrap();
        Self { directory: temporary.path().to_owned(), _temporary: temporary, daemon: None }
    }

    /// Creates a host with one instance `vm1`, whose agent is called over plain sockets.
    pub(crate) fn with_instance(flavour: &str, config: &[&str]) -> Self {
        let host = Self::new();
        host.init("vm1", flavour, config);
        host
    }

    /// Like [`Self::with_instance`]; also starts the daemon.
    pub(crate) fn started(flavour: &str, config: &[&str]) -> Self {
        let mut host = Self::with_instance(flavour, config);
        host.start();
        host
    }

    /// Like [`Self::started`], with a scripted QEMU, whose status port the daemon has read.
    pub(crate) fn with_vm(flavour: &str, config: &[&str]) -> (Self, Qemu) {
        let mut host = Self::with_instance(flavour, config);
        let qemu = Qemu::of(&host);
        host.start();
        qemu.is_read();
        (host, qemu)
    }

    /// Creates an instance with plain sockets `NAME.p` and QMP at `NAME.qmp`. Returns its share.
    pub(crate) fn init(&self, name: &str, flavour: &str, config: &[&str]) -> PathBuf {
        let (prefix, qmp) = (self.path(&format!("{name}.p")), self.path(&format!("{name}.qmp")));
        let mut args = vec!["init", name, "--flavour", flavour];
        args.extend(["--vsock-plain", prefix.to_str().unwrap(), "--qmp", qmp.to_str().unwrap()]);
        for pair in config {
            args.extend(["--config", pair]);
        }
        PathBuf::from(self.run(&args).trim())
    }

    /// Creates an instance whose agent is called through vhost-device-vsock. Returns the paths of
    /// vsock and monitor.
    pub(crate) fn with_uds() -> (Self, PathBuf, PathBuf) {
        let host = Self::new();
        let (vsock, qmp) = (host.path("vs"), host.path("qmp"));
        let init = ["init", "vm1", "--vsock-uds", text(&vsock), "--vsock-cid", "7", "--qmp"];
        host.run(&[&init[..], &[text(&qmp)]].concat());
        (host, vsock, qmp)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn share(&self, name: &str) -> PathBuf {
        self.path("instances").join(name).join("config")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mote-host"));
        command.arg("--dir").arg(&self.directory).args(args);
        command.env(mote_machine::SLOWDOWN, mote_machine::slowdown().to_string());
        command
    }

    pub(crate) fn start(&mut self) {
        let log = File::options().append(true).create(true).open(self.path("log")).unwrap();
        let daemon = self.command(&["daemon"]).stdin(Stdio::null()).stderr(log).spawn().unwrap();
        self.daemon = Some(daemon);
        wait("the daemon", SOON, || self.try_run(&["list"]).ok());
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill().unwrap();
            daemon.wait().unwrap();
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.daemon.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(self.daemon.as_ref().unwrap()), signal).unwrap();
    }

    pub(crate) fn terminate(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        let mut daemon = self.daemon.take().unwrap();
        wait("the daemon's end", SOON, || daemon.try_wait().unwrap())
    }

    pub(crate) fn run(&self, args: &[&str]) -> String {
        self.try_run(args).unwrap_or_else(|error| panic!("{args:?}: {error}\n{}", self.log()))
    }

    pub(crate) fn try_run(&self, args: &[&str]) -> Result<String, String> {
        let output = mote_machine::output(&mut self.command(args)).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub(crate) fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    pub(crate) fn run_within(&self, memory: u32, args: &[&str]) -> Output {
        let mut command = Command::new("sh");
        let program = env!("CARGO_BIN_EXE_mote-host");
        command.args(["-c", &format!("ulimit -v {memory}; exec \"$@\""), "sh", program, "--dir"]);
        mote_machine::output(command.arg(&self.directory).args(args)).unwrap()
    }

    pub(crate) fn refused(&self, memory: u32, args: &[&str]) -> String {
        let output = self.run_within(memory, args);
        let error = errors(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {error}");
        error
    }

    pub(crate) fn state(&self) -> Value {
        serde_json::from_str(&self.run(&["agent-state", "vm1"])).unwrap()
    }

    pub(crate) fn wait_for(&self, state: &str) {
        wait(state, SOON, || (self.state()["state"] == state).then_some(()));
    }

    pub(crate) fn port(&self) -> u32 {
        self.state()["port"].as_u64().unwrap().try_into().unwrap()
    }

    pub(crate) fn certificate(&self) -> String {
        std::fs::read_to_string(self.path("server.crt")).unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    pub(crate) fn conf(&self) -> Value {
        let text = std::fs::read(self.share("vm1").join("agent.conf")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- log of the host\n{}---", self.log());
        }
        self.kill();
    }
}

pub(crate) fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
