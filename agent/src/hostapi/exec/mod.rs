//! `POST /1.0/exec` (P§4.1): a command connected to websockets. The core's `exec.rs` parses requests
//! and writes answers; this starts the process and relays its input and output.
//!
//! Output is not buffered beyond the frame being sent: if the host does not read, the process blocks,
//! as it would on a pipe.

mod arrival;
mod pty;
mod pump;

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use crate::runtime::reactor::Async;
use futures_lite::FutureExt;
use futures_lite::future::{pending, zip};
use mote_core::hostapi::exec::{Refusal, Request, SNAP, exit};
use mote_core::hostapi::operation::write_return;
use mote_core::json::{Document, JsonError};
use mote_core::limits;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::agent::Agent;
use crate::agent::envelope::{error, error_by};
use crate::agent::exec_sockets::{self, Sockets};
use crate::agent::operation_table::{OPERATION_KEPT, Operation};
use crate::hostapi::denied::denied;
use crate::net::serve::Answer;
use crate::net::websocket::WebSocket;
use crate::runtime::children::{Child, Ended};
use crate::runtime::clock::sleep;
use crate::runtime::log::audit::{self, Quoted};
use crate::runtime::permits::Permit;
use crate::sys::Plan;

pub(crate) use arrival::arrive;

/// What a long command takes beyond its bytes until it is started: parts of pages, its operation.
const HELD_PAGES: usize = 16 * 1024;
/// What a request may take beyond its bytes: this, and the agent's own variables.
const HELD_BEYOND_BYTES: usize = HELD_PAGES + 256;
/// Longest part of a command's name in the error if it could not be run, characters.
const MAX_SHOWN_NAME: usize = 128;

/// Length of the audit's line from which arguments are only counted, but for the last one, bytes.
const ARGV: usize = 256;

/// Why a command did not run.
struct Failure {
    /// The operation's error.
    text: String,
    /// Exit status as a shell would give it, if the command was tried.
    code: Option<i32>,
}

/// Creates the operation and answers 202; the command starts once its sockets are connected.
pub(crate) fn start(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let busy = || error(503, "The command is too long for the memory that is left");
    let memory = &agent.operations.memory;
    // What is kept is at most as long as the body.
    let most = memory.free().min(body.len() + HELD_BEYOND_BYTES);
    let Some(mut share) = memory.try_take_many(most) else { return busy() };
    let mut request = match Request::parse(body, most.saturating_sub(HELD_BEYOND_BYTES)) {
        Ok(request) => request,
        Err(Refusal::Json(JsonError::TooLong)) => return busy(),
        Err(why) => return error_by(400, &why),
    };
    if let Err(what) = agent.policy.get().check_exec(&request) {
        return denied(agent, &what);
    }
    if agent.policy.get().lists_commands() {
        request.drop_environment();
    }
    let snap = agent.options.root.join(SNAP.trim_start_matches([':', '/']));
    request.add_defaults(snap.exists());
    let pages = if body.len() > limits::HOST_SHORT { HELD_PAGES } else { 0 };
    share.shrink(request.held() + pages);
    let sockets = Sockets::new(request.interactive);
    let mut metadata = Document::new(1024, |json| request.write_metadata(json, sockets.secrets()));
    metadata.shrink();
    let operation = match agent.operations.begin(metadata, sockets) {
        Ok(operation) => operation,
        Err(answer) => return answer,
    };
    begins(&request, operation.id());
    let answer = operation.begun(agent.flavour);
    let (task, allowed) = (agent.clone(), agent.policy.changed.seen());
    agent.spawn(async move { run(&task, operation, allowed, Box::new((request, share))).await });
    answer
}

/// Notes the command for the audit. Its environment and its input may be secret.
fn begins(request: &Request, id: &str) {
    let mut words = String::new();
    let (mut left_out, mut last) = (0, "");
    for word in request.command.texts() {
        if words.len() <= ARGV {
            let _infallible = write!(words, " {}", Quoted(word));
        } else {
            left_out += 1;
            last = word;
        }
    }
    if left_out > 1 {
        let _infallible = write!(words, " ...{}...", left_out - 1);
    }
    if left_out > 0 {
        let _infallible = write!(words, " {}", Quoted(last));
    }
    let (user, group, cwd) = (request.user, request.group, Quoted(&request.directory));
    let words = words.trim_start();
    audit::note(format_args!("exec uid={user} gid={group} op={id} cwd={cwd} argv={words}"));
}

/// A request with the permit for its memory.
type Held = Box<(Request, Permit)>;

async fn run(agent: &Rc<Agent>, operation: Rc<Operation>, allowed: u64, request: Held) {
    let refusal = match operation.sockets.all_here().await {
        false => "Timed out waiting for websockets to connect",
        true if agent.policy.changed.seen() != allowed => {
            "The guest's policy has changed meanwhile"
        }
        true if agent.operations.is_hung_up() => "The agent ends",
        true => "",
    };
    let outcome = if refusal.is_empty() {
        // Boxed only now: thousands of operations may still wait for their sockets.
        Box::pin(execute(agent, &operation.sockets, request)).await
    } else {
        drop(request);
        Err(Failure { text: refusal.to_owned(), code: None })
    };
    operation.sockets.finish_all();
    let metadata = |code| Document::new(16, |json| write_return(json, code));
    let id = operation.id();
    match outcome {
        Ok(code) => {
            audit::note(format_args!("exec op={id} exit={code}"));
            agent.operations.end(&operation, Some(metadata(code)), None);
        }
        Err(Failure { text, code }) => {
            audit::note(format_args!("exec op={id} failed={}", Quoted(&text)));
            agent.operations.end(&operation, code.map(metadata), Some(text));
        }
    }
    // The host still asks for the result.
    sleep(OPERATION_KEPT).await;
    agent.operations.forget(&operation);
}

/// The process's descriptors 0, 1 and 2, and our ends of them.
struct Stdio {
    theirs: [OwnedFd; 3],
    ours: Ours,
}

enum Ours {
    Terminal(Async<OwnedFd>),
    Pipes { input: Async<OwnedFd>, output: Async<OwnedFd>, errors: Async<OwnedFd> },
}

impl Stdio {
    fn open(request: &Request) -> io::Result<Self> {
        if request.interactive {
            let (master, slave) = pty::open(request.size, request.user, request.group)?;
            let ours = Ours::Terminal(Async::new(master)?);
            return Ok(Self { theirs: [slave.try_clone()?, slave.try_clone()?, slave], ours });
        }
        let (stdin, input) = pipe_with(PipeFlags::CLOEXEC)?;
        let (output, stdout) = pipe_with(PipeFlags::CLOEXEC)?;
        let (errors, stderr) = pipe_with(PipeFlags::CLOEXEC)?;
        let ours = Ours::Pipes {
            input: Async::new(input)?,
            output: Async::new(output)?,
            errors: Async::new(errors)?,
        };
        Ok(Self { theirs: [stdin, stdout, stderr], ours })
    }
}

/// Runs the command; returns its exit status as a shell would give it.
async fn execute(agent: &Agent, sockets: &Sockets, request: Held) -> Result<i32, Failure> {
    let name: String = request.0.name().chars().take(MAX_SHOWN_NAME).collect();
    let failed = |error: io::Error| Failure {
        text: format!("Failed to run \"{name}\": {error}"),
        code: Some(exit::not_run(error.raw_os_error())),
    };
    let stdio = Stdio::open(&request.0).map_err(failed)?;
    let child = launch(agent, &request.0, &stdio).map_err(failed)?;
    // The child has its own copies; ours would keep the pipes open and the memory taken.
    drop((stdio.theirs, request));
    let control = sockets.get(exec_sockets::CONTROL).ok_or_else(gone)?;
    let data = sockets.get(0).ok_or_else(gone)?;
    let life = async {
        child.started().await?;
        let hung_up = async {
            agent.operations.hung_up().await;
            child.hang_up();
            pending().await
        };
        let ended = hung_up.or(child.ended()).await;
        sockets.finish(exec_sockets::CONTROL);
        Ok(ended)
    };
    let silent = Cell::new(false);
    let ended = match stdio.ours {
        Ours::Terminal(master) => {
            let control = pump::control(&control, &child, Some(master.get_ref().as_fd()), &silent);
            terminal(&child, &data, &master, life, control).await
        }
        Ours::Pipes { input, output, errors } => {
            let (stdout, stderr) = (sockets.get(1), sockets.get(2));
            let (stdout, stderr) = (stdout.ok_or_else(gone)?, stderr.ok_or_else(gone)?);
            let inputs = async {
                let control = pump::control(&control, &child, None, &silent);
                zip(control, pump::input(&data, input)).await;
                pending().await
            };
            let outputs = async {
                let copy = |socket, pipe| pump::output(socket, pipe, &agent.operations);
                let both = zip(copy(&stdout, output), copy(&stderr, errors));
                silent.set(both.await == (true, true));
            };
            zip(life.or(inputs), outputs).await.0
        }
    };
    match ended.map_err(failed)? {
        Ended::Code(code) => Ok(code),
        Ended::Signal(signal) => Ok(exit::signalled(signal)),
    }
}

/// Relays a terminal, both ways on one socket, until the process has ended and its output is sent.
async fn terminal(
    child: &Child,
    data: &WebSocket,
    master: &Async<OwnedFd>,
    life: impl Future<Output = io::Result<Ended>>,
    control: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let mut inbox = pump::inbox();
    let ended = {
        let inputs = async {
            zip(control, pump::keys(data, &mut inbox, master)).await;
            pending().await
        };
        zip(life.or(inputs), pump::screen(data, master, child)).await.0
    };
    pump::farewell(data, &mut inbox).await;
    ended
}

fn gone() -> Failure {
    Failure { text: "a websocket is gone".into(), code: None }
}

fn launch(agent: &Agent, request: &Request, stdio: &Stdio) -> io::Result<Rc<Child>> {
    if request.is_too_long() {
        // execve(2) would fail with this too, but only in a child, after copying all arguments.
        return Err(Errno::TOOBIG.into());
    }
    // A pointer and a slice for each of up to a million strings.
    let tables = request.strings() * (size_of::<&CStr>() + size_of::<*const u8>());
    let Some(_share) = agent.operations.memory.try_take_many(tables) else {
        return Err(Errno::NOMEM.into());
    };
    let directory = CString::new(request.directory()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let [stdin, stdout, stderr] = &stdio.theirs;
    agent.children.start(&Plan {
        program: request.program(),
        arguments: &request.command.iter().collect::<Vec<_>>(),
        environment: &request.environment.iter().collect::<Vec<_>>(),
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        directory: Some(&directory),
        ids: Some((request.user, request.group)),
        terminal: request.interactive,
    })
}
