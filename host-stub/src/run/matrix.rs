//! Several kernels: each is run by a process of its own, and has a line in the end. And the results as JUnit has them.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::RunArgs;
use super::child::{self, Kept};
use super::outcome::Outcome;
use super::world::Scratch;
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

/// Between looks at those that run.
const LOOK: Duration = Duration::from_millis(20);

/// Tells a process which of the kernels is its own, and where its result is to be.
const ONLY: &str = "MOTE_HOST_RUN_ONLY";
/// For those that are told to end.
const ENDING: Duration = Duration::from_secs(3);

/// One that runs.
struct Job {
    number: usize,
    process: Kept,
    begun: Instant,
}

/// The arguments of one kernel alone, if this process was started for one.
pub(super) fn only(args: &RunArgs) -> Option<RunArgs> {
    let said = std::env::var(ONLY).ok()?;
    let (number, result) = said.split_once(':')?;
    one_of(args, number.parse().ok()?, Path::new(result))
}

fn one_of(args: &RunArgs, number: usize, result: &Path) -> Option<RunArgs> {
    let mut one = args.clone();
    one.vm.kernel = vec![args.vm.kernel.get(number)?.clone()];
    one.vm.initrd = match args.vm.initrd.as_slice() {
        [] => Vec::new(),
        [all] => vec![all.clone()],
        each => vec![each.get(number)?.clone()],
    };
    one.result = Some(result.to_owned());
    one.junit = None;
    Some(one)
}

/// Runs all of them, `--jobs` at once; gives the worst code.
pub(super) fn run(args: &RunArgs) -> Result<u8> {
    if args.terminal
        || args.keep
        || args.shell_on_failure
        || args.console.is_some()
        || args.log.is_some()
    {
        bail!("-t, --keep, --shell-on-failure, --console and --log are for one kernel");
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let scratch = Scratch::new()?;
    let root = scratch.path();
    let (count, jobs) = (args.vm.kernel.len(), usize::try_from(args.jobs)?);
    let (mut running, mut next) = (Vec::<Job>::new(), 0);
    let mut done: Vec<(usize, Case, Value)> = Vec::new();
    while done.len() < count {
        if let Some(signal) = signals.pending().next() {
            // They clear up by themselves when they are told.
            running.iter_mut().for_each(|job| job.process.terminate());
            running.iter_mut().for_each(|job| {
                job.process.ends_within(ENDING);
            });
            return Ok(u8::try_from(128 + signal)?);
        }
        while running.len() < jobs && next < count {
            running.push(start(root, next)?);
            next += 1;
        }
        let at = running.iter_mut().position(|job| job.process.ended().is_some());
        match at.map(|at| running.swap_remove(at)) {
            Some(job) => done.push(finished(args, root, &job)?),
            None => std::thread::sleep(LOOK),
        }
    }
    done.sort_by_key(|(number, ..)| *number);
    let codes = done.iter().filter_map(|(.., result)| result["code"].as_u64());
    let worst = u8::try_from(codes.max().unwrap_or(0))?;
    if let Some(path) = &args.junit {
        let cases: Vec<Case> = done.iter().map(|(_, case, _)| case.clone()).collect();
        write_junit(path, &cases)?;
    }
    if let Some(path) = &args.result {
        let all: Value = done.into_iter().map(|(.., result)| result).collect();
        fs::write(path, format!("{all}\n")).with_context(|| path.display().to_string())?;
    }
    Ok(worst)
}

fn file(root: &Path, number: usize, what: &str) -> PathBuf {
    root.join(format!("{number}.{what}"))
}

fn start(root: &Path, number: usize) -> Result<Job> {
    let mut command = child::command(Path::new("/proc/self/exe"));
    command.args(std::env::args_os().skip(1)).stdin(Stdio::null());
    command.env(ONLY, format!("{number}:{}", file(root, number, "result").display()));
    command.stdout(File::create(file(root, number, "out"))?);
    command.stderr(File::create(file(root, number, "err"))?);
    Ok(Job { number, process: Kept::start(&mut command)?, begun: Instant::now() })
}

/// Says how one ended; what it printed too if it failed.
fn finished(args: &RunArgs, root: &Path, job: &Job) -> Result<(usize, Case, Value)> {
    let number = job.number;
    let text = fs::read(file(root, number, "result")).unwrap_or_default();
    let unknown = || json!({"outcome": "not-run", "code": 125, "cause": "its process was killed"});
    let result: Value = serde_json::from_slice(&text).unwrap_or_else(|_| unknown());
    let kernel = args.vm.kernel.get(number).map(|path| path.display().to_string());
    let kernel = kernel.unwrap_or_default();
    let took = job.begun.elapsed();
    let code = &result["code"];
    let failure = match (code == 0, result["cause"].as_str()) {
        (true, _) => None,
        (false, Some(cause)) => Some(cause.to_owned()),
        (false, None) => Some(format!("exit code {code}")),
    };
    let mark = if failure.is_none() { "ok    " } else { "FAILED" };
    let why = failure.as_ref().map_or(String::new(), |why| format!("  {}", printable::text(why)));
    writeln!(stdout(), "{mark} {:6.1} s  {}{why}", took.as_secs_f64(), printable::name(&kernel))?;
    if failure.is_some() {
        for what in ["out", "err"] {
            stderr().write_all(&fs::read(file(root, number, what)).unwrap_or_default())?;
        }
    }
    let name = format!("{kernel}: {}", args.command.join(" "));
    Ok((number, Case { name, failure, took }, result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junit_has_each_case_and_escapes_what_xml_has_no_letters_for() {
        let took = Duration::from_millis(1500);
        let case = |name: &str, failure: Option<&str>| Case {
            name: name.into(),
            failure: failure.map(str::to_owned),
            took,
        };
        let text = junit(&[case("k: sh -c \"a<b\"", None), case("l", Some("a\nb\x1b & c"))]);
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
        assert!(text.contains("name=\"k: sh -c &quot;a&lt;b&quot;\" time=\"1.500\"/>"), "{text}");
        assert!(text.contains("message=\"a&#10;b\u{fffd} &amp; c\"/>"), "{text}");
    }
}
