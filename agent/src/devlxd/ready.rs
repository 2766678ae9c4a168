//! The state that an application sets, stored to repeat it after the host restarts (decisions §2).

use mote_core::devlxd::ready::ReadyState;
use mote_core::json::Value;

use crate::agent::Agent;
use crate::runtime::log;
use crate::status::status_file::remember;

/// Records a request to set the state, before it is forwarded.
pub(super) fn asked(agent: &Agent, body: &[u8]) -> Option<ReadyState> {
    let state = ReadyState::parse(&Value::parse(body).ok()?.member("state")?.string().ok()?)?;
    // At once, so that an agent started meanwhile does not repeat Ready.
    if state == ReadyState::Started {
        remember(agent, state);
    }
    Some(state)
}

/// Records that the host has accepted the state.
pub(super) fn accepted(agent: &Agent, state: ReadyState) {
    log::info(format_args!("an application reports {}", state.name()));
    remember(agent, state);
}
