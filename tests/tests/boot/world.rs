//! The real binary with a directory instead of `/`, and a host.

use mote_tests::prelude::*;

pub(crate) const LIMIT: Duration = Duration::from_secs(40);

pub(crate) struct Boot {
    pub(crate) host: Host,
    flavour: &'static str,
    pub(crate) scratch: Scratch,
}

impl Boot {
    pub(crate) fn new(flavour: &'static str) -> Self {
        let scratch = Scratch::new();
        let mut host = Host::on_sockets(&scratch.0, &scratch.0.join("vs"), flavour, &[]);
        host.start();
        fs::create_dir_all(scratch.0.join("root/proc/sys/kernel")).expect("a root");
        Self { host, flavour, scratch }
    }

    /// Returns one whose root has everything that an agent needs.
    pub(crate) fn whole(flavour: &'static str) -> Self {
        let boot = Self::new(flavour);
        for directory in ["proc/self", "run/mote", "etc", "sys/bus/virtio/devices/virtio0/driver"] {
            fs::create_dir_all(boot.root(directory)).expect("a directory");
        }
        boot.put("dev/null", "");
        boot.put("sys/bus/virtio/devices/virtio0/device", "0x0003\n");
        boot.put("sys/class/virtio-ports/vport0p1/name", "com.canonical.lxd\n");
        fifo(&boot.root("dev/vport0p1"));
        boot
    }

    pub(crate) fn running(flavour: &'static str, args: &[&str]) -> (Self, Process) {
        let boot = Self::new(flavour);
        let agent = boot.up(args);
        (boot, agent)
    }

    pub(crate) fn root(&self, path: &str) -> PathBuf {
        self.scratch.0.join("root").join(path)
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root(path)).unwrap_or_default()
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        put(self.root(path), text);
    }

    pub(crate) fn share(&self, path: &str, text: &str) {
        put(self.host.share.join(path), text);
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = agent::command(&self.scratch.0, self.flavour, &self.host.share);
        command.args(args);
        command
    }

    pub(crate) fn client(&self) -> Client {
        Client::new(&self.host)
    }

    pub(crate) fn start(&self, args: &[&str]) -> Process {
        Process::start(&mut self.command(args))
    }

    pub(crate) fn up(&self, args: &[&str]) -> Process {
        let before = self.log().matches(": CONNECTED ").count();
        let agent = self.start(args);
        connected(self, before + 1);
        agent
    }

    /// Runs the agent to its end. Returns the exit code and the output.
    pub(crate) fn says(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).stdout(Stdio::piped()).output().expect("an agent");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Calls the running agent. Returns the exit code and the error message.
    pub(crate) fn ask(&self, args: &[&str]) -> (Option<i32>, String) {
        let output = self.command(args).stderr(Stdio::piped()).output().expect("an agent");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.scratch.0.join("agent.log")).unwrap_or_default()
    }

    pub(crate) fn logged(&self, mark: &str) {
        until(mark, LIMIT, || self.log().contains(mark));
    }

    pub(crate) fn serves(&self) {
        let sockets = [self.root("dev/lxd/sock"), self.root("dev/incus/sock")];
        wait("devlxd", LIMIT, || sockets.iter().find_map(|path| UnixStream::connect(path).ok()));
    }
}

pub(crate) fn connected(boot: &Boot, times: usize) {
    until("CONNECTED", LIMIT, || boot.log().matches(": CONNECTED ").count() >= times);
}

pub(crate) fn terminate(agent: &mut Process) -> Option<i32> {
    kill(Signal::TERM, agent.0.id());
    agent.ends(LIMIT)
}

pub(crate) const NOBODY: u32 = 65_534;

pub(crate) fn mount(args: &[&str], place: &Path) {
    let mounted = Command::new("mount").args(args).arg(place).status().expect("mount");
    assert!(mounted.success(), "{args:?} on {}", place.display());
}

#[track_caller]
pub(crate) fn in_private_mounts(test: &str) -> bool {
    in_private(Private::Mounts, test)
}
