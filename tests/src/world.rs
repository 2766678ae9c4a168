//! A VM with the agent of a column in it, and its host.

use std::time::{Duration, Instant};

use crate::column::Column;
use crate::guest::Guest;
use crate::host::Host;
use crate::vm::{Spec, Vm};
use crate::{Scratch, patient, slowdown, tool};

/// From power-on to CONNECTED, under software emulation on a busy machine.
pub const BOOT: Duration = Duration::from_secs(90);
pub const MOTE_BOOT: Duration = Duration::from_secs(60);
/// The host is back, and so must be the agent.
pub const BACK: Duration = Duration::from_secs(2);
/// From the guest's being told to switch itself off to QEMU's end.
const OFF: Duration = Duration::from_secs(20);

/// All that runs for one agent. Dropped in this order.
#[derive(Debug)]
pub struct World {
    pub vm: Vm,
    pub host: Host,
    /// When the machine was switched on.
    pub begun: Instant,
    /// Where all their files are.
    pub scratch: Scratch,
}

/// The VM for a column, in the image that holds all agents; the older build has an image of its own.
pub fn spec(column: Column) -> Spec {
    let words = column.program().map(|name| format!("mote.start={name}")).unwrap_or_default();
    let image = match column {
        Column::Before => tool("MOTE_IMAGE_BEFORE", "target/image-before"),
        Column::IncusAgent7 => tool("MOTE_IMAGE_GO7", "target/image-go7"),
        Column::MoteLxd | Column::LxdAgent | Column::MoteIncus | Column::IncusAgent => {
            tool("MOTE_IMAGE_GO", "target/image-go")
        }
    };
    Spec { image, port: column.port(), words, ..Spec::default() }
}

impl World {
    /// Starts the host, whose instance has this configuration, and switches the VM on.
    pub fn boot(column: Column, spec: &Spec, config: &[&str]) -> Self {
        let config: Vec<_> = config.iter().flat_map(|pair| ["--config", pair]).collect();
        Self::with(Scratch::new(), spec, column.flavour(), &config, |_| {})
    }

    /// The same of a server, its arguments beside one key of the configuration that tests ask for.
    pub fn of(flavour: &str, spec: &Spec, extra: &[&str]) -> Self {
        Self::prepare(flavour, spec, extra, |_| {})
    }

    /// The same, with something done to the host before the VM is there.
    pub fn prepare(
        flavour: &str,
        spec: &Spec,
        extra: &[&str],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let args = [&["--config", "user.foo=bar"], extra].concat();
        Self::with(Scratch::new(), spec, flavour, &args, prepare)
    }

    /// The same in this directory and with no other arguments than these.
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

    /// Waits for mote's CONNECTED, which a host hears that calls once; then for the guest's shell.
    pub fn shell(&mut self) -> Guest {
        let begun = Instant::now();
        while !self.host.is_connected() {
            if begun.elapsed() > patient(MOTE_BOOT) {
                // What it hangs on, before it is gone.
                let mut guest = self.vm.guest();
                let proc = "p=/proc/$(cat /run/agent.pid); cat /run/agent.log $p/status $p/wchan";
                panic!("no CONNECTED: {}\n{}", guest.sh(proc).1, self.host.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.vm.guest()
    }

    /// Runs a script in a guest that is there, by the host.
    pub fn sh(&self, script: &str) -> String {
        let told = |why| format!("{script}: {why}\n{}\n{}", self.vm.console(), self.host.log());
        self.host.sh(script).unwrap_or_else(|why| panic!("{}", told(why)))
    }

    /// Kills the daemon, keeps it down for a while, and demands CONNECTED soon after. Not of a slow machine, on which
    /// the agent may need longer than the 3 s that a host gives it: then the host waits for its next line.
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

    /// Switches it off by its shell where the host sees no agent.
    pub fn power_off_unseen(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.vm.ended(OFF);
    }

    /// The same where it does, and has to see the end.
    pub fn power_off(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.host.stopped(OFF);
        self.vm.ended(OFF);
    }
}

/// Waits for CONNECTED of an agent that may be a slow one.
pub fn connected(host: &mut Host, limit: Duration) {
    let begun = Instant::now();
    while !host.is_connected() {
        assert!(begun.elapsed() < patient(limit), "waited {limit:?} for CONNECTED: {}", host.log());
        // On a busy machine an emulated agent may take longer than the 3 s a host gives it, and
        // hosts do not try again (P§2.3): one that is restarted does.
        if host.state()["last_put"]["ok"] == false {
            host.kill();
            host.start();
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
