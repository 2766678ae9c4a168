//! The status channel's pump: port → core → port, and the core's deadline. All decisions are in
//! `status.rs` of the core; this opens, reads, writes and closes. Never blocks on the port.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use futures_lite::future::yield_now;
use mote_agent::status::{Action, State};

use crate::agent::Agent;
use crate::clock::{now, sleep, until};
use crate::host_call::{Failed, Link};
use crate::log;
use crate::port::{self, Found, Port};
use crate::reactor::Async;
use crate::report;
use crate::tls::Pin;

/// Between two looks for a port that is not there (hot-plug, restore).
const SEARCH: Duration = Duration::from_secs(1);
/// Between two looks at a port whose host is away: a hang-up cannot be waited for, and a host that is
/// back speaks at once.
const ABSENT: Duration = Duration::from_millis(200);
/// What is read at a time.
const CHUNK: usize = 256;
/// How many of these are taken over from a port before it is closed.
const LEFT: usize = 64;

/// Runs the status channel until STOPPED is said; also without a port, since the host may tell us by
/// other ways.
pub(crate) async fn run(agent: Rc<Agent>) {
    let mut pump = Pump { agent, found: None, port: None, absent: false, reported: String::new() };
    while pump.step().await {}
}

struct Pump {
    agent: Rc<Agent>,
    found: Option<Found>,
    port: Option<Async<Port>>,
    absent: bool,
    reported: String,
}

/// What ended a wait.
enum Woken {
    Due,
    Read(std::io::Result<usize>),
}

impl Pump {
    /// Does what is due, then waits; false once all is said.
    async fn step(&mut self) -> bool {
        if self.port.is_none() {
            self.open();
        }
        let seen = self.agent.status_changed.seen();
        while let Some(action) = self.next_action() {
            self.act(action);
        }
        let path = self.found.as_ref().map(|found| found.path.as_path());
        report::update(&self.agent, path, &mut self.reported);
        let last = {
            let status = self.agent.status.borrow();
            status.state() == State::Stopped && status.deadline().is_none()
        };
        if !last {
            self.wait(seen).await;
        }
        !last
    }

    fn next_action(&self) -> Option<Action> {
        self.agent.status.borrow_mut().poll(now())
    }

    /// Waits for the port to say something, for the core's deadline, or for another task.
    async fn wait(&mut self, seen: u64) {
        let deadline = self.agent.status.borrow().deadline();
        let due = async {
            until(deadline).await;
            Woken::Due
        };
        let poked = async {
            self.agent.status_changed.after(seen).await;
            Woken::Due
        };
        let mut buffer = [0; CHUNK];
        let woken = match &self.port {
            Some(port) => {
                let read =
                    async { Woken::Read(port.read_with(|port| port.read(&mut buffer)).await) };
                read.or(due).or(poked).await
            }
            None => {
                let search = async {
                    sleep(SEARCH).await;
                    Woken::Due
                };
                search.or(due).or(poked).await
            }
        };
        match woken {
            Woken::Due => {}
            // Nobody at the other end (a socket whose host is away reads as its end): look again
            // after a while, not at once.
            Woken::Read(Ok(0)) => {
                until(deadline).or(sleep(ABSENT)).or(self.agent.status_changed.after(seen)).await;
            }
            Woken::Read(Ok(count)) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                self.agent.status.borrow_mut().received(now(), bytes);
                // A host that never stops talking must not keep the other tasks waiting.
                yield_now().await;
            }
            Woken::Read(Err(error)) => self.lost(&error),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write { line, visible, kick } => self.write(line, visible, kick),
            Action::Verify { address, fingerprint, attempt } => {
                let agent = self.agent.clone();
                self.agent.spawn(async move {
                    verify(&agent, address, fingerprint, attempt).await;
                });
            }
            Action::Refused(why) => self.agent.trouble(&format!("serial line refused: {why}")),
            Action::Told(at) => log::info(format_args!("told {}:{} by CONNECT", at.cid, at.port)),
            Action::Changed(state) => match (state, self.agent.status.borrow().address()) {
                (State::Connected, Some(address)) => {
                    log::info(format_args!("CONNECTED {}:{}", address.cid, address.port));
                }
                (state, _) => log::info(format_args!("{}", state.name())),
            },
        }
    }

    /// Opens the port, finding it first if need be.
    fn open(&mut self) {
        let options = &self.agent.options;
        self.found = match &options.port {
            Some(path) => {
                Some(Found { path: path.clone(), flavour: self.agent.flavour, legacy: None })
            }
            None => port::discover(&options.root),
        };
        let Some(found) = &self.found else {
            if !self.absent {
                self.absent = true;
                self.agent.trouble("no status port: the host cannot see this agent");
            }
            return;
        };
        match Port::open(&found.path).map(Async::new_nonblocking) {
            Ok(port) => {
                if std::mem::replace(&mut self.absent, false) {
                    self.agent.status.borrow_mut().port_appeared(now());
                }
                self.port = Some(port);
            }
            Err(error) => {
                if !self.absent {
                    self.absent = true;
                    self.agent.trouble(&format!("cannot open {}: {error}", found.path.display()));
                }
            }
        }
    }

    fn write(&mut self, line: &'static [u8], visible: bool, kick: bool) {
        let Some(port) = self.port.take() else {
            return self.agent.status.borrow_mut().write_failed(now());
        };
        if !visible {
            if port.get_ref().write(line).is_err() {
                self.agent.status.borrow_mut().write_failed(now());
            }
            self.port = Some(port);
            return;
        }
        // Bytes that came in meanwhile would go down with the descriptor.
        let mut buffer = [0; CHUNK];
        for _ in 0..LEFT {
            let Ok(count @ 1..) = port.get_ref().read(&mut buffer) else { break };
            let bytes = buffer.get(..count).unwrap_or_default();
            self.agent.status.borrow_mut().received(now(), bytes);
        }
        let written = port.get_ref().write(line);
        drop(port);
        let legacy = self.found.as_ref().and_then(|found| found.legacy.as_deref()).filter(|_| kick);
        match written {
            Ok(()) => legacy.into_iter().for_each(port::kick),
            Err(error) => {
                self.agent.status.borrow_mut().write_failed(now());
                log::debug(format_args!("cannot write to the status port: {error}"));
            }
        }
        if self.agent.status.borrow().state() != State::Stopped {
            self.open();
        }
    }

    fn lost(&mut self, error: &std::io::Error) {
        log::debug(format_args!("the status port is gone: {error}"));
        self.port = None;
        self.absent = true;
    }
}

/// Checks that the host is where we were told. The link becomes the known one only if that worked
/// and nobody has told us better meanwhile.
async fn verify(
    agent: &Rc<Agent>,
    address: mote_agent::status::Address,
    fingerprint: Option<[u8; 32]>,
    attempt: u32,
) {
    let result = try_verify(agent, address, fingerprint).await;
    let counts = agent.status(|status| status.verified(now(), attempt, result.is_ok()));
    match result {
        _ if !counts => {}
        Ok((link, host_state)) => {
            *agent.link.borrow_mut() = Some(link);
            agent.replay_ready(host_state.as_deref()).await;
        }
        Err(Failed(why)) => agent.trouble(&format!("lost host: {why}")),
    }
}

async fn try_verify(
    agent: &Rc<Agent>,
    address: mote_agent::status::Address,
    fingerprint: Option<[u8; 32]>,
) -> Result<(Rc<Link>, Option<String>), Failed> {
    let known = agent.link.borrow().as_ref().map(|link| link.pin.clone());
    let pin = match (fingerprint, known) {
        // Keep the certificate, and its tickets, if the fingerprint is its own.
        (Some(fingerprint), Some(known)) if known.has_fingerprint(&fingerprint) => known,
        (Some(fingerprint), _) => Pin::Fingerprint(fingerprint),
        (None, Some(known)) => known,
        (None, None) => return Err(Failed("no host certificate is known".into())),
    };
    let link = agent.link_to(address, pin).map_err(Failed)?;
    let host_state = agent.verify(&link).await?;
    Ok((link, host_state))
}
