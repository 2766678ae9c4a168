//! Work that may hang or take long (foreign file systems, mounts, `/proc` of a large guest) in a
//! process of its own: this binary again, with one of its subcommands. What hangs there stops
//! nobody else, and its memory is gone when it is done.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::agent::Agent;
use crate::children::{Child, Ended};
use crate::clock::within;
use crate::log;
use crate::reactor::Async;
use crate::socket::Socket;
use crate::sys::Plan;

/// This program, also if its file was replaced or removed meanwhile.
const SELF: &std::ffi::CStr = c"/proc/self/exe";

/// How long a report may take: the host waits for 3 s (P§3.2).
const REPORT: Duration = Duration::from_millis(2500);
/// How long a worker may take to end when it has closed its output.
const LINGER: Duration = Duration::from_millis(300);

/// Room that is made for a piece of what a worker says, bytes.
const PIECE: usize = 4096;

/// Kills the worker when dropped: nobody waits for its work any more.
struct Leash(Rc<Child>);

impl Drop for Leash {
    fn drop(&mut self) {
        self.0.kill();
    }
}

/// Has a report made, of at most `most` bytes (`mote-agent report WHAT`).
///
/// # Errors
/// As [`run`].
pub(crate) async fn report(agent: &Agent, what: &str, most: usize) -> io::Result<Vec<u8>> {
    run(agent, &["report", what], &[], most, REPORT).await
}

/// Runs `mote-agent ARGUMENTS`, gives it `input` to read, and takes what it prints, at most `most`
/// bytes of it. A worker that says more or takes longer is killed.
///
/// # Errors
/// `TimedOut`, or an exit code other than 0 (with what it printed), or the system's.
pub(crate) async fn run(
    agent: &Agent,
    arguments: &[&str],
    input: &[u8],
    most: usize,
    limit: Duration,
) -> io::Result<Vec<u8>> {
    // What fits into a pipe needs nobody to write it.
    let (input_end, fill) = pipe_with(PipeFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&fill, true)?;
    if rustix::io::write(&fill, input)? != input.len() {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    drop(fill);
    let (output, output_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = Leash(start(agent, arguments, input_end.as_fd(), output_end.as_fd())?);
    drop((input_end, output_end));
    let work = async {
        child.0.started().await?;
        let printed = read_all(output, most).await?;
        let Some(ended) = within(LINGER, child.0.ended()).await else {
            // It has said all, but one of its threads never came back from the kernel.
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
                let text = text.trim_end();
                Err(io::Error::other(format!("exit code {code}: {text}")))
            }
            Ended::Signal(signal) => Err(io::Error::other(format!("killed by signal {signal}"))),
        }
    };
    within(limit, work).await.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

/// Starts `mote-agent ARGUMENTS` with one end of a socket as its input and output; gives the other.
/// It ends when it reads the socket's end.
///
/// # Errors
/// The system's.
pub(crate) fn connected(agent: &Agent, arguments: &[&str]) -> io::Result<(Rc<Child>, Socket)> {
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let child = start(agent, arguments, theirs.as_fd(), theirs.as_fd())?;
    Ok((child, Async::new(ours)?))
}

fn start(
    agent: &Agent,
    arguments: &[&str],
    input: BorrowedFd<'_>,
    output: BorrowedFd<'_>,
) -> io::Result<Rc<Child>> {
    let mut words = vec![c"mote-agent".to_owned(), c"--flavour".to_owned()];
    let root = agent.options.root.to_str().ok_or(io::ErrorKind::InvalidInput)?;
    let ours = [agent.flavour.name(), "--root", root];
    let debug = log::is_debug().then_some("--debug");
    for word in ours.iter().chain(&debug).chain(arguments) {
        words.push(CString::new(*word).map_err(|_| io::ErrorKind::InvalidInput)?);
    }
    // So that its log lines look like ours.
    let journal = std::env::var_os("JOURNAL_STREAM")
        .and_then(|id| CString::new([b"JOURNAL_STREAM=", id.as_encoded_bytes()].concat()).ok());
    let stderr = io::stderr();
    let plan = Plan {
        programs: &[SELF.to_owned()],
        arguments: &words,
        environment: journal.as_slice(),
        stdio: [input, output, stderr.as_fd()],
        directory: None,
        ids: None,
        terminal: false,
    };
    agent.children.start(&plan)
}

/// Reads to the end.
async fn read_all(from: OwnedFd, most: usize) -> io::Result<Vec<u8>> {
    let from = Async::new(from)?;
    let mut all = Vec::new();
    loop {
        all.reserve(PIECE);
        let count =
            from.read_with(|fd| Ok(rustix::io::read(fd, spare_capacity(&mut all))?)).await?;
        if count == 0 {
            return Ok(all);
        }
        if all.len() > most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
    }
}
