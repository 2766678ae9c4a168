//! Several kernels: each runs in its own process and gets one line of the report.

use std::fs::{self, File};
use std::io::{Write, stderr, stdout};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::args::{Reports, RunArgs, VmArgs};
use super::child::{self, Kept};
use super::outcome::{Case, write, write_junit};
use super::running_vm::Scratch;
use mote_client::common::whole_file::end_of;
use mote_client::exec::output::TAIL;
use mote_client::printable;

/// Interval between checks of the processes.
const LOOK: Duration = Duration::from_millis(20);

/// The variable that names a process' kernel and the file for its result.
const ONLY: &str = "MOTE_HOST_RUN_ONLY";
/// Limit for processes to end after SIGTERM.
const ENDING: Duration = Duration::from_secs(3);

struct Job {
    number: usize,
    process: Kept,
    begun: Instant,
}

/// If this process was started for one kernel, limits the arguments to it and returns true. A
/// process with an invalid variable must fail, otherwise it would start all processes again.
pub(super) fn is_one(vm: &mut VmArgs, reports: &mut Reports) -> Result<bool> {
    let Some(said) = std::env::var_os(ONLY) else { return Ok(false) };
    let one = said.to_str().and_then(|said| {
        let (number, result) = said.split_once(':')?;
        reports.result = Some(result.into());
        reports.junit = None;
        select(vm, number.parse().ok()?)
    });
    one.map(|()| true).with_context(|| {
        format!("{ONLY}, which only mote-host sets, is invalid: {}", printable::name(&said))
    })
}

fn select(vm: &mut VmArgs, number: usize) -> Option<()> {
    vm.kernel = vec![vm.kernel.get(number)?.clone()];
    if vm.initrd.len() > 1 {
        vm.initrd = vec![vm.initrd.get(number)?.clone()];
    }
    Some(())
}

/// Runs a process for each kernel, `--jobs` at the same time. Returns the highest exit code.
pub(super) fn run(args: &RunArgs) -> Result<u8> {
    let RunArgs { vm, job, reports, .. } = args;
    let is_for_one = job.terminal || job.keep || job.shell_on_failure;
    if is_for_one || reports.console.is_some() || reports.log.is_some() {
        bail!("-t, --keep, --shell-on-failure, --console and --log support only one kernel");
    }
    let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
    let scratch = Scratch::new()?;
    let root = scratch.path();
    let (count, jobs) = (vm.kernel.len(), usize::try_from(args.jobs)?);
    let (mut running, mut next) = (Vec::<Job>::new(), 0);
    let mut done: Vec<(usize, Case, Value)> = Vec::new();
    while done.len() < count {
        if let Some(signal) = signals.pending().next() {
            // The processes clean up after SIGTERM.
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
            Some(one) => {
                let kernel = vm.kernel.get(one.number).map(|path| path.display().to_string());
                done.push(finished(&kernel.unwrap_or_default(), &job.command, root, &one)?);
            }
            None => std::thread::sleep(LOOK),
        }
    }
    done.sort_by_key(|(number, ..)| *number);
    let codes = done.iter().filter_map(|(.., result)| result["code"].as_u64());
    let worst = u8::try_from(codes.max().unwrap_or(0))?;
    if let Some(path) = &reports.junit {
        let cases: Vec<Case> = done.iter().map(|(_, case, _)| case.clone()).collect();
        write_junit(path, &cases)?;
    }
    if let Some(path) = &reports.result {
        let all: Value = done.into_iter().map(|(.., result)| result).collect();
        write(path, &format!("{all}\n"))?;
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

fn finished(
    kernel: &str,
    command: &[String],
    root: &Path,
    job: &Job,
) -> Result<(usize, Case, Value)> {
    let number = job.number;
    let text = fs::read(file(root, number, "result")).unwrap_or_default();
    let unknown = || json!({"outcome": "not-run", "code": 125, "cause": "its process was killed"});
    let result: Value = serde_json::from_slice(&text).unwrap_or_else(|_| unknown());
    let name = format!("{kernel}: {}", command.join(" "));
    let end = |what| File::open(file(root, number, what)).and_then(|file| end_of(&file, TAIL));
    let output = ["out", "err"].map(|what| end(what).unwrap_or_default());
    let case = Case::of(name, &result, job.begun.elapsed(), output);
    let (failure, seconds) = (&case.failure, case.took.as_secs_f64());
    let mark = if failure.is_none() { "ok    " } else { "FAILED" };
    let why = failure.as_ref().map_or(String::new(), |why| format!("  {}", printable::text(why)));
    writeln!(stdout(), "{mark} {seconds:6.1} s  {}{why}", printable::name(kernel))?;
    if failure.is_some() {
        for what in ["out", "err"] {
            // The guest may have written any amount of output.
            if let Ok(mut said) = File::open(file(root, number, what)) {
                std::io::copy(&mut said, &mut stderr())?;
            }
        }
    }
    Ok((number, case, result))
}
