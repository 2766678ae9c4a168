//! `mote-host` as a user of the server runs it. The Go agents prove that the host is correct, and
//! mote must give the same results.

mod cli;
mod commands;
mod files;
mod power;
mod reports;
mod terminals;

pub(super) use power::ALL as POWER;

use super::Check;

/// All except the one that ends the VM.
pub(super) fn all() -> Vec<Check> {
    let all = [commands::ALL, terminals::ALL, files::ALL, reports::ALL].concat();
    // They inspect operations and processes, and transfer as much as possible.
    all.into_iter().map(Check::alone).collect()
}
