//! Verdicts of checks and the tables that show them, for the suites conformance, third-party
//! clients and real servers. Each verdict other than "yes" needs a listed reason, and each reason
//! needs such a verdict. Also two helpers of these suites: bytes that do not repeat, and QEMU's
//! monitor.

#![allow(missing_docs, reason = "code of tests: the name of an item says what it is")]

pub mod markdown;

use std::fmt::{Debug, Write as _};
use std::io::{self, BufRead, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde_json::{Value, json};

use serde::{Deserialize, Serialize};

/// The error is a message.
pub type Try<T = ()> = Result<T, String>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The check passed; the text is the observation.
    Holds(String),
    Differs(String),
    /// The feature is missing, or ends in an error.
    Fails(String),
    NotRun(String),
    /// The check ran, but its machine was lost each time.
    Unknown(String),
}

impl Verdict {
    /// Returns the verdict's word in its cell, unless a reason replaces it.
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
    /// The check's name, or the beginning of several names followed by `*`.
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

pub fn same<T: PartialEq<U> + Debug, U: Debug>(what: &str, seen: T, wanted: U) -> Try {
    if seen == wanted { Ok(()) } else { Err(format!("{what} is {seen:?}, not {wanted:?}")) }
}

pub fn has(text: &str, wanted: &str) -> Try {
    if text.contains(wanted) { Ok(()) } else { Err(format!("no {wanted:?} in {text:?}")) }
}

pub fn line_with(text: &str, wanted: &str) -> Try<String> {
    let line = text.lines().find(|line| line.contains(wanted));
    line.map(|line| line.trim().to_owned()).ok_or_else(|| format!("no {wanted:?} in {text:?}"))
}

/// Returns a fixed sequence of bytes with a long period.
pub fn noise(length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    Noise::default().fill(&mut bytes);
    bytes
}

/// Returns [`noise`] in pieces (xorshift). All but the last must be multiples of 8 bytes.
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

/// Sends a command over a new connection to QEMU's monitor. Returns the answer, which has the
/// member `return` or `error`.
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
            // Skip the greeting and events.
            if told.get("return").or(told.get("error")).is_some() {
                break told;
            }
        };
    }
    Ok(answer)
}

/// Verdicts side by side: cells with notes, sums by word, and verdicts without a reason.
#[derive(Debug)]
pub struct Table<'r> {
    reasons: &'r [Reason],
    pub notes: Notes,
    titles: Vec<&'static str>,
    words: Vec<Vec<&'static str>>,
    used: Vec<bool>,
    unexplained: Vec<String>,
}

impl<'r> Table<'r> {
    pub fn new(reasons: &'r [Reason], titles: &[&'static str]) -> Self {
        Self {
            reasons,
            notes: Notes::default(),
            titles: titles.to_vec(),
            words: vec![Vec::new(); titles.len()],
            used: vec![false; reasons.len()],
            unexplained: Vec::new(),
        }
    }

    pub fn meaning(reason: Option<&Reason>, verdict: &Verdict) -> (&'static str, Option<String>) {
        if let Some(reason) = reason.filter(|reason| reason.sometimes) {
            return ("sometimes", Some(reason.why.into()));
        }
        let note = match verdict {
            Verdict::Holds(_) => None,
            Verdict::NotRun(why) | Verdict::Unknown(why) => Some(sentence(why)),
            Verdict::Differs(seen) | Verdict::Fails(seen) => {
                let why = reason.map_or("**Not explained.**", |reason| reason.why);
                Some(format!("{} {why}", sentence(seen)))
            }
        };
        (verdict.word(), note)
    }

    pub fn explains(&self, column: usize, (group, name): (&str, &str)) -> bool {
        self.reasons.iter().any(|reason| reason.fits(group, name, self.titles[column]))
    }

    /// Returns a cell: a word and the number of its note. A check with `None` does not apply.
    pub fn cell(&mut self, column: usize, check: (&str, &str), seen: Option<&Verdict>) -> String {
        let Some(verdict) = seen else { return "-".into() };
        let ((group, name), title) = (check, self.titles[column]);
        let at = self.reasons.iter().position(|reason| reason.fits(group, name, title));
        match at {
            Some(at) => {
                self.used[at] |= !matches!(verdict, Verdict::Holds(_)) || self.reasons[at].sometimes
            }
            None if verdict.is_miss() => {
                let (word, text) = (verdict.word(), verdict.text());
                self.unexplained.push(format!("{title}: {group}: {name}: {word}: {text}"));
            }
            None => {}
        }
        let reasons = self.reasons;
        let (word, note) = Self::meaning(at.map(|at| &reasons[at]), verdict);
        self.words[column].push(word);
        note.map_or(word.into(), |note| format!("{word} {}", self.notes.number(note)))
    }

    pub fn head(&self, first: &str) -> String {
        let titles = first.split(" | ").chain(self.titles.iter().copied());
        markdown::table(&markdown::texts(titles), [])
    }

    pub fn row(&mut self, first: &[&str], check: (&str, &str), seen: &[Option<Verdict>]) -> String {
        let columns = seen.iter().enumerate();
        let cells = columns.map(|(column, seen)| self.cell(column, check, seen.as_ref()));
        markdown::row(first.iter().map(|&cell| cell.to_owned()).chain(cells))
    }

    /// Counts the cells of each column with these words.
    pub fn sums(&self, kinds: &[&str]) -> String {
        let head = markdown::texts([""].iter().chain(kinds).copied());
        let rows = self.titles.iter().zip(&self.words).map(|(title, words)| {
            let count = |kind: &&str| words.iter().filter(|word| *word == kind).count().to_string();
            [(*title).to_owned()].into_iter().chain(kinds.iter().map(count)).collect()
        });
        format!("\n{}", markdown::table(&head, rows))
    }

    /// Returns cells that lack a reason and, if the table is `whole`, reasons that fit no cell.
    pub fn unexplained(self, whole: bool) -> Vec<String> {
        let idle = self.reasons.iter().zip(self.used).filter(|(_, used)| whole && !used);
        let idle = idle.map(|(reason, _)| format!("a reason for what was not seen: {reason:?}"));
        self.unexplained.into_iter().chain(idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REASONS: &str = "\
files | a mode* | go | It is older.
~ * | an end | go; mote | It may be lost.
* | never seen | go | Why?
";

    #[test]
    fn every_verdict_except_yes_needs_a_reason() {
        let reasons = reasons(REASONS);
        let mut table = Table::new(&reasons, &["mote", "go"]);
        let (holds, differs) =
            (Verdict::Holds(String::new()), Verdict::Differs("it is a | b".into()));
        assert_eq!(table.cell(0, ("files", "a mode of 7"), Some(&holds)), "yes");
        assert_eq!(table.cell(1, ("files", "a mode of 7"), Some(&differs)), "differs 1");
        assert_eq!(table.cell(1, ("files", "an end"), Some(&holds)), "sometimes 2");
        assert_eq!(
            table.cell(0, ("files", "a mode of 8"), Some(&Verdict::Fails("gone".into()))),
            "no 3"
        );
        assert_eq!(table.cell(1, ("exec", "a mode of 7"), Some(&differs)), "differs 4");
        assert_eq!(
            table.cell(1, ("exec", "x"), Some(&Verdict::NotRun("no kvm".into()))),
            "not run 5"
        );
        assert_eq!(table.cell(1, ("exec", "x"), None), "-");
        let notes = "\n1. It is a \\| b. It is older.\n2. It may be lost.\n3. Gone. **Not explained.**\n4. It is a \\| b. **Not explained.**\n5. No kvm.\n";
        assert_eq!(table.notes.list(), notes);
        assert_eq!(
            table.head("case | source"),
            "| case | source | mote | go |\n| --- | --- | --- | --- |\n"
        );
        let sums = "\n| | yes | no |\n| --- | --- | --- |\n| mote | 1 | 1 |\n| go | 0 | 0 |\n";
        assert_eq!(table.sums(&["yes", "no"]), sums);
        let missing = table.unexplained(true);
        assert_eq!(
            missing[..2],
            ["mote: files: a mode of 8: no: gone", "go: exec: a mode of 7: differs: it is a | b"]
        );
        assert!(missing.len() == 3 && missing[2].contains("never seen"), "{missing:?}");
    }
}
