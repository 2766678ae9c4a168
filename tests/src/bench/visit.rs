//! One agent in one VM, started on request.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::{Column, Guest, Spec, World};

/// Memory of the VM, MiB.
pub(super) const MEMORY: u32 = 384;

/// An agent that is being measured.
#[derive(Debug)]
pub(super) struct Visit {
    /// The agent's column.
    pub(super) column: Column,
    pub(super) guest: Guest,
    /// VM and host.
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

/// Runs `it` and returns its panic as an error. The harness panics when a deadline is over.
pub(super) fn attempt<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        text.unwrap_or_else(|| "a panic".into())
    })
}
