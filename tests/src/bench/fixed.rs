//! The row that is the same in each round: the size of the program.

use std::path::PathBuf;

use super::book::Found;
use crate::column::Column;
use crate::{agent, tool};

/// Path of the agent's program.
fn binary(column: Column) -> PathBuf {
    match column.program() {
        None if column == Column::Before => tool("MOTE_AGENT_BEFORE", "target/mote-agent-before"),
        None => agent(),
        Some("lxd-agent") => tool("MOTE_LXD_AGENT", "target/lxd-agent"),
        Some(_) if column == Column::IncusAgent7 => {
            tool("MOTE_INCUS_AGENT_7", "target/incus-agent-7")
        }
        Some(_) => tool("MOTE_INCUS_AGENT", "target/incus-agent"),
    }
}

pub(super) fn bytes(column: Column) -> Found {
    let file = std::fs::metadata(binary(column)).map_err(|error| error.to_string());
    let bytes = |length| u32::try_from(length).map(f64::from).map_err(|_| "too large".to_owned());
    vec![("bytes", file.and_then(|file| bytes(file.len())))]
}
