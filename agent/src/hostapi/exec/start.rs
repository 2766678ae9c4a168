//! Handles a command: request, operation, sockets, end.

use std::fmt::Write as _;
use std::rc::Rc;

use mote_core::hostapi::exec::{Refusal, Request};
use mote_core::hostapi::operation::write_return;
use mote_core::json::{Document, JsonError};
use mote_core::limits;

use super::execute::{Failure, Held, execute};
use crate::agent::operation_table::OPERATION_KEPT;
use crate::agent::{Agent, Operation, Sockets, error, error_by};
use crate::hostapi::denied::denied;
use crate::net::serve::Answer;
use crate::runtime::{log::audit, log::audit::Quoted, sleep};
use crate::sys::file;

/// Memory of a long command in addition to its bytes until it starts: unused parts of pages, and
/// its operation.
const HELD_PAGES: usize = 16 * 1024;
/// Allowance in addition to a request's bytes: [`HELD_PAGES`], and the variables that the agent
/// adds.
const HELD_BEYOND_BYTES: usize = HELD_PAGES + 256;
/// Once the audit line has this length, arguments except the last one are only counted, bytes.
const ARGV: usize = 256;

/// Creates the operation and answers 202; the command starts once its sockets are connected.
pub(crate) fn start(agent: &Rc<Agent>, body: &[u8]) -> Answer {
    let busy = || error(503, "The command is too long for the memory that is available");
    let memory = &agent.operations.memory;
    // The stored part is at most as long as the body.
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
    request.add_defaults(&|directory| file::exists(&agent.options.root.join(directory)));
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
    agent.spawn(async move { run(&task, operation, allowed, Box::new((request, share))).await });
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
    let words = words.trim_start();
    audit::note(format_args!("exec uid={user} gid={group} op={id} cwd={cwd} argv={words}"));
}

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
        // Boxed here, because thousands of operations may still wait for their sockets.
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
    // The host asks for the result after the end.
    sleep(OPERATION_KEPT).await;
    agent.operations.forget(&operation);
}
