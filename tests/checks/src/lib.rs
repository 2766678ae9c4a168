//! Verdicts and their presentation, shared by conformance, third-party clients and real servers: a
//! check has a verdict, each verdict other than "yes" needs a reason, each reason needs such a
//! verdict, and a page shows them side by side with notes. Also what these suites share: bytes that
//! do not repeat, and QEMU's monitor.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

pub mod markdown;
mod table;

use std::fmt::{Debug, Write as _};
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use serde::{Deserialize, Serialize};
pub use table::Table;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check passed: the observation.
    Holds(String),
    Differs(String),
    /// The feature is missing, or ends in an error.
    Fails(String),
    NotRun(String),
    /// The check ran, but its machine was lost each time.
    Unknown(String),
}

impl Verdict {
    /// Returns the word of its cell, if no reason has another.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Holds(_) => "yes",
            Self::Differs(_) => "differs",
            Self::Fails(_) => "no",
            Self::NotRun(_) => "not run",
            Self::Unknown(_) => "not known",
        }
    }

    pub fn text(&self) -> &str {
        match self {
            Self::Holds(text)
            | Self::Differs(text)
            | Self::Fails(text)
            | Self::NotRun(text)
            | Self::Unknown(text) => text,
        }
    }

    pub fn is_miss(&self) -> bool {
        matches!(self, Self::Differs(_) | Self::Fails(_))
    }
}

#[derive(Clone, Debug, Default)]
pub struct Notes(Vec<String>);

impl Notes {
    /// Returns the number of a note, from 1.
    pub fn number(&mut self, note: String) -> usize {
        let known = self.0.iter().position(|known| *known == note);
        known.unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        }) + 1
    }

    pub fn list(&self) -> String {
        let mut text = "\n".to_owned();
        for (number, note) in (1..).zip(&self.0) {
            let _fits = writeln!(text, "{number}. {note}");
        }
        text
    }
}

pub fn line(text: &str) -> String {
    text.replace('\n', " ").replace('|', "\\|")
}

pub fn sentence(text: &str) -> String {
    let line = line(text);
    let mut letters = line.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

/// Names of groups, or of columns.
pub type Names = &'static [&'static str];

#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// Groups of the checks; all if empty.
    pub groups: Names,
    /// The check's name; with `*` at its end, what the names begin with.
    pub check: &'static str,
    /// Titles of the columns with this difference.
    pub columns: Names,
    /// Explanation; follows the observation in the note.
    pub why: &'static str,
    /// True if the check sometimes holds; then the note has no observation.
    pub sometimes: bool,
}

/// Parses reasons, one per line: `GROUPS | CHECK | COLUMNS | WHY`, after `~ ` if the difference
/// occurs sometimes. `; ` separates names, `*` means all groups. The names are leaked, because each
/// table is read once.
pub fn reasons(text: &'static str) -> Vec<Reason> {
    let names = |text: &'static str| -> Names {
        text.split("; ").filter(|name| *name != "*").collect::<Vec<_>>().leak()
    };
    let reason = |line: &'static str| {
        let rest = line.strip_prefix("~ ");
        let fields: Vec<_> = rest.unwrap_or(line).split(" | ").collect();
        let [groups, check, columns, why] = fields[..] else { panic!("not a reason: {line}") };
        let (groups, columns) = (names(groups), names(columns));
        Reason { groups, check, columns, why, sometimes: rest.is_some() }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(reason).collect()
}

impl Reason {
    pub fn fits(&self, group: &str, check: &str, column: &str) -> bool {
        let begin = self.check.strip_suffix('*');
        (self.groups.is_empty() || self.groups.contains(&group))
            && begin.map_or(check == self.check, |begin| check.starts_with(begin))
            && self.columns.contains(&column)
    }
}

pub fn find<'r>(
    reasons: &'r [Reason],
    group: &str,
    check: &str,
    column: &str,
) -> Option<&'r Reason> {
    reasons.iter().find(|reason| reason.fits(group, check, column))
}

pub fn same<T: PartialEq<U> + Debug, U: Debug>(
    what: &str,
    seen: T,
    wanted: U,
) -> Result<(), String> {
    if seen == wanted { Ok(()) } else { Err(format!("{what} is {seen:?}, not {wanted:?}")) }
}

pub fn has(text: &str, wanted: &str) -> Result<(), String> {
    if text.contains(wanted) { Ok(()) } else { Err(format!("no {wanted:?} in {text:?}")) }
}

pub fn line_with(text: &str, wanted: &str) -> Result<String, String> {
    let line = text.lines().find(|line| line.contains(wanted));
    line.map(|line| line.trim().to_owned()).ok_or_else(|| format!("no {wanted:?} in {text:?}"))
}

/// Returns a fixed sequence of bytes with a long period.
pub fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Noise::default().fill(&mut bytes);
    bytes
}

/// Returns the same piece by piece (xorshift). The length of each piece but the last is a multiple
/// of eight.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Default for Noise {
    fn default() -> Self {
        Self(0x2545_f491_4f6c_dd1d)
    }
}

impl Noise {
    pub fn fill(&mut self, out: &mut [u8]) {
        for eight in out.chunks_mut(8) {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            eight.copy_from_slice(&self.0.to_le_bytes()[..eight.len()]);
        }
    }
}

/// Sends a command on a new connection to this monitor. Returns its answer, which has the member
/// `return` or `error`.
pub fn qmp(monitor: &UnixStream, command: &str, arguments: &Value) -> io::Result<Value> {
    let mut lines = BufReader::new(monitor).lines();
    let mut answer = Value::Null;
    for order in [
        json!({"execute": "qmp_capabilities"}),
        json!({"execute": command, "arguments": arguments}),
    ] {
        let mut monitor = monitor;
        write!(monitor, "{order}")?;
        answer = loop {
            let line = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
            let told: Value = serde_json::from_str(&line)?;
            // Neither its greeting nor an event.
            if told.get("return").or(told.get("error")).is_some() {
                break told;
            }
        };
    }
    Ok(answer)
}
