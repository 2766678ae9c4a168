//! Handles a command: request, operation, sockets, end. Each websocket arrives as a separate request
//! (P§4.1).

use std::fmt::Write as _;
use std::rc::Rc;

use mote_core::hostapi::exec::power::Power;
use mote_core::hostapi::exec::{NOT_FOUND, Refusal, Request};
use mote_core::hostapi::operation::write_return;
use mote_core::http::head::Request as HttpRequest;
use mote_core::http::query;
use mote_core::json::{Document, JsonError};
use mote_core::limits;
use smol::future::FutureExt;

use super::execute::{Failure, Held, execute};
use crate::agent::exec_sockets::State;
use crate::agent::operation_table::OPERATION_KEPT;
use crate::agent::{Agent, Operation, Sockets, error, error_by};
use crate::hostapi::operations::unknown;
use crate::hostapi::server::denied;
use crate::leave;
use crate::net::serve::{Answer, Upgrade};
use crate::net::stream::Stream;
use crate::net::websocket::{WebSocket, upgrade};
use crate::runtime::log::audit;
use crate::runtime::log::audit::Quoted;
use crate::runtime::{log, sleep};
use crate::sys::file;
use crate::system::power;

/// Memory of a long command beyond its bytes, until it starts: unused parts of pages, operation.
const HELD_PAGES: usize = 16 * 1024;
/// Allowance beyond a request's bytes: [`HELD_PAGES`], and the agent's own variables.
const HELD_BEYOND_BYTES: usize = HELD_PAGES + 256;
/// Length of the audit line, in bytes, beyond which all arguments except the last are only counted.
const ARGV: usize = 256;

/// Creates the operation and answers 202; the command starts once its sockets are connected.
pub(crate) fn start(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let busy = || error(503, "The command is too long for the available memory");
    let memory = &agent.operations.memory;
    // The stored part is at most as long as the body.
    let most = memory.free().min(body.len() + HELD_BEYOND_BYTES);
    let Some(mut share) = memory.try_take_many(most) else { return busy() };
    let mut request = match Request::parse(body, most.saturating_sub(HELD_BEYOND_BYTES)) {
        Ok(request) => request,
        Err(Refusal::Json(JsonError::TooLong)) => return busy(),
        Err(why) => return error_by(400, &why),
    };
    let (may_run, power) = match agent.policy.get().answers(&request) {
        Ok(answers) => answers,
        Err(what) => return denied(agent, &what),
    };
    if agent.policy.get().lists_commands() {
        request.drop_environment();
    }
    request.add_defaults(&|directory| file::exists(&agent.options.root.join(directory)));
    if !may_run {
        request.find_nothing();
    }
    let pages = if body.len() > limits::HOST_SHORT { HELD_PAGES } else { 0 };
    share.shrink(request.held() + pages);
    let sockets = Sockets::new(request.interactive);
    let mut metadata = Document::new(1024, |json| request.write_metadata(json, sockets.secrets()));
    metadata.shrink();
    let operation = match agent.operations.begin(metadata, sockets) {
        Ok(operation) => operation,
        Err(answer) => return answer,
    };
    log_command(&request, operation.id());
    let answer = operation.begun(agent.flavour);
    let (task, allowed) = (agent.clone(), agent.policy.changed.seen());
    let held = Box::new((request, share));
    agent.spawn(async move { run(&task, operation, allowed, held, power).await });
    answer
}

/// Logs the command for the audit, without its environment and input, which may be secret.
fn log_command(request: &Request, id: &str) {
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
    let words = words.trim_ascii_start();
    audit::note(format_args!("exec uid={user} gid={group} op={id} cwd={cwd} argv={words}"));
}

/// Runs the program. If it is missing and `power` is given, asks process 1 instead, after the host
/// has fetched the result.
async fn run(
    agent: &Rc<Agent>,
    operation: Rc<Operation>,
    allowed: u64,
    request: Held,
    power: Option<&'static Power>,
) {
    let refusal = match operation.sockets.all_here().await {
        false => "Timed out waiting for websockets to connect",
        true if agent.policy.changed.seen() != allowed => {
            "The guest's policy has changed meanwhile"
        }
        true if agent.operations.is_hung_up() => "The agent is stopping",
        true => "",
    };
    let mut outcome = if refusal.is_empty() {
        // Boxed here, because thousands of operations may still wait for their sockets.
        Box::pin(execute(agent, &operation.sockets, request)).await
    } else {
        drop(request);
        Err(Failure { text: refusal.to_owned(), code: None })
    };
    let mut way = None;
    if let (Some(power), Err(Failure { text, code: Some(NOT_FOUND) })) = (power, &mut outcome) {
        match power::find(&agent.options.root, power) {
            Ok(found) => (way, outcome) = (Some((found, power)), Ok(0)),
            Err(why) => text.extend(["; ", &why]),
        }
    }
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
    if let Some((way, power)) = way {
        // A re-exec waits for this permit. Process 1 is asked even if the agent ends meanwhile.
        let _permit = agent.sessions.try_take();
        leave::fetched(agent).or(agent.operations.hung_up()).await;
        way.ask(power);
    }
    // The host still asks for the result after the command has ended.
    sleep(OPERATION_KEPT).await;
    agent.operations.forget(&operation);
}

/// Answers `GET /1.0/operations/{id}/websocket?secret=S`.
pub(crate) fn arrive(agent: &Agent, id: &str, request: &HttpRequest<'_>) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 500, id) };
    // Check this first: an ended operation needs no sockets, whatever their state.
    if !operation.is_running() {
        return error(500, "Only running operations can be connected");
    }
    let accept = match upgrade(request) {
        Ok(Some(accept)) => accept,
        Ok(None) => return error(400, "A websocket is required"),
        Err(why) => return error(400, why),
    };
    let Some(secret) = query(request.query, "secret") else { return error(500, "missing secret") };
    match operation.sockets.claim(secret) {
        Ok(index) => Answer::Upgrade(Upgrade::new(move |stream| {
            serve_socket(operation, index, accept, stream)
        })),
        Err(why) => error(500, why),
    }
}

/// Gives the websocket to the operation, and closes it when the operation no longer needs it.
async fn serve_socket(operation: Rc<Operation>, index: usize, accept: String, stream: Stream) {
    let sockets = &operation.sockets;
    let Some(expected) = sockets.expected(index) else { return };
    let socket = match WebSocket::accept(stream, &accept).await {
        Ok(socket) => Rc::new(socket),
        // Without this socket, the operation times out.
        Err(error) => return log::debug(format_args!("lost a command's socket: {error}")),
    };
    socket.disable_write_timeout();
    *expected.state.borrow_mut() = State::Here(socket.clone());
    sockets.arrived.raise();
    expected.finish.until(|| expected.finished.get().then_some(())).await;
    socket.close().await;
}
