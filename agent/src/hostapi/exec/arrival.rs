//! Connects the websockets of a command; each arrives as a separate request (P§4.1).

use std::rc::Rc;

use mote_core::http::head::Request;
use mote_core::http::query;

use crate::agent::exec_sockets::State;
use crate::agent::{Agent, Operation, error};
use crate::hostapi::operations::unknown;
use crate::net::serve::{Answer, Upgrade};
use crate::net::stream::Stream;
use crate::net::websocket::{WebSocket, upgrade};
use crate::runtime::log;

struct Arrival {
    operation: Rc<Operation>,
    index: usize,
    accept: String,
}

/// Answers `GET /1.0/operations/{id}/websocket?secret=S`.
pub(crate) fn arrive(agent: &Agent, id: &str, request: &Request<'_>) -> Answer {
    let Some(operation) = agent.operations.find(id) else { return unknown(agent, 500, id) };
    // Checked first: an ended operation needs no sockets, whatever their state.
    if !operation.is_running() {
        return error(500, "Only running operations can be connected");
    }
    let accept = match upgrade(request) {
        Ok(Some(accept)) => accept,
        Ok(None) => return error(400, "A websocket is needed here"),
        Err(why) => return error(400, why),
    };
    let Some(secret) = query(request.query, "secret") else { return error(500, "missing secret") };
    let claimed = operation.sockets.claim(secret);
    match claimed {
        Ok(index) => {
            let arrival = Arrival { operation, index, accept };
            Answer::Upgrade(Upgrade::new(|stream| arrival.serve(stream)))
        }
        Err(why) => error(500, why),
    }
}

impl Arrival {
    /// Gives the websocket to the operation, and closes it when the operation no longer needs it.
    async fn serve(self, stream: Stream) {
        let sockets = &self.operation.sockets;
        let Some(expected) = sockets.expected(self.index) else { return };
        let socket = match WebSocket::accept(stream, &self.accept).await {
            Ok(socket) => Rc::new(socket),
            // The operation then times out.
            Err(error) => return log::debug(format_args!("lost a socket of a command: {error}")),
        };
        socket.disable_write_timeout();
        *expected.state.borrow_mut() = State::Here(socket.clone());
        sockets.arrived.raise();
        expected.finish.until(|| expected.finished.get().then_some(())).await;
        socket.close().await;
    }
}
