//! Results as JUnit XML.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};

use super::Outcome;
use mote_client::files::local_directory::report;

#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) failure: Option<String>,
    pub(crate) took: Duration,
    /// The end of stdout and stderr.
    pub(crate) output: [Vec<u8>; 2],
}

impl Case {
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

    fn shown(&self) -> TestCase {
        let mut status = TestCaseStatus::success();
        if let Some(why) = &self.failure {
            status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(why);
        }
        let mut case = TestCase::new(&self.name, status);
        case.set_classname("mote-host.run").set_time(self.took);
        let [out, err] = &self.output;
        if !out.is_empty() {
            case.set_system_out_lossy(out);
        }
        if !err.is_empty() {
            case.set_system_err_lossy(err);
        }
        case
    }
}

pub(crate) fn write(path: &Path, cases: &[Case]) -> Result<()> {
    let written = report(path)?.write_all(junit(cases)?.as_bytes());
    written.with_context(|| path.display().to_string())
}

fn junit(cases: &[Case]) -> Result<String> {
    let mut suite = TestSuite::new("mote-host run");
    suite.add_test_cases(cases.iter().map(Case::shown));
    let mut report = Report::unnamed();
    report.add_test_suite(suite);
    Ok(report.to_string()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_junit_cases_without_invalid_characters() {
        let took = Duration::from_millis(1500);
        let case = |name: &str, failure: Option<&str>, output: [&str; 2]| Case {
            name: name.into(),
            failure: failure.map(str::to_owned),
            took,
            output: output.map(|text| text.as_bytes().to_vec()),
        };
        let text = junit(&[
            case("k: sh -c \"a<b\"", None, ["", ""]),
            case("l", Some("b\x07 & c"), ["one\n]]>two\x07", "\x1b[31m& red\x1b[0m"]),
        ])
        .unwrap();
        for part in [
            "<testsuite name=\"mote-host run\" tests=\"2\" skipped=\"0\" errors=\"0\" failures=\"1\">",
            "<testcase name=\"k: sh -c &quot;a&lt;b&quot;\" classname=\"mote-host.run\" time=\"1.500\"/>",
            "<failure message=\"b &amp; c\"/>",
            "<system-out>one\n]]&gt;two</system-out>",
            "<system-err>&amp; red</system-err>",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains(['\x1b', '\x07']), "{text}");
    }
}
