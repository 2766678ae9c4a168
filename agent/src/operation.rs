//! Operations as the host sees them: their ids, states and JSON. Source: P§4.2.

use core::fmt::{Result, Write};

use crate::flavour::Flavour;
use crate::json::quote;
use crate::wall::write_rfc3339;

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running,
    /// Somebody wants it ended.
    Cancelling,
    /// It is done.
    Success,
    /// It is over, and was not done.
    Failure,
}

impl State {
    /// The word and the number for it.
    #[must_use]
    pub fn name(self) -> (&'static str, u16) {
        match self {
            Self::Running => ("Running", 103),
            Self::Cancelling => ("Cancelling", 104),
            Self::Success => ("Success", 200),
            Self::Failure => ("Failure", 400),
        }
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_final(self) -> bool {
        self.name().1 >= 200
    }
}

/// An operation, whole, as JSON needs it.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Its id.
    pub id: &'a str,
    /// Since 1970: seconds, nanoseconds.
    pub created: (u64, u32),
    /// When it last changed.
    pub updated: (u64, u32),
    /// Where it is.
    pub state: State,
    /// JSON.
    pub metadata: &'a str,
    /// Why it failed; empty if it did not.
    pub error: &'a str,
}

/// Writes an operation. Servers read what they know and skip the rest, so the flavours differ only
/// in what the originals say of cancelling.
///
/// # Errors
/// Only those of `out`.
pub fn write(out: &mut impl Write, flavour: Flavour, operation: &Operation<'_>) -> Result {
    let (status, code) = operation.state.name();
    write!(
        out,
        "{{\"id\":\"{}\",\"class\":\"websocket\",\"description\":\"Executing command\",\
         \"created_at\":\"",
        operation.id
    )?;
    write_rfc3339(out, operation.created.0, operation.created.1)?;
    out.write_str("\",\"updated_at\":\"")?;
    write_rfc3339(out, operation.updated.0, operation.updated.1)?;
    write!(
        out,
        "\",\"status\":\"{status}\",\"status_code\":{code},\"resources\":{},\"metadata\":{},\
         \"may_cancel\":{},\"err\":",
        if flavour == Flavour::Incus { "{}" } else { "null" },
        operation.metadata,
        flavour == Flavour::Lxd,
    )?;
    quote(out, operation.error)?;
    if flavour == Flavour::Lxd {
        let code = if operation.state == State::Failure { FAILED } else { 0 };
        write!(out, ",\"err_code\":{code},\"child_count\":0")?;
    }
    out.write_str(",\"location\":\"\"}")
}

/// The HTTP status for an operation that failed.
pub const FAILED: u16 = 500;

/// Writes an async reply (202) around an operation (P§4).
///
/// # Errors
/// Only those of `out`.
pub fn write_async(out: &mut impl Write, flavour: Flavour, operation: &Operation<'_>) -> Result {
    write!(
        out,
        "{{\"type\":\"async\",\"status\":\"Operation created\",\"status_code\":100,\
         \"operation\":\"/1.0/operations/{}\",\"error_code\":0,\"error\":\"\",\"metadata\":",
        operation.id
    )?;
    write(out, flavour, operation)?;
    out.write_str("}\n")
}

/// Writes an id made of random bytes: a UUID (RFC 9562) of version 4, or for LXD of version 7, which
/// begins with the time.
///
/// # Errors
/// Only those of `out`.
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
        for (place, byte) in bytes.iter_mut().zip(millis.to_be_bytes().into_iter().skip(2)) {
            *place = byte;
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

/// Whether two secrets are the same, in a time that does not depend on where they differ.
#[must_use]
pub fn same_secret(one: &[u8], other: &[u8]) -> bool {
    let mut differences = u8::from(one.len() != other.len());
    for (a, b) in one.iter().zip(other) {
        // The compiler must not learn that one difference is enough.
        differences = core::hint::black_box(differences | (a ^ b));
    }
    differences == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    const RUNNING: Operation<'_> = Operation {
        id: "x",
        created: (0, 5),
        updated: (1, 0),
        state: State::Running,
        metadata: "{\"return\":3}",
        error: "",
    };

    fn json(flavour: Flavour, operation: &Operation<'_>) -> serde_json::Value {
        let mut out = String::new();
        write(&mut out, flavour, operation).unwrap();
        serde_json::from_str(&out).unwrap()
    }

    #[test]
    fn an_operation_has_the_fields_servers_read() {
        let running = json(Flavour::Incus, &RUNNING);
        assert_eq!(running["status_code"], 103);
        assert_eq!(running["metadata"]["return"], 3);
        assert_eq!(running["created_at"], "1970-01-01T00:00:00.000000005Z");
        assert_eq!(running["may_cancel"], false);
        assert!(running.get("err_code").is_none());
        let failed = Operation { state: State::Failure, error: "a \"b\"", ..RUNNING };
        let failed = json(Flavour::Lxd, &failed);
        assert_eq!((&failed["status"], &failed["err"]), (&"Failure".into(), &"a \"b\"".into()));
        assert_eq!(failed["err_code"], 500);
    }

    #[test]
    fn ids_are_uuids_of_the_flavours_version() {
        let id = |flavour| {
            let mut out = String::new();
            write_id(&mut out, flavour, (1, 2_000_000), [0xff; 16]).unwrap();
            out
        };
        assert_eq!(id(Flavour::Incus), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        assert_eq!(id(Flavour::Lxd), "00000000-03ea-7fff-bfff-ffffffffffff");
    }

    #[test]
    fn only_the_same_secret_is_the_same() {
        assert!(same_secret(b"abc", b"abc"));
        assert!(!same_secret(b"abc", b"abd"));
        assert!(!same_secret(b"abc", b"ab"));
        assert!(!same_secret(b"", b"a"));
    }
}
