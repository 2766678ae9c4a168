//! Reasons to refuse a command.

use core::fmt;

use crate::json::JsonError;

/// Why an exec request is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Not JSON, or a member has the wrong type.
    Json(JsonError),
    /// The command is missing or empty, which crashes the Go agents (P§9.4).
    NoCommand,
    /// An argument or variable contains a NUL, which execve(2) cannot pass on.
    Nul,
    /// `wait-for-websocket` is not set: like the Go agents, mote runs commands only on websockets.
    NoWebsocket,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(out, "Invalid exec request: {error}"),
            Self::NoCommand => out.write_str("The command is empty"),
            Self::Nul => out.write_str("A command or variable contains a NUL"),
            Self::NoWebsocket => out.write_str("Websockets are required for VM exec"),
        }
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}
