//! Drives the status machine of the core: passes it the bytes from the port, performs its actions,
//! and waits for its deadline. All decisions are in the core's `status`. Never blocks on the port.

use std::io::ErrorKind;
use std::rc::Rc;
use std::time::Duration;

use mote_core::status::{Action, State};
use smol::future::{FutureExt, yield_now};

use crate::agent::{About, Agent};
use crate::built;
use crate::hostapi::mounts;
use crate::runtime::{Async, log, now, sleep, until};
use crate::status::port::{self, Found, Port};
use crate::status::search::{Looked, Search, log_change};
use crate::status::status_file;
use crate::sys;

/// Prefix of messages while there is no port (hot-plug, restore, a driver not loaded yet).
pub(super) const WAITING: &str = "waiting for the status port: ";
/// Error text if the host neither calls nor reads the port.
const UNREAD: &str = "the host has not called or read this port: is its chardev connected?";
/// Pause between two reads of a port without a host: poll(2) returns immediately for a hung-up
/// port, and a returning host writes immediately.
const ABSENT: Duration = Duration::from_millis(200);
/// Maximum size of a read, in bytes.
const CHUNK: usize = 256;
/// Maximum number of reads of [`CHUNK`] bytes from a port before it is closed.
const LEFT: usize = 64;

/// Runs the status channel until STOPPED is written; even without a port, because the host may
/// call.
pub(crate) async fn run(agent: Rc<Agent>) {
    let mut pump = Pump {
        agent,
        found: None,
        port: None,
        search: Search::default(),
        reported: String::new(),
        was_connected: false,
        unread: None,
    };
    while pump.step().await {}
}

pub(super) fn waits(agent: &Agent, why: &str) {
    let why = format!("{WAITING}{why}");
    log::info(format_args!("{why}"));
    agent.note(About::Port, why);
}

struct Pump {
    agent: Rc<Agent>,
    found: Option<Found>,
    port: Option<Async<Port>>,
    search: Search,
    reported: String,
    was_connected: bool,
    /// The error text if the host did not read the last line.
    unread: Option<&'static str>,
}

enum Woken {
    Due,
    Read(std::io::Result<usize>),
}

impl Pump {
    /// Performs all actions that are due, then waits. Returns false after the last one.
    async fn step(&mut self) -> bool {
        if self.port.is_none() {
            self.open();
        }
        log::catch_up();
        let seen = self.agent.status_changed.seen();
        while let Some(action) = self.next_action() {
            self.act(action);
        }
        let doubt = self.found.as_ref().and_then(|found| found.doubt.as_deref());
        self.agent.miss_call(doubt.or(self.unread));
        let path = self.found.as_ref().map(|found| found.path.as_path());
        status_file::update(&self.agent, path, &mut self.reported);
        let last = {
            let status = self.agent.status.borrow();
            // Without a port, no host can be notified.
            status.state() == State::Stopped
                && (status.deadline().is_none() || self.search.missing.is_some())
        };
        if !last {
            self.wait(seen).await;
        }
        !last
    }

    fn next_action(&self) -> Option<Action> {
        self.agent.status.borrow_mut().poll(now())
    }

    /// Waits for bytes from the port, for the core's deadline, or for a signal by another task.
    async fn wait(&mut self, seen: u64) {
        let deadline = match &self.port {
            // The read below tries before it waits, so a lost wake-up is harmless.
            Some(_) => Some(self.agent.status.borrow().wake(now())),
            None => self.agent.status.borrow().deadline(),
        };
        let due = async {
            until(deadline).await;
            Woken::Due
        };
        let poked = async {
            self.agent.status_changed.after(seen).await;
            Woken::Due
        };
        let mut buffer = [0; CHUNK];
        let pause = match &self.port {
            Some(_) => {
                self.agent.status.borrow().read_paused_until(now()).map(|until| until - now())
            }
            None => Some(self.search.pause()),
        };
        let woken = match (&self.port, pause) {
            (Some(port), None) => {
                let read =
                    async { Woken::Read(port.read_with(|port| port.read(&mut buffer)).await) };
                read.or(due).or(poked).await
            }
            (_, pause) => {
                let paused = async {
                    sleep(pause.unwrap_or_default()).await;
                    Woken::Due
                };
                paused.or(due).or(poked).await
            }
        };
        self.agent.woken.raise();
        match woken {
            Woken::Due => {}
            // No host is connected: wait, because the next read would return immediately.
            Woken::Read(Ok(0)) => {
                until(deadline).or(sleep(ABSENT)).or(self.agent.status_changed.after(seen)).await;
            }
            Woken::Read(Ok(count)) => {
                let bytes = buffer.get(..count).unwrap_or_default();
                self.agent.status.borrow_mut().received(now(), bytes);
                // A host that never stops writing must not keep other tasks from running.
                yield_now().await;
            }
            Woken::Read(Err(error)) => self.lost(&error),
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Write { line, visible, kick } => self.write(line, visible, kick),
            Action::Verify { host, attempt } => {
                let agent = self.agent.clone();
                self.agent.spawn(async move {
                    if let Ok(host_state) = agent.verify(host, attempt).await {
                        agent.replay_ready(host_state.as_deref()).await;
                    }
                });
            }
            Action::Refused(why) => {
                self.agent.report_error(format_args!("serial line refused: {why}"))
            }
            Action::HostAddress(at) => log::info(format_args!("host address {at} (from CONNECT)")),
            Action::Changed(state) => match (state, self.agent.status.borrow().address()) {
                (State::Connected, Some(address)) => {
                    log::info(format_args!("CONNECTED {address}"));
                    self.agent.clear_error(About::Host);
                    if built::MOUNTS && std::mem::replace(&mut self.was_connected, true) {
                        self.agent.spawn(mounts::again(self.agent.clone()));
                    }
                }
                (State::Started, _) if self.port.is_none() => {
                    log::info(format_args!(
                        "STARTED, which no host can read without a status port"
                    ));
                }
                (state, _) => log::info(format_args!("{}", state.name())),
            },
        }
    }

    fn open(&mut self) {
        match self.search.look(&self.agent.options) {
            Looked::Open(found, port, was_missing) => {
                if !was_missing {
                    self.found = Some(found);
                } else {
                    self.found = None;
                    log_change(Some(found), &mut self.found);
                    self.agent.status.borrow_mut().port_appeared(now());
                    self.agent.clear_error(About::Port);
                }
                self.port = Some(port);
            }
            Looked::Barred => {
                log::error(format_args!(
                    "the sandbox forbids opening the new port; restart the agent"
                ));
                sys::exit(1);
            }
            Looked::Shut(why) => {
                if let Some(why) = why {
                    self.found = None;
                    waits(&self.agent, &why);
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
        // Closing the descriptor would lose bytes that have arrived since the last read.
        let mut buffer = [0; CHUNK];
        for _ in 0..LEFT {
            let Ok(count @ 1..) = port.get_ref().read(&mut buffer) else { break };
            let bytes = buffer.get(..count).unwrap_or_default();
            self.agent.status.borrow_mut().received(now(), bytes);
        }
        let written = port.get_ref().write(line);
        drop(port);
        let is_full = written.as_ref().is_err_and(|why| why.kind() == ErrorKind::WouldBlock);
        self.unread = is_full.then_some(UNREAD);
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
        self.search.lost();
    }
}
