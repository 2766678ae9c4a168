//! The description of a check.

use crate::server::Server;
use crate::world::{Seen, World};

#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub group: &'static str,
    /// Its name within the group.
    pub name: &'static str,
    /// Whether a server has it.
    pub has: fn(Server) -> bool,
    pub run: fn(&World) -> Seen,
}

impl Check {
    pub(super) const fn new(
        group: &'static str,
        name: &'static str,
        run: fn(&World) -> Seen,
    ) -> Self {
        Self { group, name, has: |_| true, run }
    }

    pub(super) const fn incus(mut self) -> Self {
        self.has = Server::is_incus;
        self
    }

    /// Since Incus 7.0.
    pub(super) const fn incus_7(mut self) -> Self {
        self.has = |server| server == Server::Incus;
        self
    }

    /// Its name for people and on the command line.
    pub fn id(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}
