//! Runs the command's process and connects it to its sockets.

use std::cell::Cell;
use std::ffi::{CStr, CString};
use std::io;
use std::rc::Rc;

use mote_core::hostapi::exec::{Request, not_run};
use rustix::io::Errno;
use smol::future::{FutureExt, pending, zip};

use super::{pty, pump};
use crate::agent::{Agent, Sockets, exec_sockets};
use crate::net::websocket::WebSocket;
use crate::runtime::{Async, Child, Ended, Permit};
use crate::sys::Plan;
use crate::sys::fd::{AsFd, OwnedFd, give, pipe};

/// Maximum length of a command's name in an error, in characters.
const MAX_SHOWN_NAME: usize = 128;

/// The process's descriptors 0, 1 and 2, and the agent's ends of them.
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
        let (stdin, input) = pipe()?;
        let (output, stdout) = pipe()?;
        let (errors, stderr) = pipe()?;
        // The command may open the pipes by name, as /dev/stdout.
        for pipe in [&stdin, &stdout, &stderr] {
            give(pipe, request.user, request.group)?;
        }
        let ours = Ours::Pipes {
            input: Async::new(input)?,
            output: Async::new(output)?,
            errors: Async::new(errors)?,
        };
        Ok(Self { theirs: [stdin, stdout, stderr], ours })
    }
}

/// Runs the command; returns its exit status as a shell does.
pub(super) async fn execute(
    agent: &Agent,
    sockets: &Sockets,
    request: Held,
) -> Result<i32, Failure> {
    let name: String = request.0.name().chars().take(MAX_SHOWN_NAME).collect();
    let failed = |error: io::Error| Failure {
        text: format!("Failed to run \"{name}\": {error}"),
        code: Some(not_run(error.raw_os_error())),
    };
    let stdio = Stdio::open(&request.0).map_err(failed)?;
    let child = launch(agent, &request.0, &stdio).map_err(failed)?;
    // The child has copies of these descriptors, which would keep the pipes open here.
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
        // Report the signal as a shell does (P§4.1).
        Ended::Signal(signal) => Ok(128 + signal),
    }
}

/// Relays a terminal over one socket until the process has ended and its output is sent.
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
            zip(control, pump::feed(data, &mut inbox, master)).await;
            pending().await
        };
        zip(life.or(inputs), pump::pty_output(data, master, child)).await.0
    };
    pump::drain_and_close(data, &mut inbox).await;
    ended
}

fn gone() -> Failure {
    Failure { text: "a websocket is gone".into(), code: None }
}

fn launch(agent: &Agent, request: &Request, stdio: &Stdio) -> io::Result<Rc<Child>> {
    if request.is_too_long() {
        // execve(2) would fail with this, too, but only in the child, after copying all arguments.
        return Err(Errno::TOOBIG.into());
    }
    // One pointer and one slice per string, of which there may be a million.
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

pub(super) type Held = Box<(Request, Permit)>;

pub(super) struct Failure {
    pub(super) text: String,
    /// Exit status as a shell reports it, if the command was tried.
    pub(super) code: Option<i32>,
}
