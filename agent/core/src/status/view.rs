//! The agent's status file in `/run/mote`, which `mote-agent status` and the next agent read.

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use serde::Serialize;

use crate::json::Value;
use crate::report::proc::number;

pub type Text<'a> = Cow<'a, str>;

/// The status file. A member that is `null` is unknown or absent.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "they are the file's members")]
pub struct View<'a> {
    /// Whether an agent runs; always true in the file.
    pub running: bool,
    pub version: Option<Text<'a>>,
    pub pid: Option<u64>,
    /// Where the host's files were found.
    pub files: Option<Text<'a>>,
    /// The kind of server that this agent works for: `incus`, `lxd` or `lxd-old`.
    pub flavour: Option<Text<'a>>,
    pub port: Option<Text<'a>>,
    /// `STARTED`, `CONNECTED` or `STOPPED`, or what the agent waits for before its start.
    pub state: Option<Text<'a>>,
    /// When that state began: milliseconds since the machine's start.
    pub since_uptime_ms: Option<u64>,
    /// The host's address, `cid:port`.
    pub host: Option<Text<'a>>,
    pub devlxd: Option<Text<'a>>,
    pub ready: Option<Text<'a>>,
    pub policy: Option<Text<'a>>,
    /// The error that matters most.
    pub last_error: Option<Text<'a>>,
    /// A remark about the program's file.
    pub program: Option<Text<'a>>,
    pub called: bool,
    /// Whether the error prevents the host from using the agent.
    pub blocked: bool,
}

/// Prefix of an agent's state while it waits for something before its start.
pub const WAITING: &str = "waiting for ";

impl View<'_> {
    /// Returns whether the policy denies the capability with this name as a whole.
    #[inline(never)] // its size
    pub fn denies(&self, capability: &str) -> bool {
        let policy = self.policy.as_deref().and_then(|text| text.strip_prefix("denied: "));
        let denied = policy.and_then(|text| text.split(';').next()).unwrap_or_default();
        denied.split(' ').any(|name| name == capability)
    }

    /// Reads a status file; `None` if it is invalid or incomplete.
    #[inline(never)] // its size
    pub fn read(file: &[u8]) -> Option<View<'static>> {
        let file = Value::parse(file).ok()?;
        let text = |key| Some(Cow::Owned(file.member(key)?.string().ok()?));
        let is = |key| file.member(key).is_some_and(|member| member.raw() == "true");
        let number = |key| number(file.member(key)?.raw().as_bytes());
        is("running").then(|| View {
            running: true,
            version: text("version"),
            pid: number("pid"),
            files: text("files"),
            flavour: text("flavour"),
            port: text("port"),
            state: text("state"),
            since_uptime_ms: number("since_uptime_ms"),
            host: text("host"),
            devlxd: text("devlxd"),
            ready: text("ready"),
            policy: text("policy"),
            last_error: text("last_error"),
            program: text("program"),
            called: is("called"),
            blocked: is("blocked"),
        })
    }

    pub fn write(&self) -> String {
        let mut out: Vec<u8> = vec![0; 512];
        loop {
            // This fails only if the buffer is full.
            if let Ok(length) = serde_json_core::to_slice(self, &mut out) {
                out.truncate(length);
                out.push(b'\n');
                return String::from_utf8(out).unwrap_or_default();
            }
            out.resize(out.len() * 2, 0);
        }
    }

    /// Returns whether the agent waits for something before its start.
    pub fn is_waiting(&self) -> bool {
        self.state.as_deref().is_some_and(|state| state.starts_with(WAITING))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_a_truncated_or_foreign_file() {
        let view = View { running: true, state: Some("STARTED".into()), ..View::default() };
        let file = view.write();
        assert_eq!(View::read(file.as_bytes()), Some(view));
        for cut in 0..file.len() - 1 {
            assert_eq!(View::read(&file.as_bytes()[..cut]), None, "{cut}");
        }
        for other in ["[]", "{}", "7", "{\"running\":1}", "{\"running\":false}"] {
            assert_eq!(View::read(other.as_bytes()), None, "{other}");
        }
    }
}
