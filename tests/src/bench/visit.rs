//! One agent in one VM, started on request.

use crate::{Column, Guest, Spec, World};

/// Memory of the VM, MiB.
pub(super) const MEMORY: u32 = 384;

#[derive(Debug)]
pub(super) struct Visit {
    pub(super) column: Column,
    pub(super) guest: Guest,
    pub(super) world: World,
}

impl Visit {
    /// Boots the VM up to its shell, with the agent not yet started.
    pub(super) fn boot(column: Column, spec: &Spec) -> Self {
        let words = format!("{} mote.agent=later", spec.words);
        let mut world = World::boot(column, &Spec { words, ..spec.clone() }, &["user.foo=bar"]);
        let guest = world.vm.guest();
        Self { column, guest, world }
    }

    /// Reads a file of the agent's /proc; of all threads if the name begins with `task/*/`.
    pub(super) fn proc(&mut self, name: &str) -> String {
        self.guest.ok(&format!("cat /proc/$(cat /run/agent.pid)/{name}"))
    }
}
