//! The description of a check.

use crate::server::Server;
use crate::world::{Seen, World};

#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub group: &'static str,
    pub name: &'static str,
    /// Conditions that the server meets.
    pub servers: &'static [fn(Server) -> bool],
    pub run: fn(&World) -> Seen,
}

impl Check {
    /// Returns its name in reports and on the command line.
    pub fn id(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}

/// Lists a group's checks, each named as its function. A method of [`Server`] in brackets limits
/// one to some servers.
macro_rules! group {
    ($group:literal: $($name:ident $([$server:ident])?),+) => {
        pub(super) const CHECKS: &[crate::checks::Check] = &[$(crate::checks::Check {
            group: $group,
            name: stringify!($name),
            servers: &[$(crate::server::Server::$server)?],
            run: $name,
        }),+];
    };
}
pub(super) use group;
