//! Reads the envelope of the answers of LXD and Incus (P§4).

use super::{JsonError, Value};

/// Type of an envelope (P§4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The metadata is the answer.
    Sync,
    /// The request has started an operation.
    Async,
    /// The request failed.
    Error,
}

/// The fields of an envelope that the agent uses.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'j> {
    pub kind: Kind,
    /// `error_code`; 0 if missing or out of range.
    pub error_code: u16,
    /// `error`, unchecked: a string with the reason.
    pub error: Option<Value<'j>>,
    /// `metadata`; `null` if there is none.
    pub metadata: Value<'j>,
}

impl<'j> Envelope<'j> {
    /// Reads a host's answer. Errors: [`JsonError`] if it is not JSON; [`JsonError::Shape`] if it
    /// is not an object or its `type` is unknown.
    pub fn parse(answer: &'j [u8]) -> Result<Self, JsonError> {
        let fields = ["type", "error_code", "error", "metadata"];
        let [kind, error_code, error, metadata] = Value::parse(answer)?.fields(fields)?;
        let kind = kind.ok_or(JsonError::Shape)?;
        let kind = [("sync", Kind::Sync), ("async", Kind::Async), ("error", Kind::Error)]
            .into_iter()
            .find_map(|(word, known)| kind.is(word).then_some(known));
        Ok(Self {
            kind: kind.ok_or(JsonError::Shape)?,
            error_code: error_code.and_then(|code| code.number().ok()).unwrap_or(0),
            error,
            metadata: metadata.unwrap_or(Value::NULL),
        })
    }
}
