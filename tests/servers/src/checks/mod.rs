//! All checks. Each leaves the instance running and with its agent; otherwise `ready` restores
//! that.

use crate::prelude::*;

/// Lists the checks of groups, named as functions. A check with a method of [`Server`] in brackets
/// runs only on servers for which that returns true.
macro_rules! group {
    ($($group:literal: $($name:ident $([$server:ident])?),+);+) => {
        pub(super) const CHECKS: &[crate::checks::Check] = &[$($(crate::checks::Check {
            group: $group,
            name: stringify!($name),
            servers: &[$(crate::server::Server::$server)?],
            run: $name,
        }),+),+];
    };
}

mod boot;
mod connect;
mod devices;
mod exec;
mod files;
mod life;
mod snapshot;
mod state;

#[derive(Clone, Copy, Debug)]
pub struct Check {
    pub group: &'static str,
    pub name: &'static str,
    /// Conditions that a server must meet for this check.
    pub servers: &'static [fn(Server) -> bool],
    pub run: fn(&World) -> Seen,
}

impl Check {
    pub fn id(&self) -> String {
        format!("{}.{}", self.group, self.name)
    }
}

/// Returns a server's checks in order: those that restart something come last.
pub fn of(server: Server) -> impl Iterator<Item = Check> {
    let all = [
        state::CHECKS,
        exec::CHECKS,
        connect::CHECKS,
        files::CHECKS,
        devices::CHECKS,
        snapshot::CHECKS,
        life::CHECKS,
        boot::CHECKS,
    ];
    all.into_iter()
        .flatten()
        .copied()
        .filter(move |check| check.servers.iter().all(|is| is(server)))
}

pub fn ready(world: &World) -> Try {
    if world.status()? == "Frozen" {
        world.ok(&[world.server.resume(), VM])?;
    }
    if world.status()? == "Stopped" {
        // The server starts a rebooting guest at the same moment: either start may win.
        let _other = world.cli(&["start", VM]).run()?;
    }
    if !world.sees_agent(VM)? {
        world.agent_of(VM)?;
    }
    Ok(())
}
