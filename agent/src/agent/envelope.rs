//! Builds answers to the host in its envelope (P§4).

use std::fmt::Display;

use mote_core::hostapi::info::{write_error, write_sync};
use mote_core::json::{Document, Value};

use crate::net::serve::{Answer, Reply};

/// Upper bound of an envelope without its content, bytes.
pub(crate) const ENVELOPE: usize = 128;

/// Returns a success answer (`sync`, 200) with this metadata.
pub(crate) fn sync(metadata: Value<'_>) -> Answer {
    Answer::Reply(sync_reply(metadata))
}

pub(crate) fn sync_reply(metadata: Value<'_>) -> Reply {
    let capacity = metadata.raw().len() + ENVELOPE;
    Reply::json(200, Document::new(capacity, |json| write_sync(json, metadata)).line())
}

/// Returns an error answer; `status` is also its `error_code`.
pub(crate) fn error(status: u16, text: &str) -> Answer {
    Answer::Reply(error_reply(status, text))
}

/// Returns an error answer with the text of `why`.
#[inline(never)] // its size
pub(crate) fn error_by(status: u16, why: &dyn Display) -> Answer {
    error(status, &why.to_string())
}

pub(crate) fn error_reply(status: u16, text: &str) -> Reply {
    let capacity = text.len() + 128;
    Reply::json(status, Document::new(capacity, |json| write_error(json, status, text)).line())
}
