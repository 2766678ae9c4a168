//! A host and a VM that was told to boot.

use std::time::{Duration, Instant};

use mote_tests::guest::Guest;
use mote_tests::host::Host;
use mote_tests::vm::{Spec, Vm};
use mote_tests::{Scratch, patient, slowdown, wait, world};

/// From power-on to CONNECTED, under software emulation on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(60);
/// The host is back, and so must be the agent.
pub(crate) const BACK: Duration = Duration::from_secs(2);

/// Dropped in this order.
pub(crate) struct World {
    pub(crate) vm: Vm,
    pub(crate) host: Host,
    pub(crate) scratch: Scratch,
}

impl World {
    pub(crate) fn boot(flavour: &str, spec: &Spec, extra: &[&str]) -> Self {
        Self::prepare(flavour, spec, extra, |_| {})
    }

    /// The same, with something done to the host before the VM is there.
    pub(crate) fn prepare(
        flavour: &str,
        spec: &Spec,
        extra: &[&str],
        prepare: impl FnOnce(&Host),
    ) -> Self {
        let scratch = Scratch::new();
        let directory = scratch.0.as_path();
        let args = [&["--config", "user.foo=bar"], extra].concat();
        let mut host = Host::of_vm(directory, spec, flavour, &args);
        host.start();
        prepare(&host);
        let vm = Vm::boot(directory, spec, &host.share);
        Self { vm, host, scratch }
    }

    /// Waits for CONNECTED, then for the guest's shell.
    pub(crate) fn connected(&mut self) -> Guest {
        let begun = Instant::now();
        while !self.host.is_connected() {
            if begun.elapsed() > patient(BOOT) {
                // What it hangs on, before it is gone.
                let mut guest = self.vm.guest();
                let proc = "p=/proc/$(cat /run/agent.pid); cat /run/agent.log $p/status $p/wchan";
                panic!("no CONNECTED: {}\n{}", guest.sh(proc).1, self.host.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.vm.guest()
    }

    /// The same for a Go agent, which a busy machine may make too slow for the host's first call.
    pub(crate) fn connected_theirs(&mut self) -> Guest {
        world::connected(&mut self.host, world::BOOT);
        self.vm.guest()
    }

    /// Kills the daemon, keeps it down for a while, and demands CONNECTED soon after. Not of a slow machine, on which
    /// the agent may need longer than the 3 s that a host gives it: then the host waits for its next line.
    pub(crate) fn restart(&mut self, why: &str) -> Duration {
        self.host.kill();
        std::thread::sleep(BACK);
        self.host.start();
        let took = self.host.connected(BOOT);
        assert!(
            took < patient(BACK) || slowdown() > 2.0,
            "{why}: {took:?}\n{}\n{}",
            self.host.log(),
            self.vm.console()
        );
        took
    }

    /// The same where the host sees no agent.
    pub(crate) fn power_off_unseen(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        self.vm.ended(Duration::from_secs(20));
    }

    pub(crate) fn power_off(mut self, guest: &mut Guest) {
        guest.send("poweroff");
        wait("STOPPED", Duration::from_secs(20), || {
            (self.host.state()["state"] == "STOPPED").then_some(())
        });
        self.vm.ended(Duration::from_secs(20));
    }
}
