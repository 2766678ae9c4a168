//! Runs work that may hang or take long (other file systems, mounts, `/proc` of a large guest) in a
//! worker process: this binary with a subcommand.

use std::ffi::{CStr, CString};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use crate::runtime::{Async, Child, Ended, io_error, log, within};
use mote_core::hostapi::exec::Program;

use crate::agent::Agent;
use crate::sys::fd::{self, AsFd, BorrowedFd, OwnedFd};
use crate::sys::{Plan, SELF, is_found, variable};
use crate::system::devices::NO_PROC;
use crate::transport::Socket;

/// Time limit for a report: the host waits 3 s (P§3.2).
const REPORT: Duration = Duration::from_millis(2500);
/// Time limit for a worker to exit after it has closed its output.
const LINGER: Duration = Duration::from_millis(300);

/// Minimum free space in the buffer for a read of a worker's output, in bytes.
const READ_ROOM: usize = 4096;

/// Marks a worker as started by the agent; see `Options::check_starter`.
pub(crate) const AS_AGENT: &CStr = c"MOTE_STARTED_BY=agent";

/// Kills the worker when its result is no longer wanted.
struct KillOnDrop(Rc<Child>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Returns the output of `mote-agent report WHAT`, at most `most` bytes.
pub(crate) async fn report(agent: &Agent, what: &str, most: usize) -> io::Result<Vec<u8>> {
    run(agent, &["report", what], &[], most, REPORT).await
}

/// Runs `mote-agent ARGUMENTS` with `input` on its standard input; returns its output. Kills a
/// worker that prints more than `most` bytes or runs longer than `limit`.
/// Errors: `TimedOut`; `FileTooLarge` for input longer than a pipe's capacity or too much output; a
/// failed worker's output, or its exit code if it printed nothing; any error from
/// starting it.
pub(crate) async fn run(
    agent: &Agent,
    arguments: &[&str],
    input: &[u8],
    most: usize,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let (input_end, fill) = fd::pipe()?;
    fd::unblock(&fill)?;
    if fd::write(&fill, input)? != input.len() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    drop(fill);
    let (output, output_end) = fd::pipe()?;
    let child = KillOnDrop(start(agent, arguments, input_end.as_fd(), output_end.as_fd())?);
    drop((input_end, output_end));
    let work = async {
        child.0.started().await?;
        let printed = read_all(output, most).await?;
        let Some(ended) = within(LINGER, child.0.ended()).await else {
            // The output is complete, but a thread that hangs in the kernel keeps the process
            // alive.
            return if printed.ends_with(b"\n") {
                Ok(printed)
            } else {
                Err(io::ErrorKind::TimedOut.into())
            };
        };
        match ended {
            Ended::Code(0) => Ok(printed),
            Ended::Code(code) => {
                let text = String::from_utf8_lossy(&printed);
                let text = text.trim_ascii_end();
                Err(io_error(match text {
                    "" => format!("exit code {code}"),
                    text => text.to_owned(),
                }))
            }
            Ended::Signal(signal) => Err(io_error(format!("killed by signal {signal}"))),
        }
    };
    within(limit, work).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Starts `mote-agent ARGUMENTS` with one end of a socket pair as its input and output, and returns
/// the other end. The worker exits when that is closed.
pub(crate) fn connected(agent: &Agent, arguments: &[&str]) -> io::Result<(Rc<Child>, Socket)> {
    let (ours, theirs) = fd::pair()?;
    let child = start(agent, arguments, theirs.as_fd(), theirs.as_fd())?;
    Ok((child, Async::new(ours)?))
}

/// Checks that workers can be started. Errors: the reason why not.
pub(crate) fn possible() -> Result<(), &'static str> {
    if is_found() { Ok(()) } else { Err(NO_PROC) }
}

/// Errors: any error of starting it.
pub(crate) fn start(
    agent: &Agent,
    arguments: &[&str],
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> io::Result<Rc<Child>> {
    possible().map_err(io_error)?;
    let mut words = vec![c"mote-agent".to_owned(), c"--flavour".to_owned()];
    let root = agent.options.root.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let ours = [agent.flavour.name(), "--root", root];
    let debug = log::is_debug().then_some("--debug");
    for word in ours.iter().chain(&debug).chain(arguments) {
        words.push(CString::new(*word).map_err(|_| io::ErrorKind::InvalidInput)?);
    }
    // [`AS_AGENT`] lets the worker start; `JOURNAL_STREAM` gives its log lines the agent's format.
    let journal = variable(c"JOURNAL_STREAM")
        .and_then(|id| CString::new([b"JOURNAL_STREAM=", id.as_encoded_bytes()].concat()).ok());
    let mut environment = vec![AS_AGENT];
    environment.extend(journal.as_deref());
    let stderr = io::stderr();
    let words: Vec<&CStr> = words.iter().map(CString::as_c_str).collect();
    let plan = Plan {
        program: Program { name: SELF, path: "" },
        arguments: &words,
        environment: &environment,
        stdio: [input, output, stderr.as_fd()],
        directory: None,
        ids: None,
        terminal: false,
    };
    agent.children.start(&plan)
}

async fn read_all(from: OwnedFd, most: usize) -> io::Result<Vec<u8>> {
    let from = Async::new(from)?;
    let mut all = Vec::new();
    loop {
        all.reserve(READ_ROOM);
        let count = from.read_with(|pipe| Ok(fd::append(pipe, &mut all)?)).await?;
        if count == 0 {
            return Ok(all);
        }
        if all.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}
