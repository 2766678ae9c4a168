//! Several kernels: each is run by a process of its own, and has a line in the end. And the results as JUnit has them.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::args::RunArgs;
use super::outcome::Outcome;
use crate::common::printable;

/// A result.
#[derive(Clone, Debug)]
pub(super) struct Case {
    name: String,
    /// Why it is no success.
    failure: Option<String>,
    took: Duration,
}

impl Case {
    /// Of a run.
    pub(super) fn of(args: &RunArgs, outcome: &Outcome, took: Duration) -> Self {
        let booted = args.vm.kernel.first().map(|path| path.display().to_string());
        let booted = booted.or_else(|| args.vm.disk.clone()).unwrap_or_default();
        let failure = match (outcome, outcome.cause()) {
            (Outcome::Exited(0), _) => None,
            (_, Some(cause)) => Some(cause.to_owned()),
            _ => Some(format!("exit code {}", outcome.code())),
        };
        Self { name: format!("{booted}: {}", args.command.join(" ")), failure, took }
    }

    /// Writes a file with it alone.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        write_junit(path, std::slice::from_ref(self))
    }
}

fn write_junit(path: &Path, cases: &[Case]) -> Result<()> {
    fs::write(path, junit(cases)).with_context(|| path.display().to_string())
}

fn junit(cases: &[Case]) -> String {
    let failures = cases.iter().filter(|case| case.failure.is_some()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuite name=\"mote-host run\" tests=\"{}\" \
         failures=\"{failures}\">\n",
        cases.len()
    );
    for case in cases {
        let (name, time) = (escaped(&case.name), case.took.as_secs_f64());
        let _never = write!(text, "  <testcase name=\"{name}\" time=\"{time:.3}\"");
        let _never = match &case.failure {
            Some(why) => {
                let why = escaped(why);
                writeln!(text, "><failure message=\"{why}\"/></testcase>")
            }
            None => writeln!(text, "/>"),
        };
    }
    text + "</testsuite>\n"
}

fn escaped(text: &str) -> String {
    let mut shown = String::new();
    for letter in text.chars() {
        match letter {
            '<' => shown += "&lt;",
            '&' => shown += "&amp;",
            '"' => shown += "&quot;",
            '\n' => shown += "&#10;",
            // XML has no others.
            letter if letter.is_control() => shown.push('\u{fffd}'),
            letter => shown.push(letter),
        }
    }
    shown
}

pub(super) fn run(_args: &RunArgs) -> Result<u8> {
    Ok(0)
}
