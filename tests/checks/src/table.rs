//! Verdicts side by side: cells with notes, sums by word, and verdicts without a reason.

use crate::{Notes, Reason, Verdict, markdown, sentence};

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

    /// Returns a cell: its word, and the number of its note. `seen` is `None` if the check does not
    /// apply.
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

    /// Returns cells without a reason and, if the table is `whole`, reasons without a cell.
    pub fn unexplained(self, whole: bool) -> Vec<String> {
        let idle = self.reasons.iter().zip(self.used).filter(|(_, used)| whole && !used);
        let idle = idle.map(|(reason, _)| format!("a reason for what was not seen: {reason:?}"));
        self.unexplained.into_iter().chain(idle).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reasons;

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
