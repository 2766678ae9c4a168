//! Results as JUnit has them.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use super::Outcome;
use mote_client::files::local_directory::report;
use mote_vm::console::without_colours;

/// A result.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    /// Why it is no success.
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
    /// The end of what was written to stdout and stderr.
    pub(crate) output: [Vec<u8>; 2],
}

impl Case {
    /// Of a run.
    pub(crate) fn of(
        name: String,
        outcome: &Outcome,
        took: Duration,
        output: [Vec<u8>; 2],
    ) -> Self {
        let failure = match (outcome, outcome.cause()) {
            (Outcome::Exited(0), _) => None,
            (_, Some(cause)) => Some(cause),
            _ => Some(format!("exit code {}", outcome.code())),
        };
        Self { name, failure, took, output }
    }

    fn write(&self, text: &mut String) {
        let (name, time) = (attribute(&self.name), self.took.as_secs_f64());
        let _never = writeln!(
            text,
            "  <testcase classname=\"mote-host.run\" name=\"{name}\" time=\"{time:.3}\">"
        );
        if let Some(why) = &self.failure {
            let _never = writeln!(text, "    <failure message=\"{}\"/>", attribute(why));
        }
        for (element, bytes) in ["system-out", "system-err"].iter().zip(&self.output) {
            if !bytes.is_empty() {
                let said = content(&without_colours(&String::from_utf8_lossy(bytes)));
                let _never = writeln!(text, "    <{element}>{said}</{element}>");
            }
        }
        *text += "  </testcase>\n";
    }
}

/// Writes a file of them.
pub(crate) fn write(path: &Path, cases: &[Case]) -> Result<()> {
    let written = report(path)?.write_all(junit(cases).as_bytes());
    written.with_context(|| path.display().to_string())
}

fn junit(cases: &[Case]) -> String {
    let failures = cases.iter().filter(|case| case.failure.is_some()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"mote-host run\" tests=\"{}\" \
         failures=\"{failures}\">\n",
        cases.len()
    );
    cases.iter().for_each(|case| case.write(&mut text));
    text + "</testsuite>\n"
}

fn attribute(text: &str) -> String {
    content(text).replace('"', "&quot;").replace('\n', "&#10;").replace('\t', "&#9;")
}

fn content(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '&' => shown += "&amp;",
            '\n' | '\t' => shown.push(letter),
            '\r' => {}
            // XML has no others.
            '\u{fffe}' | '\u{ffff}' => shown.push('\u{fffd}'),
            letter if letter.is_control() => shown.push('\u{fffd}'),
            letter => shown.push(letter),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_has_each_case_and_escapes_what_xml_has_no_letters_for() {
        let took = Duration::from_millis(1500);
        let case = |name: &str, failure: Option<&str>, output: [&str; 2]| Case {
            name: name.into(),
            failure: failure.map(str::to_owned),
            took,
            output: output.map(|text| text.as_bytes().to_vec()),
        };
        let text = junit(&[
            case("k: sh -c \"a<b\"", None, ["", ""]),
            case("l", Some("a\nb\x1b & c"), ["one\r\n]]>two\x07", "\x1b[31m& red\x1b[0m"]),
        ]);
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
        let first = "<testcase classname=\"mote-host.run\" name=\"k: sh -c &quot;a&lt;b&quot;\" time=\"1.500\">\n  \
                     </testcase>";
        assert!(text.contains(first), "{text}");
        assert!(text.contains("message=\"a&#10;b\u{fffd} &amp; c\"/>"), "{text}");
        assert!(text.contains("<system-out>one\n]]&gt;two\u{fffd}</system-out>"), "{text}");
        assert!(text.contains("<system-err>&amp; red</system-err>"), "{text}");
    }
}
