//! A `mote-host` daemon with one instance, which tests kill and restart.

use mote_client::instance::{Instance, store};

use crate::prelude::*;

pub const NAME: &str = "vm1";

pub struct Host {
    pub directory: PathBuf,
    pub share: PathBuf,
    daemon: Option<Process>,
    /// Path prefix of the sockets that replace vsock, if any.
    sockets: Option<PathBuf>,
}

impl Host {
    pub fn new(scratch: &Path, args: &[&str]) -> Self {
        let directory = scratch.join("host");
        let mut host = Self { directory, share: PathBuf::new(), daemon: None, sockets: None };
        host.share = host.run(&[&["init", NAME], args].concat()).trim().into();
        host
    }

    pub fn on_sockets(scratch: &Path, sockets: &Path, flavour: &str, config: &[&str]) -> Self {
        let prefix = sockets.display().to_string();
        let mut args = vec!["--flavour", flavour, "--vsock-plain", &prefix, "--qmp", "/nowhere"];
        args.extend(config.iter().flat_map(|pair| ["--config", pair]));
        let mut host = Self::new(scratch, &args);
        host.sockets = Some(sockets.into());
        host
    }

    /// Creates an instance for this VM, with its files in the same directory.
    pub fn of_vm(directory: &Path, spec: &Spec, flavour: &str, args: &[&str]) -> Self {
        let [vsock, serial, qmp] =
            ["vs", "serial", "qmp"].map(|name| directory.join(name).display().to_string());
        let port = if spec.socket { ["--serial", &serial] } else { ["--qmp", &qmp] };
        let first = ["--flavour", flavour, "--vsock-uds", &vsock];
        Self::new(directory, &[&first, &port[..], args].concat())
    }

    pub fn instance(&self) -> Instance {
        store::load(&self.directory, NAME).expect("the instance")
    }

    pub fn start(&mut self) {
        let log = File::options().append(true).create(true).open(self.log_path()).expect("a log");
        let mut command = self.command(&["daemon"]);
        self.daemon = Some(Process::start(command.stdin(Stdio::null()).stderr(log)));
        wait("the host daemon", Duration::from_secs(10), || self.try_run(&["list"]).ok());
        self.open_sockets().expect("the sockets' modes");
    }

    /// Lets every user connect to the sockets that replace vsock: a sandboxed agent is not root,
    /// and vsock has no owners.
    fn open_sockets(&self) -> io::Result<()> {
        let Some(prefix) = &self.sockets else { return Ok(()) };
        let names = format!("{}_", prefix.display());
        for entry in prefix.parent().unwrap_or(Path::new("/")).read_dir()? {
            let path = entry?.path();
            if path.to_string_lossy().starts_with(&names) {
                fs::set_permissions(path, PermissionsExt::from_mode(0o777))?;
            }
        }
        Ok(())
    }

    pub fn kill(&mut self) {
        self.daemon = None;
    }

    pub fn restart(&mut self) {
        self.kill();
        self.start();
    }

    pub fn run(&self, args: &[&str]) -> String {
        self.try_run(args).unwrap_or_else(|error| panic!("mote-host {args:?}: {error}"))
    }

    pub fn ok(&self, args: &[&str]) {
        let _output = self.run(args);
    }

    pub fn launch(&self, args: &[&str]) -> Process {
        let quiet = Stdio::null;
        Process::start(self.command(args).stdin(quiet()).stdout(quiet()).stderr(quiet()))
    }

    pub fn try_run(&self, args: &[&str]) -> Result<String, String> {
        said(output(&mut self.command(args)))
    }

    /// Runs a command in the guest with pipes and without input.
    pub fn exec(&self, command: &[&str]) -> Result<String, String> {
        said(output(&mut self.exec_with(&["-T", "-n"], command)))
    }

    pub fn sh(&self, script: &str) -> Result<String, String> {
        self.exec(&["sh", "-c", script])
    }

    pub fn exec_with(&self, options: &[&str], command: &[&str]) -> Command {
        self.command(&[&["exec"], options, &[NAME, "--"], command].concat())
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(tool("MOTE_HOST", "target/debug/mote-host"));
        command.arg("--dir").arg(&self.directory).args(args);
        command.env(mote_machine::SLOWDOWN, slowdown().to_string());
        command
    }

    /// Returns the agent's state as the host sees it; null if no daemon answers.
    pub fn state(&self) -> Value {
        let text = self.try_run(&["agent-state", NAME]).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn is_connected(&self) -> bool {
        self.state()["state"] == "CONNECTED"
    }

    pub fn connected(&self, limit: Duration) -> Duration {
        until("CONNECTED", limit, || self.is_connected())
    }

    pub fn stopped(&self, limit: Duration) {
        until("STOPPED", limit, || self.state()["state"] == "STOPPED");
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    pub fn log_path(&self) -> PathBuf {
        self.directory.join("daemon.log")
    }
}

fn said(output: io::Result<Output>) -> Result<String, String> {
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

impl Drop for Host {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- log of the host\n{}--- end of the host's log", self.log());
        }
    }
}
