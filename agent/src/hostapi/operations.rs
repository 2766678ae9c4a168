//! Answers the host's requests about operations (P§4.2).

use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::info::write_sync_of;
use mote_core::hostapi::operation::{FAILED, State};
use mote_core::http::head::Request;
use mote_core::http::query;
use mote_core::json::{Document, Value, Writer};

use crate::agent::{Agent, ENVELOPE, Operation, error, sync};
use crate::net::serve::{Answer, Reply};
use crate::runtime::within;

/// Upper bound for the length of an operation's path in a list, in bytes.
const PATH: usize = 64;

/// `GET /1.0/operations[?recursion=1]`: lists operations by state, as paths or in full. The answer
/// counts against the host's memory until it is sent.
pub(crate) fn list(agent: &Agent, request: &Request<'_>) -> Answer {
    let whole = query(request.query, "recursion").is_some_and(|depth| depth != "0");
    let all = agent.operations.all.borrow();
    let size = |one: &Rc<Operation>| if whole { one.shown() } else { PATH };
    let size = ENVELOPE + all.iter().map(size).sum::<usize>();
    let Some(share) = agent.operations.memory.try_take_many(size) else {
        return error(503, "Too many operations to list at once");
    };
    let list = |json: &mut Writer<'_>| {
        json.begin_object();
        for (state, key) in [
            (State::Running, "running"),
            (State::Cancelling, "cancelling"),
            (State::Success, "success"),
            (State::Failure, "failure"),
        ] {
            let mut those = all.iter().filter(|one| one.state.get() == state).peekable();
            if those.peek().is_none() {
                continue;
            }
            json.key(key);
            json.begin_array();
            for one in those {
                if whole {
                    one.write(json, agent.flavour);
                } else {
                    json.string(&one.path());
                }
            }
            json.end_array();
        }
        json.end_object();
    };
    let document = Document::new(size, |json| write_sync_of(json, list));
    let mut reply = Reply::json(200, document.line());
    reply.share = Some(share);
    Answer::Reply(reply)
}

/// Returns the error for an unknown operation, in the flavour's wording.
pub(crate) fn unknown(agent: &Agent, status: u16, id: &str) -> Answer {
    match agent.flavour {
        Flavour::Incus => error(status, &format!("Operation '{id}' doesn't exist")),
        Flavour::Lxd | Flavour::LxdOld => {
            error(status, &format!("Operation \"{id}\" does not exist"))
        }
    }
}

pub(crate) fn show(agent: &Agent, id: &str) -> Answer {
    match agent.operations.find(id) {
        Some(operation) => {
            operation.is_fetched.set(operation.state.get().is_final());
            sync(operation.document(agent.flavour).value())
        }
        None => unknown(agent, 500, id),
    }
}

/// `GET /1.0/operations/{id}/wait[?timeout=SECONDS]`. Current LXD reports a failed operation as a
/// successful wait.
pub(crate) async fn wait(agent: &Agent, id: &str, request: &Request<'_>) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 404, id) };
    let timeout = match query(request.query, "timeout").map(str::parse::<i64>) {
        None | Some(Ok(..0)) => None,
        Some(Ok(seconds)) => Some(Duration::from_secs(seconds.unsigned_abs())),
        Some(Err(_)) => return error(400, "Invalid timeout value"),
    };
    let ended = match timeout {
        None => {
            operation.ended().await;
            true
        }
        Some(timeout) => within(timeout, operation.ended()).await.is_some(),
    };
    operation.is_fetched.set(ended);
    match (ended, operation.state.get()) {
        (false, _) => error(500, "context deadline exceeded"),
        (true, State::Failure) if agent.flavour != Flavour::Lxd => {
            error(FAILED, &operation.error.borrow())
        }
        (true, _) => sync(operation.document(agent.flavour).value()),
    }
}

/// `DELETE /1.0/operations/{id}`. The command continues: LXD's agent marks the operation and waits
/// for its end; the others refuse (P§4.2).
pub(crate) async fn cancel(agent: &Agent, id: &str) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 500, id) };
    if agent.flavour != Flavour::Lxd {
        return error(400, "This operation can't be cancelled");
    }
    if !operation.is_running() {
        return error(400, "Only running operations can be cancelled");
    }
    agent.operations.change(&operation, State::Cancelling);
    operation.ended().await;
    sync(Value::EMPTY)
}
