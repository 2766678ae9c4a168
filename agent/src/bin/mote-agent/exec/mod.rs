//! `POST /1.0/exec` (P§4.1): a command with its sockets. The request and the words are the core's
//! (`exec.rs` there); this starts the process, and joins what it reads and writes to websockets.
//!
//! Nothing is held but what is on its way: a process that writes to a host that does not read waits,
//! as it would on a pipe.

mod pty;
mod pump;
mod sockets;

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::{pending, zip};
use mote_agent::exec::{Request, SNAP};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::agent::Agent;
use crate::children::{Child, Ended};
use crate::clock::within;
use crate::exchange::Answer;
use crate::host::error;
use crate::operations::Operation;
use crate::reactor::Async;
use crate::sys::Plan;
use crate::websocket::WebSocket;

pub(crate) use sockets::{Sockets, arrive, fill_random};

/// How long the host may take to connect all sockets (P§4.1).
const ARRIVAL: Duration = Duration::from_secs(5);

/// Why a command did not run: what the host is told, and the exit status it makes of it.
struct Failure {
    text: String,
    code: Option<i32>,
}

/// Answers the request: the operation runs from now on.
pub(crate) fn start(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let mut request = match Request::parse(body) {
        Ok(request) => request,
        Err(why) => return error(400, &why.to_string()),
    };
    let snap = agent.options.root.join(SNAP.trim_start_matches('/'));
    request.add_defaults(snap.exists());
    let sockets = Sockets::new(request.interactive);
    let mut metadata = String::with_capacity(1024);
    let _infallible = request.write_metadata(&mut metadata, sockets.secrets());
    metadata.shrink_to_fit();
    let operation = match agent.operations.begin(agent, metadata, sockets) {
        Ok(operation) => operation,
        Err(answer) => return answer,
    };
    let answer = operation.begun(agent.flavour);
    let task = agent.clone();
    agent.spawn(async move { run(&task, operation, &request).await });
    answer
}

async fn run(agent: &Rc<Agent>, operation: Rc<Operation>, request: &Request) {
    let outcome = match within(ARRIVAL, operation.sockets.all_here()).await {
        // What a running command needs is made when it runs: until then there may be thousands.
        Some(()) => Box::pin(execute(agent, &operation.sockets, request)).await,
        None => {
            let text = "Timed out waiting for websockets to connect".to_owned();
            Err(Failure { text, code: None })
        }
    };
    operation.sockets.finish_all();
    let metadata = |code: i32| format!("{{\"return\":{code}}}");
    match outcome {
        Ok(code) => operation.end(agent, Some(metadata(code)), None),
        Err(Failure { text, code }) => operation.end(agent, code.map(metadata), Some(text)),
    }
}

/// What the process gets for 0, 1 and 2, and our ends of it.
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

/// Runs the command; gives its exit status as a shell would say it.
async fn execute(agent: &Agent, sockets: &Sockets, request: &Request) -> Result<i32, Failure> {
    let name = request.command.first().map_or("", String::as_str);
    let failed = |error: io::Error| Failure {
        text: format!("Failed to run \"{name}\": {error}"),
        code: Some(exit_status(&error)),
    };
    let stdio = Stdio::open(request).map_err(failed)?;
    let child = launch(agent, request, &stdio).map_err(failed)?;
    drop(stdio.theirs);
    let control = sockets.get(sockets::CONTROL).ok_or_else(gone)?;
    let data = sockets.get(0).ok_or_else(gone)?;
    let life = async {
        child.started().await?;
        let ended = child.ended().await;
        sockets.finish(sockets::CONTROL);
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
                let both = zip(pump::output(&stdout, output), pump::output(&stderr, errors));
                silent.set(both.await == (true, true));
            };
            zip(life.or(inputs), outputs).await.0
        }
    };
    match ended.map_err(failed)? {
        Ended::Code(code) => Ok(code),
        Ended::Signal(signal) => Ok(128 + signal),
    }
}

/// The terminal's traffic, both ways on one socket, until the process has ended and nothing more
/// comes.
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

/// What the host makes of an error: "not found", "not executable", or neither (P§4.1).
fn exit_status(error: &io::Error) -> i32 {
    match Errno::from_io_error(error) {
        Some(Errno::NOENT | Errno::NOTDIR) => 127,
        Some(Errno::ACCESS | Errno::PERM) => 126,
        Some(_) | None => -1,
    }
}

fn launch(agent: &Agent, request: &Request, stdio: &Stdio) -> io::Result<Rc<Child>> {
    let strings = |all: Vec<String>| -> io::Result<Vec<CString>> {
        let all = all.into_iter().map(CString::new);
        all.collect::<Result<_, _>>().map_err(|_| io::ErrorKind::InvalidInput.into())
    };
    let variables = request.environment.iter().map(|(name, value)| [name, "=", value].concat());
    let directory = CString::new(request.directory()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let [stdin, stdout, stderr] = &stdio.theirs;
    agent.children.start(&Plan {
        programs: &strings(request.programs())?,
        arguments: &strings(request.command.clone())?,
        environment: &strings(variables.collect())?,
        stdio: [stdin.as_fd(), stdout.as_fd(), stderr.as_fd()],
        directory: Some(&directory),
        ids: Some((request.user, request.group)),
        terminal: request.interactive,
    })
}
