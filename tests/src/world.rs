//! A VM with a column's agent, and its host.

use crate::prelude::*;

/// Limit from power-on to CONNECTED, with software emulation on a busy machine.
pub const BOOT: Duration = Duration::from_secs(90);
pub const MOTE_BOOT: Duration = Duration::from_secs(60);
pub const BACK: Duration = Duration::from_secs(2);
const OFF: Duration = Duration::from_secs(20);

/// All processes of one agent's test, dropped in this order.
pub struct World {
    pub vm: Vm,
    pub host: Host,
    pub begun: Instant,
    pub scratch: Scratch,
}

/// Returns a column's VM. Its image holds all agents; the older build has its own image.
pub fn spec(column: Column) -> Spec {
    let words = column.program().map(|name| format!("mote.start={name}")).unwrap_or_default();
    let image = match column {
        Column::Before => tool("MOTE_IMAGE_BEFORE", "target/image-before"),
        Column::IncusAgent7 => tool("MOTE_IMAGE_GO7", "target/image-go7"),
        Column::MoteLxd
        | Column::MoteOldLxd
        | Column::LxdAgent
        | Column::MoteIncus
        | Column::IncusAgent => tool("MOTE_IMAGE_GO", "target/image-go"),
    };
    Spec { image, words, ..Spec::default() }
}

impl World {
    pub fn boot(column: Column, spec: &Spec, config: &[&str]) -> Self {
        let config: Vec<_> = config.iter().flat_map(|pair| ["--config", pair]).collect();
        Self::with(Scratch::new(), spec, column.flavour(), &config, |_| {})
    }

    /// Boots a VM for the named server, with one configuration key that tests read.
    pub fn of(flavour: &str, spec: &Spec, extra: &[&str]) -> Self {
        Self::prepare(flavour, spec, extra, |_| {})
    }

    /// Like [`World::of`]; also opens the guest's shell once mote is CONNECTED.
    pub fn with_shell(flavour: &str, spec: &Spec, extra: &[&str]) -> (Self, Guest) {
        let mut world = Self::of(flavour, spec, extra);
        let guest = world.shell();
        (world, guest)
    }

    /// Like [`World::of`], with an action on the host before the VM starts.
    pub fn prepare(flavour: &str, spec: &Spec, extra: &[&str], first: impl FnOnce(&Host)) -> Self {
        let args = [&["--config", "user.foo=bar"], extra].concat();
        Self::with(Scratch::new(), spec, flavour, &args, first)
    }

    /// Like [`World::prepare`], in this directory and with exactly these arguments.
    pub fn with(
        scratch: Scratch,
        spec: &Spec,
        flavour: &str,
        args: &[&str],
        first: impl FnOnce(&Host),
    ) -> Self {
        let directory = scratch.0.as_path();
        let mut host = Host::of_vm(directory, spec, flavour, args);
        host.start();
        first(&host);
        let begun = Instant::now();
        let vm = Vm::boot(directory, spec, &host.share, port(flavour));
        Self { vm, host, begun, scratch }
    }

    pub fn connected(&mut self, limit: Duration) {
        connected(&mut self.host, limit);
    }

    /// Waits for mote's CONNECTED and for the guest's shell.
    pub fn shell(&mut self) -> Guest {
        self.connected(MOTE_BOOT);
        self.vm.guest()
    }

    pub fn sh(&self, script: &str) -> String {
        let told = |why| format!("{script}: {why}\n{}\n{}", self.vm.console(), self.host.log());
        self.host.sh(script).unwrap_or_else(|why| panic!("{}", told(why)))
    }

    /// Kills the daemon, keeps it down for some time, and requires CONNECTED soon after its
    /// restart. On a slow machine the agent may exceed the host's limit of 3 s; then the host waits
    /// for its next line.
    pub fn restart(&mut self, why: &str) {
        self.host.kill();
        thread::sleep(BACK);
        self.host.start();
        let took = self.host.connected(MOTE_BOOT);
        assert!(
            in_time(took, BACK) || slowdown() > 2.0,
            "{why}: {took:?}\n{}\n{}",
            self.host.log(),
            self.vm.console()
        );
    }

    /// Powers off through the guest's shell, for a host that sees no agent.
    pub fn power_off_unseen(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.vm.ended(OFF);
    }

    /// Powers off through the guest's shell. The host must report that the VM stopped.
    pub fn power_off(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.host.stopped(OFF);
        self.vm.ended(OFF);
    }
}

/// Returns the name of a server's status port.
pub fn port(flavour: &str) -> &'static str {
    match flavour {
        "lxd" => "com.canonical.lxd",
        "incus" => "org.linuxcontainers.incus",
        // Debian's lxd-agent 5.0.2 writes to the old port, and a dummy port blocks it forever.
        _ => "org.linuxcontainers.lxd",
    }
}

/// Waits for CONNECTED. Restarts the host if the agent was too slow for its PUT.
pub fn connected(host: &mut Host, limit: Duration) {
    let begun = Instant::now();
    while !host.is_connected() {
        assert!(in_time(begun.elapsed(), limit), "waited {limit:?} for CONNECTED: {}", host.log());
        // On a busy machine an emulated agent may exceed the host's limit of 3 s, and hosts do not
        // retry (P§2.3). A restarted host sends the PUT again.
        if host.state()["last_put"]["ok"] == false {
            host.restart();
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Column {
    MoteLxd,
    LxdAgent,
    MoteIncus,
    IncusAgent,
    /// The incus-agent of Debian 13's backports, for the bench only.
    IncusAgent7,
    /// An older build of mote with a current LXD, for the bench only.
    Before,
    /// mote with LXD 5.0 of Debian 12, for the clients only.
    MoteOldLxd,
}

impl Column {
    pub const ALL: [Self; 4] = [Self::MoteLxd, Self::LxdAgent, Self::MoteIncus, Self::IncusAgent];

    pub const GO: [Self; 3] = [Self::LxdAgent, Self::IncusAgent, Self::IncusAgent7];

    pub const BENCHED: [Self; 6] = [
        Self::MoteLxd,
        Self::LxdAgent,
        Self::MoteIncus,
        Self::IncusAgent,
        Self::IncusAgent7,
        Self::Before,
    ];

    /// Returns the agents of a bench: with the Go agents unless only mote's `own` rows are wanted,
    /// and with the older build if `before`.
    pub const fn benched(own: bool, before: bool) -> &'static [Self] {
        match (own, before) {
            (false, false) => Self::BENCHED.first_chunk::<5>().expect("six"),
            (false, true) => &Self::BENCHED,
            (true, false) => &[Self::MoteLxd],
            (true, true) => &[Self::MoteLxd, Self::Before],
        }
    }

    /// Returns title, server as `mote-host` names it, and program below /opt (`None` for mote).
    const fn about(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Self::MoteLxd => ("mote/lxd", "lxd", None),
            Self::LxdAgent => ("lxd-agent 5.0.2", "lxd-5.0", Some("lxd-agent")),
            Self::MoteIncus => ("mote/incus", "incus", None),
            Self::IncusAgent => ("incus-agent 6.0.4", "incus", Some("incus-agent")),
            Self::IncusAgent7 => ("incus-agent 7.0.2", "incus", Some("incus-agent")),
            Self::Before => ("mote/lxd before", "lxd", None),
            Self::MoteOldLxd => ("mote/lxd-5.0", "lxd-5.0", None),
        }
    }

    pub fn title(self) -> &'static str {
        self.about().0
    }

    pub fn flavour(self) -> &'static str {
        self.about().1
    }

    pub fn program(self) -> Option<&'static str> {
        self.about().2
    }

    pub fn is_incus(self) -> bool {
        self.flavour() == "incus"
    }

    pub fn is_mote(self) -> bool {
        self.program().is_none()
    }

    pub fn is_current_lxd(self) -> bool {
        self.flavour() == "lxd"
    }

    pub fn pick<T>(self, lxd: T, incus: T) -> T {
        if self.is_incus() { incus } else { lxd }
    }

    pub fn ours(self) -> Self {
        self.pick(Self::MoteLxd, Self::MoteIncus)
    }

    pub fn socket(self) -> &'static str {
        self.pick("/dev/lxd/sock", "/dev/incus/sock")
    }
}

/// Calls an agent continuously while a new one replaces it, and records the failures.
pub struct Outage {
    over: Arc<AtomicBool>,
    calls: JoinHandle<Vec<String>>,
}

impl Outage {
    /// Makes each call on a new connection: an open one would stay with the old agent.
    pub fn watch(client: Client) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let ends = over.clone();
        let calls = thread::spawn(move || {
            let mut failed = Vec::new();
            while !ends.load(Ordering::Relaxed) {
                let answer = client.connect().and_then(|mut wire| wire.ask("GET", "/1.0", "", b""));
                match answer.map(|answer| answer.status) {
                    Ok(200) => {}
                    Ok(other) => failed.push(format!("status {other}")),
                    Err(why) => failed.push(why),
                }
                thread::sleep(Duration::from_millis(10));
            }
            failed
        });
        Self { over, calls }
    }

    pub fn failures(self) -> Vec<String> {
        self.over.store(true, Ordering::Relaxed);
        self.calls.join().expect("the calls")
    }
}
