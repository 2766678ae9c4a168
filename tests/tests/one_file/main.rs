//! VMs whose image is one file: the agent as `/init` (`image/one-file`), alone or with busybox.

mod figures;
mod leaving;
mod running;

use std::path::PathBuf;
use std::time::Duration;

use mote_tests::{BOOT, Column, Spec, tool, wait, world};

/// Limit from the shutdown request to QEMU's end: programs have 5 s, killed ones 2 s.
pub(crate) const END: Duration = Duration::from_secs(40);

/// Returns the path of an image: `plain`, `busybox`, `without` (an agent without init), `go`.
pub(crate) fn image(name: &str) -> PathBuf {
    tool("MOTE_ONE_FILE", "target/one-file").join(name)
}

pub(crate) struct World(pub(crate) world::World);

impl World {
    pub(crate) fn boot(name: &str, words: &str) -> Self {
        Self::with(&Spec { image: image(name), words: words.into(), ..Spec::default() })
    }

    pub(crate) fn with(spec: &Spec) -> Self {
        Self(world::World::boot(Column::MoteLxd, spec, &["user.foo=bar"]))
    }

    pub(crate) fn connected(name: &str, words: &str) -> Self {
        let mut world = Self::boot(name, words);
        world.0.connected(BOOT);
        world
    }

    pub(crate) fn exec(&self, command: &[&str]) -> Result<String, String> {
        self.0.host.exec(command)
    }

    pub(crate) fn sh(&self, script: &str) -> String {
        self.0.sh(script)
    }

    /// Waits until the console shows the text that many times.
    pub(crate) fn console(&self, mark: &str, times: usize) -> String {
        let look = || Some(self.0.vm.console()).filter(|text| text.matches(mark).count() >= times);
        wait(mark, END, look).0
    }

    /// Waits until the host has received STOPPED and QEMU has ended without a kernel panic. Returns
    /// the console's text.
    pub(crate) fn ends(mut self) -> String {
        self.0.host.stopped(END);
        self.0.vm.ended(END);
        let console = self.0.vm.console();
        assert!(!console.contains("Kernel panic"), "{console}");
        console
    }
}
