//! Agents that an initramfs starts, checked by the host before, during and after switch_root: the
//! root's own agent takes over, or the first one continues if the root has none.

mod busybox;
mod debian;

use std::ops::Deref;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mote_tests::proc::started;
use mote_tests::{Client, NAME, Outage, Scratch, Spec, put, wait, world};

/// Limit for a boot with software emulation on a busy machine.
pub(crate) const BOOT: Duration = Duration::from_secs(400);

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

    /// Waits for CONNECTED. Returns the time since power-on.
    pub(crate) fn connected(&self) -> Duration {
        self.host.connected(BOOT);
        self.begun.elapsed()
    }

    pub(crate) fn since_start(&self, pid: &str) -> Duration {
        let look = format!("cat /proc/$({pid})/stat; cat /proc/uptime");
        let text = self.sh(&look);
        let (stat, uptime) = text.split_once('\n').expect("two lines");
        let uptime = uptime.split(' ').next().and_then(|word| word.parse().ok());
        Duration::from_secs_f64(uptime.expect("an uptime")) - started(stat)
    }

    /// Records how long no agent answers the host.
    pub(crate) fn outage(&self) -> Outage {
        Outage::watch(Client::new(&self.host))
    }

    pub(crate) fn until(&self, script: &str) -> String {
        wait(script, BOOT, || self.host.sh(script).ok()).0
    }

    pub(crate) fn push(&self, to: &str) {
        let file = self.scratch.0.join("file");
        put(&file, "pushed");
        self.host.ok(&["file", "push", file.to_str().expect("a path"), &format!("{NAME}{to}")]);
    }

    /// Checks that the host saw no STOPPED between Ready and the first call of the next agent. An
    /// agent that the host does not call for 15 s, as on a busy machine, sends STOPPED and STARTED
    /// once (decisions §1).
    pub(crate) fn assert_no_end(&self) {
        let log = self.host.log();
        let (_, since) = log.split_once("PATCH /1.0 200").expect("Ready was reported");
        let (before, _) = since.split_once("GET /1.0 200").expect("a call of the next agent");
        assert!(!before.contains("STOPPED"), "{log}");
    }

    /// Returns whether the host received STOPPED.
    pub(crate) fn stopped(&mut self) -> bool {
        self.0.vm.ended(BOOT);
        self.host.log().contains("STOPPED")
    }
}

pub(crate) fn append(tree: &Path, initrd: &Path) {
    let script =
        "cd \"$1\" && find . -mindepth 1 | cpio --quiet -R 0:0 -H newc -o | gzip -n -1 >>\"$2\"";
    let mut command = Command::new("bash");
    command.args(["-o", "pipefail", "-c", script, "-"]).arg(tree).arg(initrd);
    assert!(command.status().expect("bash").success(), "cpio");
}
