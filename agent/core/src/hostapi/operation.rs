//! Operations as the host sees them: their IDs, states and JSON. Source: P§4.2.

use core::fmt::{Result, Write};

use crate::flavour::Flavour;
use crate::hostapi::info::begin_envelope;
use crate::json::{Value, Writer};
use crate::time::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Running,
    Cancelling,
    /// The command has ended, with any exit status.
    Success,
    Failure,
}

impl State {
    /// Returns the name and status code in the API.
    pub fn name(self) -> (&'static str, u16) {
        match self {
            Self::Running => ("Running", 103),
            Self::Cancelling => ("Cancelling", 104),
            Self::Success => ("Success", 200),
            Self::Failure => ("Failure", 400),
        }
    }

    pub fn is_final(self) -> bool {
        self.name().1 >= 200
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    pub id: &'a str,
    /// Time of its start: seconds and nanoseconds since 1970.
    pub created: (u64, u32),
    /// Time of its last change: seconds and nanoseconds since 1970.
    pub updated: (u64, u32),
    pub state: State,
    /// The command and the secrets of its sockets, or the exit status.
    pub metadata: Value<'a>,
    /// Reason for a failure; empty if none.
    pub error: &'a str,
}

/// Writes an operation. Servers ignore unknown fields, so the flavours differ only in `resources`,
/// `may_cancel`, `err_code` and `child_count`.
pub fn write(json: &mut Writer<'_>, flavour: Flavour, operation: &Operation<'_>) {
    let (status, code) = operation.state.name();
    json.begin_object();
    json.pair("id", operation.id);
    json.pair("class", "websocket");
    json.pair("description", "Executing command");
    for (name, time) in [("created_at", operation.created), ("updated_at", operation.updated)] {
        json.key(name);
        json.time(Timestamp(time.0, time.1));
    }
    json.pair("status", status);
    json.count("status_code", code.into());
    json.key("resources");
    json.value(if flavour == Flavour::Incus { Value::EMPTY } else { Value::NULL });
    json.key("metadata");
    json.value(operation.metadata);
    json.flag("may_cancel", flavour == Flavour::Lxd);
    json.pair("err", operation.error);
    if flavour == Flavour::Lxd {
        let code = if operation.state == State::Failure { FAILED } else { 0 };
        json.numbers(&[("err_code", code.into()), ("child_count", 0)]);
    }
    json.pair("location", "");
    json.end_object();
}

/// HTTP status and `err_code` of an operation that failed.
pub const FAILED: u16 = 500;

/// Writes an async reply (202) around an operation (P§4) with the path `path`.
pub fn write_async(json: &mut Writer<'_>, flavour: Flavour, path: &str, operation: &Operation<'_>) {
    begin_envelope(json, "async", ("Operation created", 100), path, (0, ""));
    write(json, flavour, operation);
    json.end_object();
}

/// Writes the metadata of an operation that has ended: the command's exit status.
pub fn write_return(json: &mut Writer<'_>, code: i32) {
    json.begin_object();
    json.key("return");
    json.signed(code.into());
    json.end_object();
}

/// Writes a UUID (RFC 9562) from random bytes: version 4, or for LXD version 7, which starts with
/// the time. Errors: any error of `out`.
pub fn write_id(
    out: &mut impl Write,
    flavour: Flavour,
    now: (u64, u32),
    mut bytes: [u8; 16],
) -> Result {
    let mut version = 4;
    if flavour == Flavour::Lxd {
        version = 7;
        let millis = now.0.wrapping_mul(1000).wrapping_add(u64::from(now.1 / 1_000_000));
        for (target, byte) in bytes.iter_mut().zip(millis.to_be_bytes().into_iter().skip(2)) {
            *target = byte;
        }
    }
    bytes[6] = bytes[6] & 0x0f | version << 4;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    for (index, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&index) {
            out.write_char('-')?;
        }
        write!(out, "{byte:02x}")?;
    }
    Ok(())
}

/// Returns whether two secrets are equal, in constant time.
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    let mut differences = u8::from(one.len() != other.len());
    for (a, b) in one.iter().zip(other) {
        // Prevents the compiler from ending the loop at the first difference.
        differences = core::hint::black_box(differences | (a ^ b));
    }
    differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fuzz target `operation` reads the other members.
    #[test]
    fn only_lxd_has_an_error_code_and_may_cancel() {
        let (created, updated, state) = ((0, 5), (1, 0), State::Failure);
        let (id, metadata, error) = ("x", Value::NULL, "y");
        for (flavour, code) in [(Flavour::Lxd, Some(500)), (Flavour::Incus, None)] {
            let mut out = String::new();
            let one = Operation { id, created, updated, state, metadata, error };
            write(&mut Writer::new(&mut out), flavour, &one);
            let read: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!(read["err_code"].as_u64(), code);
            assert_eq!(read["may_cancel"], flavour == Flavour::Lxd);
        }
    }

    #[test]
    fn a_secret_is_not_its_beginning() {
        for (other, is_same) in [("abc", true), ("ab", false), ("abcd", false), ("abd", false)] {
            assert_eq!(same_secret(b"abc", other.as_bytes()), is_same, "{other}");
        }
    }
}
