//! The state that an application sets, stored to repeat it after the host restarts (decisions §2).

use mote_core::devlxd::ready::ReadyState;
use mote_core::json::Value;

use crate::agent::Agent;
use crate::runtime::log;
use crate::status::status_file::remember;

/// Called before the host is asked to set the state of this request.
pub(super) fn asked(agent: &Agent, body: &[u8]) -> Option<ReadyState> {
    let state = ReadyState::parse(&Value::parse(body).ok()?.member("state")?.string().ok()?)?;
    // At once, so that a later agent does not repeat Ready while the host is asked.
    if state == ReadyState::Started {
        remember(agent, state);
    }
    Some(state)
}

/// The host has accepted it.
pub(super) fn accepted(agent: &Agent, state: ReadyState) {
    log::info(format_args!("an application says {}", state.name()));
    remember(agent, state);
}
