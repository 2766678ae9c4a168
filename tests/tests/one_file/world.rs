//! A VM with one of the images that `scripts/test one-file` makes.

use std::path::PathBuf;
use std::time::Duration;

use mote_tests::column::Column;
use mote_tests::vm::Spec;
use mote_tests::world::BOOT;
use mote_tests::{tool, wait, world};

/// From the guest's being told to end to QEMU's end: programs have 5 s, killed ones 2 s.
pub(crate) const END: Duration = Duration::from_secs(40);

/// Where an image is: `plain`, `busybox`, `without` (an agent that is not init), `go`.
pub(crate) fn image(name: &str) -> PathBuf {
    tool("MOTE_ONE_FILE", "target/one-file").join(name)
}

pub(crate) struct World(pub(crate) world::World);

impl World {
    /// Switches on a VM with such an image and these words on the kernel's command line.
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

    /// Runs a command in the guest as the host does.
    pub(crate) fn exec(&self, command: &[&str]) -> Result<String, String> {
        self.0.host.exec(command)
    }

    /// The same by the guest's shell, which must succeed.
    pub(crate) fn sh(&self, script: &str) -> String {
        self.0.sh(script)
    }

    /// Waits until the console has it that many times.
    pub(crate) fn console(&self, mark: &str, times: usize) -> String {
        let look = || Some(self.0.vm.console()).filter(|text| text.matches(mark).count() >= times);
        wait(mark, END, look).0
    }

    /// The host sees STOPPED, and then QEMU ends, without the kernel having panicked. Returns the console's text.
    pub(crate) fn ends(mut self) -> String {
        self.0.host.stopped(END);
        self.0.vm.ended(END);
        let console = self.0.vm.console();
        assert!(!console.contains("Kernel panic"), "{console}");
        console
    }
}
