//! An agent with the sockets and environment by which clients reach it.

use std::sync::atomic::Ordering::Relaxed;

use mote_client::agent::client::AGENT_PORT;

use super::{Client, Place, Subject, bridge};
use crate::prelude::*;

pub const CONFIG: &[&str] = &[
    "user.foo=bar",
    "user.with/slash=both",
    "user.user-data=#cloud-config\nhostname: tested\n",
    "cloud-init.vendor-data=#cloud-config\n{}\n",
];

/// Variables of the user's environment that could redirect clients. All clients treat an empty one
/// as unset.
const OF_THE_USER: [&str; 7] = [
    "http_proxy",
    "HTTP_PROXY",
    "all_proxy",
    "ALL_PROXY",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_OPTIONS",
];
/// Port of a VM whose connections the bridge forwards to devlxd.
const DEVLXD: u32 = 9000;

/// True if bwrap works here, which gives clients a devlxd at its usual path.
static SANDBOX: LazyLock<bool> = LazyLock::new(|| {
    let mut command = Command::new("bwrap");
    command.args(["--bind", "/", "/", "--dev", "/dev", "true"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
});

pub fn missing(client: &Client) -> Option<String> {
    let built = tool("MOTE_CLIENTS", "target/clients");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = |name: &&&str| {
        built.join(name).exists()
            || std::env::split_paths(&path).any(|directory| directory.join(name).exists())
    };
    let (runs, rest) = client.program.split_first().expect("a program");
    let program: &[&str] = match *runs {
        "built" => rest,
        "inside" => &[],
        "python" => &["python3"],
        _ => std::slice::from_ref(runs),
    };
    let sandbox: &[&str] = match client.place {
        Place::Guest => &["bwrap"],
        Place::Host | Place::Machine | Place::Inside => &[],
    };
    let mut all = program.iter().chain(client.needs).chain(sandbox);
    let Some(name) = all.find(|name| !is_there(name)) else {
        let works = sandbox.is_empty() || *SANDBOX;
        return (!works).then(|| "bwrap may not mount here (a chroot, or a container?)".into());
    };
    // tests/clients/setup writes a line for each program that it could not install.
    let said = fs::read_to_string(built.join("missing")).unwrap_or_default();
    let reason = said.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    Some(reason.map_or_else(|| format!("there is no {name}"), str::to_owned))
}

fn limit(client: &Client) -> Duration {
    patient(Duration::from_secs(client.seconds * 10 + 180))
}

pub struct World {
    subject: Subject,
    live: Live,
    tcp: String,
    agent_tcp: String,
    devlxd: PathBuf,
    agent: PathBuf,
    scratch: PathBuf,
}

enum Live {
    Sockets(Box<Pair>),
    Booted { guest: Guest, world: Box<world::World> },
}

impl World {
    pub fn new(subject: Subject) -> Self {
        if subject.in_vm { Self::booted(subject) } else { Self::on_sockets(subject) }
    }

    fn on_sockets(subject: Subject) -> Self {
        let pair = Pair::start(subject.column.flavour(), CONFIG);
        let scratch = pair.scratch.0.clone();
        symlink("/proc", scratch.join("root/proc")).expect("a link");
        let sockets = [pair.socket(), scratch.join("vs.listen_8443")];
        Self::over(subject, Live::Sockets(Box::new(pair)), scratch, sockets)
    }

    fn booted(subject: Subject) -> Self {
        let column = subject.column;
        let image = tool("MOTE_IMAGE_CLIENTS", "target/image-clients");
        let spec = Spec { memory: 384, image, ..world::spec(column) };
        let mut world = world::World::boot(column, &spec, CONFIG);
        world.connected(BOOT);
        let mut guest = world.vm.guest();
        let (bridge, socket) = ("/opt/bridge", column.socket());
        let _asked = guest.ok(&format!("{bridge} {DEVLXD} {socket} >/run/bridge 2>&1 &"));
        let _up = guest.ok("until grep -q listening /run/bridge; do sleep 0.2; done");
        let scratch = world.scratch.0.clone();
        let sockets = ["devlxd", "agent"].map(|name| scratch.join(name));
        for (socket, port) in sockets.iter().zip([DEVLXD, AGENT_PORT]) {
            bridge::unix(socket, port, world.host.instance());
        }
        Self::over(subject, Live::Booted { guest, world: Box::new(world) }, scratch, sockets)
    }

    fn over(subject: Subject, live: Live, scratch: PathBuf, [devlxd, agent]: [PathBuf; 2]) -> Self {
        let (tcp, agent_tcp) = (bridge::tcp(devlxd.clone()), bridge::tcp(agent.clone()));
        let world = Self { subject, live, tcp, agent_tcp, devlxd, agent, scratch };
        world.write_scripts();
        world
    }

    fn host(&self) -> &Host {
        match &self.live {
            Live::Sockets(pair) => &pair.host,
            Live::Booted { world, .. } => &world.host,
        }
    }

    /// Writes the scripts `poke KEY VALUE`, which changes a key of the instance and so causes an
    /// event, and `run COMMAND...`, which runs a command in the guest.
    fn write_scripts(&self) {
        for (name, words, last) in [
            ("poke", &["set", NAME][..], "\"$1=$2\""),
            ("run", &["exec", "-T", NAME, "--"], "\"$@\""),
        ] {
            let words = self.host().command(words);
            let words: Vec<_> = std::iter::once(words.get_program())
                .chain(words.get_args())
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let script = self.scratch.join(name);
            program(script, format!("#!/bin/sh\nexec {} {last}\n", words.join(" ")));
        }
    }

    /// Runs a client that is in the VM's image, while the host changes a key again and again.
    pub fn inside(&mut self, client: &Client) -> (i32, String) {
        let Live::Booted { guest, .. } = &mut self.live else { panic!("only in a VM") };
        let flavour = self.subject.column.flavour();
        let command =
            format!("MOTE_FLAVOUR={flavour} MOTE_TMP=/tmp MOTE_FILES=/files sh /opt/inside");
        let (poke, over) = (self.scratch.join("poke"), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for number in (0..100_000).take_while(|_| !over.load(Relaxed)) {
                    let mut command = Command::new(&poke);
                    command.args(["user.inside", &number.to_string()]);
                    let _said = command.stdout(Stdio::null()).status();
                    thread::sleep(Duration::from_millis(500));
                }
            });
            let ran = guest.sh_within(&command, limit(client));
            over.store(true, Relaxed);
            ran
        })
    }

    /// The command that runs a client on this machine; `attempt` counts its runs.
    pub fn command(&self, client: &Client, attempt: u32) -> Command {
        let mut command = bounded(limit(client));
        if client.place == Place::Guest {
            // devlxd in its usual paths, of LXD and of Incus.
            command.args(["bwrap", "--bind", "/", "/", "--dev", "/dev"]);
            for directory in ["/dev/lxd", "/dev/incus"] {
                command.args(["--dir", directory, "--bind"]).arg(&self.devlxd);
                command.arg(format!("{directory}/sock"));
            }
            command.arg("--");
        }
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients");
        let built = tool("MOTE_CLIENTS", "target/clients");
        let (runs, rest) = client.program.split_first().expect("a program");
        match *runs {
            "built" => command.args(rest.iter().map(|name| built.join(name))),
            "venv" => command.arg(built.join("venv/bin/python3")).args(rest),
            "python" => command.arg("/usr/bin/python3").args(rest),
            other => command.arg(other).args(rest),
        };
        let own = format!("{}-{attempt}", client.heading.replace([' ', '\'', '/'], "-"));
        let temporary = self.scratch.join("tmp").join(&own);
        fs::create_dir_all(&temporary).expect("a directory");
        command.current_dir(sources).env("MOTE_TMP", temporary);
        self.describe(&mut command, &own);
        command
    }

    fn describe(&self, command: &mut Command, own_files: &str) {
        let host = self.host();
        let own = host.directory.join("instances").join(NAME);
        let (files, timeout, crowd) = match &self.live {
            Live::Sockets(_) => (self.scratch.join("files").display().to_string(), 3, "1200"),
            // The VM is emulated. Its bridge and vsock device limit the number of connections.
            Live::Booted { .. } => ("/tmp/files".into(), 12, "200"),
        };
        let timeout = patient(Duration::from_secs(timeout)).as_secs().to_string();
        command
            .env("MOTE_CLIENTS", tool("MOTE_CLIENTS", "target/clients"))
            .env("MOTE_FLAVOUR", self.subject.column.flavour())
            .env("MOTE_DEVLXD", &self.devlxd)
            .env("MOTE_TCP", &self.tcp)
            .env("MOTE_AGENT_SOCKET", &self.agent)
            .env("MOTE_AGENT_TCP", &self.agent_tcp)
            .env("MOTE_AGENT_CRT", host.share.join("agent.crt"))
            .env("MOTE_AGENT_KEY", host.share.join("agent.key"))
            .env("MOTE_AGENT_CONF", host.share.join("agent.conf"))
            .env("MOTE_CLIENT_CRT", own.join("agent-client.crt"))
            .env("MOTE_CLIENT_KEY", own.join("agent-client.key"))
            .env("MOTE_FILES", format!("{files}-{own_files}"))
            .env("MOTE_PATIENCE", timeout)
            .env("MOTE_CROWD", crowd)
            .env("MOTE_POKE", self.scratch.join("poke"))
            .env("MOTE_RUN", self.scratch.join("run"))
            .env("MOTE_AGENT", agent())
            .envs(OF_THE_USER.map(|name| (name, "")))
            .env("NODE_PATH", "/usr/share/nodejs")
            .env("PYTHONDONTWRITEBYTECODE", "1");
    }

    pub fn ended(&mut self) -> Option<String> {
        match &mut self.live {
            Live::Sockets(pair) => {
                let status = pair.agent.0.try_wait().expect("a child")?;
                Some(format!("it ended with {status}"))
            }
            Live::Booted { guest, .. } => {
                let (_, log) = guest.sh("grep 'agent ended' /run/agent.log");
                let code = log.trim().strip_prefix("agent ended with exit code ")?;
                let (_, panic) = guest.sh("grep -m 1 -E '^(panic|fatal error): ' /run/agent.log");
                Some(format!("it ended with exit code {code}: {}", panic.trim()))
            }
        }
    }
}

fn bounded(limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", &limit.as_secs().to_string()]);
    command
}

#[cfg(test)]
mod tests {
    use super::super::CLIENTS;
    use super::*;

    #[test]
    fn reports_a_client_that_is_not_installed() {
        let client = Client { needs: &["sh", "no-such-program"], ..CLIENTS[0] };
        let client = Client { program: &["bash", "a script"], place: Place::Host, ..client };
        assert_eq!(missing(&client).as_deref(), Some("there is no no-such-program"));
        assert_eq!(missing(&Client { needs: &["sh"], ..client }), None);
        // Debian has no command `python`, and a fresh machine no `python3` either.
        let python = Client { program: &["python", "a script"], needs: &[], ..client };
        assert!(matches!(missing(&python).as_deref(), None | Some("there is no python3")));
        let built = Client { program: &["built", "no-such-file"], ..client };
        assert_eq!(missing(&built).as_deref(), Some("there is no no-such-file"));
    }
}
