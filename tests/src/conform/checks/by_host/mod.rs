//! What a user of the server does to a VM, by `mote-host`: whether the host's half is right, too. The Go agents say
//! so for the host, and mote has to do the same.

mod cli;
mod commands;
mod files;
mod power;
mod reports;
mod terminals;

pub(super) use power::ALL as POWER;

use super::Check;

/// All but the one that ends the VM.
pub(super) fn all() -> Vec<Check> {
    let all = [commands::ALL, terminals::ALL, files::ALL, reports::ALL].concat();
    // They look at operations and processes, and move as much as there is room for.
    all.into_iter().map(Check::alone).collect()
}
