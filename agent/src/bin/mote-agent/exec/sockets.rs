//! The sockets of a command: expected by their secrets, in any order (P§4.1).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mote_agent::http::head::Request;
use mote_agent::http::target::query;
use mote_agent::operation::same_secret;
use ring::rand::{SecureRandom, SystemRandom};

use crate::agent::Agent;
use crate::exchange::Answer;
use crate::host::error;
use crate::log;
use crate::operations::Operation;
use crate::signal::Signal;
use crate::stream::Stream;
use crate::upgrade::Upgrade;
use crate::websocket::{WebSocket, upgrade};

/// The control socket's place in the list; the data sockets stand at their descriptor's number.
pub(super) const CONTROL: usize = usize::MAX;

/// All of them.
pub(crate) struct Sockets {
    control: Expected,
    data: Vec<Expected>,
    arrived: Signal,
}

struct Expected {
    name: &'static str,
    secret: String,
    state: RefCell<State>,
    finished: Cell<bool>,
    finish: Signal,
}

enum State {
    Awaited,
    /// Somebody showed the secret, and is being answered.
    Claimed,
    Here(Rc<WebSocket>),
}

impl Expected {
    fn new(name: &'static str) -> Self {
        use std::fmt::Write;
        let mut random = [0; 32];
        fill_random(&mut random);
        let mut secret = String::with_capacity(64);
        for byte in random {
            let _infallible = write!(secret, "{byte:02x}");
        }
        let (finished, finish) = (Cell::default(), Signal::default());
        Self { name, secret, state: RefCell::new(State::Awaited), finished, finish }
    }

    fn is_here(&self) -> bool {
        matches!(*self.state.borrow(), State::Here(_))
    }

    fn finish(&self) {
        self.finished.set(true);
        self.finish.raise();
    }
}

/// Fills it with random bytes.
pub(crate) fn fill_random(bytes: &mut [u8]) {
    // It can only fail where there is no getrandom(2), and TLS would have failed there before.
    if SystemRandom::new().fill(bytes).is_err() {
        log::error(format_args!("no random numbers"));
        std::process::abort();
    }
}

impl Sockets {
    /// One for a terminal, three for pipes, and the control socket.
    pub(super) fn new(interactive: bool) -> Self {
        let names: &[_] = if interactive { &["0"] } else { &["0", "1", "2"] };
        Self {
            control: Expected::new("control"),
            data: names.iter().map(|name| Expected::new(name)).collect(),
            arrived: Signal::default(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &Expected> {
        std::iter::once(&self.control).chain(&self.data)
    }

    fn expected(&self, index: usize) -> Option<&Expected> {
        if index == CONTROL { Some(&self.control) } else { self.data.get(index) }
    }

    /// Names and secrets.
    pub(super) fn secrets(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.all().map(|socket| (socket.name, socket.secret.as_str()))
    }

    /// Waits until all are connected.
    pub(super) async fn all_here(&self) {
        self.arrived.until(|| self.all().all(Expected::is_here).then_some(())).await;
    }

    /// The socket at that place, if it is connected.
    pub(super) fn get(&self, index: usize) -> Option<Rc<WebSocket>> {
        match &*self.expected(index)?.state.borrow() {
            State::Here(socket) => Some(socket.clone()),
            State::Awaited | State::Claimed => None,
        }
    }

    /// Has the socket at that place closed.
    pub(super) fn finish(&self, index: usize) {
        if let Some(socket) = self.expected(index) {
            socket.finish();
        }
    }

    /// Has all of them closed.
    pub(super) fn finish_all(&self) {
        self.all().for_each(Expected::finish);
    }

    /// The place that belongs to a secret. All are compared, in a time that tells nothing.
    fn claim(&self, secret: &str) -> Result<usize, &'static str> {
        let mut found = None;
        for (index, socket) in
            (0..self.data.len()).chain([CONTROL]).zip(self.data.iter().chain([&self.control]))
        {
            if same_secret(socket.secret.as_bytes(), secret.as_bytes()) {
                found = Some((index, socket));
            }
        }
        let (index, socket) = found.ok_or("permission denied")?;
        let mut state = socket.state.borrow_mut();
        if !matches!(*state, State::Awaited) || socket.finished.get() {
            return Err("Websocket number already connected");
        }
        *state = State::Claimed;
        Ok(index)
    }
}

/// A caller that showed the right secret.
struct Arrival {
    operation: Rc<Operation>,
    index: usize,
    accept: String,
}

/// Answers `GET /1.0/operations/{id}/websocket?secret=S`.
pub(crate) fn arrive(agent: &Agent, id: &str, request: &Request<'_>) -> Answer {
    let Some(operation) = agent.operations.find(id) else {
        return error(404, &format!("Operation \"{id}\" does not exist"));
    };
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
    /// Hands the socket over, and closes it when it is done with.
    async fn serve(self, stream: Stream) {
        let sockets = &self.operation.sockets;
        let Some(expected) = sockets.expected(self.index) else { return };
        let socket = match WebSocket::accept(stream, &self.accept).await {
            Ok(socket) => Rc::new(socket),
            // The operation will notice that it is missing.
            Err(error) => return log::debug(format_args!("a socket of an exec is gone: {error}")),
        };
        socket.be_patient();
        *expected.state.borrow_mut() = State::Here(socket.clone());
        sockets.arrived.raise();
        expected.finish.until(|| expected.finished.get().then_some(())).await;
        socket.close().await;
    }
}
