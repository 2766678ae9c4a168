//! The websockets of a command, identified by their secrets and connected in any order (P§4.1).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::operation::same_secret;

use crate::net::websocket::WebSocket;
use crate::runtime::{Signal, hex, random::fill_random, within};

/// Number of periods in which the host must connect the next socket (P§4.1).
const PARTS: u32 = 5;
/// Length of one of these periods.
const PART: Duration = Duration::from_secs(1);

/// Index of the control socket; the index of a data socket is its descriptor's number.
pub(crate) const CONTROL: usize = usize::MAX;

pub(crate) struct Sockets {
    control: Expected,
    data: Vec<Expected>,
    pub(crate) arrived: Signal,
}

pub(crate) struct Expected {
    name: &'static str,
    secret: String,
    pub(crate) state: RefCell<State>,
    pub(crate) finished: Cell<bool>,
    pub(crate) finish: Signal,
}

pub(crate) enum State {
    Awaited,
    /// The secret was presented; the handshake is in progress.
    Claimed,
    Here(Rc<WebSocket>),
}

impl Expected {
    fn new(name: &'static str) -> Self {
        let mut random = [0; 32];
        fill_random(&mut random);
        let secret = hex(&random);
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

impl Sockets {
    /// Returns the expected sockets: one for a terminal or three for pipes, and the control socket.
    pub(crate) fn new(interactive: bool) -> Self {
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

    pub(crate) fn expected(&self, index: usize) -> Option<&Expected> {
        if index == CONTROL { Some(&self.control) } else { self.data.get(index) }
    }

    pub(crate) fn secrets(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.all().map(|socket| (socket.name, socket.secret.as_str()))
    }

    /// Waits until all sockets are connected; returns false if none connected for [`PARTS`]
    /// periods. Each connection restarts the count, because hosts connect the sockets one after
    /// another, and a busy host is slow (the Go agents wait 5 s for all). There are several
    /// periods, so that a pause of the VM uses up only one.
    pub(crate) async fn all_here(&self) -> bool {
        let mut left = PARTS;
        while !self.all().all(Expected::is_here) {
            let seen = self.arrived.seen();
            left = match within(PART, self.arrived.after(seen)).await {
                Some(()) => PARTS,
                None if left == 1 => return false,
                None => left - 1,
            };
        }
        true
    }

    pub(crate) fn get(&self, index: usize) -> Option<Rc<WebSocket>> {
        match &*self.expected(index)?.state.borrow() {
            State::Here(socket) => Some(socket.clone()),
            State::Awaited | State::Claimed => None,
        }
    }

    pub(crate) fn finish(&self, index: usize) {
        if let Some(socket) = self.expected(index) {
            socket.finish();
        }
    }

    pub(crate) fn finish_all(&self) {
        self.all().for_each(Expected::finish);
    }

    /// Claims the socket with that secret; returns its index. Compares all secrets, in constant
    /// time.
    pub(crate) fn claim(&self, secret: &str) -> Result<usize, &'static str> {
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
