//! Formats the daemon's knowledge of an agent.

use std::time::Duration;

use serde_json::Value;

use mote_client::common::units;

/// Formats the last PUT.
pub(crate) fn last_put(state: &Value) -> String {
    let put = &state["last_put"];
    let at = put["at"].as_str().unwrap_or("");
    match (put.is_null(), put["error"].as_str()) {
        (true, _) => "-".to_owned(),
        (false, None) => format!("ok in {} ms, {at}", put["ms"]),
        (false, Some(why)) => format!("failed after {} ms, {at}: {why}", put["ms"]),
    }
}

/// Formats the last error.
pub(crate) fn last_error(state: &Value) -> String {
    let error = &state["last_error"];
    match (error["text"].as_str(), error["at"].as_str()) {
        (Some(text), Some(at)) => format!("{text} ({at})"),
        _ => "-".to_owned(),
    }
}

/// Formats how long it has been in its state.
pub(crate) fn lasted(state: &Value) -> String {
    units::duration(Duration::from_millis(state["since_ms"].as_u64().unwrap_or(0)))
}

/// Returns why it is not connected.
pub(crate) fn why(state: &Value) -> &str {
    state["why"]["text"].as_str().unwrap_or("-")
}
