//! In words: what the daemon knows of an agent.

use std::time::Duration;

use serde_json::Value;

use mote_client::common::units;

/// The last PUT.
pub(crate) fn last_put(state: &Value) -> String {
    let put = &state["last_put"];
    let at = put["at"].as_str().unwrap_or("");
    match (put.is_null(), put["error"].as_str()) {
        (true, _) => "-".to_owned(),
        (false, None) => format!("ok in {} ms, {at}", put["ms"]),
        (false, Some(why)) => format!("failed after {} ms, {at}: {why}", put["ms"]),
    }
}

/// The last error.
pub(crate) fn last_error(state: &Value) -> String {
    let error = &state["last_error"];
    match (error["text"].as_str(), error["at"].as_str()) {
        (Some(text), Some(at)) => format!("{text} ({at})"),
        _ => "-".to_owned(),
    }
}

/// For how long it has been what it is.
pub(crate) fn lasted(state: &Value) -> String {
    units::duration(Duration::from_millis(state["since_ms"].as_u64().unwrap_or(0)))
}

/// Why it is no further.
pub(crate) fn why(state: &Value) -> &str {
    state["why"]["text"].as_str().unwrap_or("-")
}
