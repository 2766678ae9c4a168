//! The claims, one file per subject.

mod by_host;
mod devlxd;
mod events;
mod exec;
mod exec_ends;
mod http;
mod life;
mod operations;
mod sftp;
mod state;

pub(super) use devlxd::ODD;

use super::Check;

pub fn all() -> Vec<Check> {
    [
        http::ALL,
        operations::ALL,
        events::ALL,
        exec::ALL,
        exec_ends::ALL,
        sftp::ALL,
        state::ALL,
        devlxd::ALL,
        by_host::commands::ALL,
        by_host::files::ALL,
        life::ALL,
        by_host::commands::POWER,
    ]
    .concat()
}
