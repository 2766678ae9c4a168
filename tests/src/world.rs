//! A VM with a column's agent, and its host.

use std::time::{Duration, Instant};

use crate::{Column, Guest, Host, Scratch, Spec, Vm, patient, slowdown, tool};

/// Limit from power-on to CONNECTED, with software emulation on a busy machine.
pub const BOOT: Duration = Duration::from_secs(90);
pub const MOTE_BOOT: Duration = Duration::from_secs(60);
/// Limit from the host's restart to CONNECTED.
pub const BACK: Duration = Duration::from_secs(2);
/// Limit from the guest's power-off to QEMU's end.
const OFF: Duration = Duration::from_secs(20);

/// All processes of one agent's test. Dropped in this order.
#[derive(Debug)]
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
    Spec { image, port: column.port(), words, ..Spec::default() }
}

impl World {
    pub fn boot(column: Column, spec: &Spec, config: &[&str]) -> Self {
        let config: Vec<_> = config.iter().flat_map(|pair| ["--config", pair]).collect();
        Self::with(Scratch::new(), spec, column.flavour(), &config, |_| {})
    }

    /// The same by a server's name, with one configuration key that tests read.
    pub fn of(flavour: &str, spec: &Spec, extra: &[&str]) -> Self {
        Self::prepare(flavour, spec, extra, |_| {})
    }

    /// The same with an action on the host before the VM starts.
    pub fn prepare(
        flavour: &str,
        spec: &Spec,
        extra: &[&str],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let args = [&["--config", "user.foo=bar"], extra].concat();
        Self::with(Scratch::new(), spec, flavour, &args, prepare)
    }

    /// The same in this directory, with exactly these arguments.
    pub fn with(
        scratch: Scratch,
        spec: &Spec,
        flavour: &str,
        args: &[&str],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let directory = scratch.0.as_path();
        let mut host = Host::of_vm(directory, spec, flavour, args);
        host.start();
        prepare(&host);
        let begun = Instant::now();
        let vm = Vm::boot(directory, spec, &host.share);
        Self { vm, host, begun, scratch }
    }

    pub fn connected(&mut self, limit: Duration) {
        connected(&mut self.host, limit);
    }

    /// Waits for mote's CONNECTED, as seen by a host that calls once, and for the guest's shell.
    pub fn shell(&mut self) -> Guest {
        let begun = Instant::now();
        while !self.host.is_connected() {
            if begun.elapsed() > patient(MOTE_BOOT) {
                // Shows the agent's state, because the VM is about to be removed.
                let mut guest = self.vm.guest();
                let proc = "p=/proc/$(cat /run/agent.pid); cat /run/agent.log $p/status $p/wchan";
                panic!("no CONNECTED: {}\n{}", guest.sh(proc).1, self.host.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.vm.guest()
    }

    pub fn sh(&self, script: &str) -> String {
        let told = |why| format!("{script}: {why}\n{}\n{}", self.vm.console(), self.host.log());
        self.host.sh(script).unwrap_or_else(|why| panic!("{}", told(why)))
    }

    /// Kills the daemon, keeps it down for some time, and requires CONNECTED soon after its
    /// restart. On a slow machine the agent may exceed the host's limit of 3 s; then the host waits
    /// for its next line.
    pub fn restart(&mut self, why: &str) -> Duration {
        self.host.kill();
        std::thread::sleep(BACK);
        self.host.start();
        let took = self.host.connected(MOTE_BOOT);
        assert!(
            took < patient(BACK) || slowdown() > 2.0,
            "{why}: {took:?}\n{}\n{}",
            self.host.log(),
            self.vm.console()
        );
        took
    }

    /// Powers off by the guest's shell, for a host that sees no agent.
    pub fn power_off_unseen(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.vm.ended(OFF);
    }

    /// Powers off by the guest's shell. The host must see the end.
    pub fn power_off(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.host.stopped(OFF);
        self.vm.ended(OFF);
    }
}

/// Waits for CONNECTED of a possibly slow agent.
pub fn connected(host: &mut Host, limit: Duration) {
    let begun = Instant::now();
    while !host.is_connected() {
        assert!(begun.elapsed() < patient(limit), "waited {limit:?} for CONNECTED: {}", host.log());
        // On a busy machine an emulated agent may exceed the host's limit of 3 s, and hosts do not
        // retry (P§2.3). A restarted agent reports again.
        if host.state()["last_put"]["ok"] == false {
            host.kill();
            host.start();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
