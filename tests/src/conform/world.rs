//! Boots the agent of a column and runs the checks on it.

use std::time::Instant;

use super::agent::Agent;
use super::{Check, Column, Seen, run};
use crate::vm::{Spec, vsock};
use crate::world::{self, BOOT, World};

pub fn look(column: Column, checks: &[Check]) -> Seen {
    let begun = Instant::now();
    let odd = format!("user.odd={}", super::checks::ODD);
    let config = [
        "user.foo=bar",
        "environment.FROM_HOST=yes",
        &odd,
        "cloud-init.user-data=#cloud-config\n",
        "mote.bearer=secret",
        "security.devlxd.images=true",
        "security.devlxd.management.volumes=true",
    ];
    let spec = Spec { memory: 384, ..world::spec(column) };
    let mut world = World::boot(column, &spec, &config);
    world.connected(BOOT);
    println!("{}: connected after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    // Drops the scratch directory last.
    let World { scratch, host, vm, .. } = world;
    let agent = Agent::new(column, vsock(&scratch.0), host, vm);
    let seen = run(&agent, checks);
    println!("{}: done after {:.1} s", column.title(), begun.elapsed().as_secs_f64());
    seen
}
