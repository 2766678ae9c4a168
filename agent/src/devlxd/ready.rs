//! The state that an application sets, remembered to be said again after the host restarts (decisions §2).

use mote_core::devlxd::ready::ReadyState;
use mote_core::json::Value;

use crate::agent::Agent;
use crate::runtime::log;
use crate::status::status_file::remember;

/// The host is about to be asked to set the state of this request.
pub(super) fn asked(agent: &Agent, body: &[u8]) -> Option<ReadyState> {
    let state = ReadyState::parse(&Value::parse(body).ok()?.member("state")?.string().ok()?)?;
    // At once: an agent that comes after this one is not to say Ready again while the host is asked.
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
