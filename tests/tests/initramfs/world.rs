//! A VM that boots an initramfs of the test's, and its host.

use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mote_tests::conform::client::{Client, Way};
use mote_tests::host::NAME;
use mote_tests::outage::Outage;
use mote_tests::proc::started;
use mote_tests::vm::{self, Spec};
use mote_tests::{Scratch, put, wait, world};

/// For what takes a boot, under software emulation on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(400);

/// With what only these tests ask of it.
pub(crate) struct World(world::World);

impl Deref for World {
    type Target = world::World;

    fn deref(&self) -> &world::World {
        &self.0
    }
}

impl World {
    pub(crate) fn boot(scratch: Scratch, spec: &Spec) -> Self {
        Self(world::World::with(scratch, spec, "lxd", &["--config", "user.foo=bar"], |_| {}))
    }

    /// Waits for CONNECTED; from power-on until then.
    pub(crate) fn connected(&self) -> Duration {
        self.host.connected(BOOT);
        self.begun.elapsed()
    }

    /// How long the process that a script names has run, by the guest's clock.
    pub(crate) fn since_start(&self, pid: &str) -> Duration {
        let look = format!("cat /proc/$({pid})/stat; cat /proc/uptime");
        let text = self.sh(&look);
        let (stat, uptime) = text.split_once('\n').expect("two lines");
        let uptime = uptime.split(' ').next().and_then(|word| word.parse().ok());
        Duration::from_secs_f64(uptime.expect("an uptime")) - started(stat)
    }

    /// Watches how long nobody answers the host.
    pub(crate) fn outage(&self) -> Outage {
        Outage::watch(Client::new(Way::Device(vm::vsock(&self.scratch.0)), &self.host))
    }

    /// Waits until a script in the guest succeeds.
    pub(crate) fn until(&self, script: &str) -> String {
        wait(script, BOOT, || self.host.sh(script).ok()).0
    }

    /// Pushes a file with the text `pushed`, by the host.
    pub(crate) fn push(&self, to: &str) {
        let file = self.scratch.0.join("file");
        put(&file, "pushed");
        self.host.ok(&["file", "push", file.to_str().expect("a path"), &format!("{NAME}{to}")]);
    }

    /// Checks that the host saw no STOPPED between Ready and the first call of the next agent. An agent that the host
    /// does not call for 15 s, as on a busy machine, sends STOPPED and STARTED once (decisions §1).
    pub(crate) fn assert_no_end(&self) {
        let log = self.host.log();
        let (_, since) = log.split_once("PATCH /1.0 200").expect("Ready was reported");
        let (before, _) = since.split_once("GET /1.0 200").expect("a call of the next agent");
        assert!(!before.contains("STOPPED"), "{log}");
    }

    /// That the host heard of the end.
    pub(crate) fn stopped(&mut self) -> bool {
        self.0.vm.ended(BOOT);
        self.host.log().contains("STOPPED")
    }
}

/// Appends a directory's files to an initrd.
pub(crate) fn append(tree: &Path, initrd: &Path) {
    let script =
        "cd \"$1\" && find . -mindepth 1 | cpio --quiet -R 0:0 -H newc -o | gzip -n -1 >>\"$2\"";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script, "-"]).arg(tree).arg(initrd);
    assert!(command.status().expect("bash").success(), "cpio");
}
