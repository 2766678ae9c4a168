//! What the tasks share. One thread, so plain cells; no borrow is held while waiting.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use async_executor::LocalExecutor;
use mote_agent::flavour::Flavour;
use mote_agent::json;
use mote_agent::peer::Told;
use mote_agent::policy::{Capability, Policy};
use mote_agent::ready::Ready;
use mote_agent::status::{Address, Status};

use crate::children::Children;
use crate::clock::{now, within};
use crate::events::Events;
use crate::host::Places;
use crate::host_call::{Call, Failed, HostReply, Link, Retry, call};
use crate::log;
use crate::operations::Operations;
use crate::options::Options;
use crate::signal::Signal;
use crate::socket::Transport;
use crate::tls::{Identity, Pin, certificate_bytes};

/// A verification is one `GET /1.0`; the host waits 3 s for our answer to its PUT (P§3.2).
const VERIFY: Duration = Duration::from_millis(2500);
/// How long the host may think about an ordinary request.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that more than one task needs.
pub(crate) struct Agent {
    /// From the command line.
    pub(crate) options: Options,
    /// Which server this is.
    pub(crate) flavour: Flavour,
    /// What this guest lets its host do.
    pub(crate) policy: Policy,
    /// Our certificate, and the caller's.
    pub(crate) identity: Identity,
    /// How the host is reached.
    pub(crate) transport: Transport,
    /// The status channel's state machine, and who pokes its task.
    pub(crate) status: RefCell<Status>,
    /// Raised when `status` may have something to do.
    pub(crate) status_changed: Signal,
    /// The host, once known.
    pub(crate) link: RefCell<Option<Rc<Link>>>,
    /// Whether the host lets guests use devlxd.
    pub(crate) devlxd: Cell<bool>,
    /// Raised when `devlxd` changed.
    pub(crate) devlxd_changed: Signal,
    /// One place: device events are worked off one after the other.
    pub(crate) plugging: Rc<Places>,
    /// `/1.0/events`.
    pub(crate) events: Events,
    /// The last state that an application set.
    pub(crate) ready: RefCell<Ready>,
    /// The last thing that went wrong, for the status file.
    pub(crate) last_error: RefCell<Option<String>>,
    /// What the host started.
    pub(crate) operations: Operations,
    /// SFTP sessions.
    pub(crate) sessions: Rc<Places>,
    /// Processes we started.
    pub(crate) children: Children,
    /// Runs the tasks. Some of them hold the agent that holds this: both live to the end.
    pub(crate) executor: LocalExecutor<'static>,
}

impl Agent {
    /// Starts a task of its own.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.executor.spawn(task).detach();
    }

    /// Runs `change` on the status machine and wakes its task.
    pub(crate) fn status<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        let result = change(&mut self.status.borrow_mut());
        self.status_changed.raise();
        result
    }

    /// Notes an error for the log and the status file.
    pub(crate) fn trouble(&self, text: &str) {
        log::warn(format_args!("{text}"));
        *self.last_error.borrow_mut() = Some(text.to_owned());
        self.status_changed.raise();
    }

    /// Takes over what the host told: its address and certificate. Tickets are kept only if the
    /// certificate is the one they were made for.
    ///
    /// # Errors
    /// Why the certificate is unusable; nothing is changed then.
    pub(crate) fn take(&self, told: &Told<'_>) -> Result<Rc<Link>, String> {
        let mut pem = Vec::new();
        told.certificate_pem(|piece| pem.extend_from_slice(piece));
        let pin = Pin::Certificate(certificate_bytes(&pem, "certificate")?);
        let link = self.link_to(told.address, pin)?;
        *self.link.borrow_mut() = Some(link.clone());
        self.status(|status| status.trust_known(true));
        Ok(link)
    }

    /// A link to that address, with the known one's TLS if the pin is the same.
    pub(crate) fn link_to(&self, address: Address, pin: Pin) -> Result<Rc<Link>, String> {
        let known = self.link.borrow().clone();
        let tls = match known {
            Some(known) if known.pin == pin => known.tls.clone(),
            Some(_) | None => self.identity.client(pin.clone())?,
        };
        Ok(Rc::new(Link { address, pin, tls }))
    }

    /// Switches devlxd on or off; it stays off where the guest's policy says so.
    pub(crate) fn allow_devlxd(&self, allowed: bool) {
        let allowed = allowed && self.policy.allows(Capability::GuestApi);
        if self.devlxd.replace(allowed) != allowed {
            self.devlxd_changed.raise();
        }
    }

    /// Checks that the host answers at `link`. 403 is an answer: devlxd may be just about to be
    /// switched on (P§3.3). Gives the host's view of our state, if it told.
    ///
    /// # Errors
    /// [`Failed`].
    pub(crate) async fn verify(&self, link: &Link) -> Result<Option<String>, Failed> {
        let request = Call {
            method: "GET",
            target: "/1.0",
            body: None,
            extra: &[],
            patience: VERIFY,
            retry: Retry::Dial,
        };
        let reply = match within(VERIFY, call(&self.transport, link, &request)).await {
            Some(reply) => reply?,
            None => return Err(Failed("the host took too long to answer".into())),
        };
        match reply.status {
            200 => Ok(host_state(&reply.body)),
            403 => Ok(None),
            status => Err(Failed(format!("the host answered with status {status}"))),
        }
    }

    /// Makes a call for a guest, and lets the status machine know how it went.
    ///
    /// # Errors
    /// [`Failed`].
    pub(crate) async fn ask(&self, request: &Call<'_>) -> Result<HostReply, Failed> {
        let link = self.known_link()?;
        let result = call(&self.transport, &link, request).await;
        self.judge(result.as_ref().err());
        result
    }

    /// The link, or why there is none.
    ///
    /// # Errors
    /// [`Failed`] before the host has told where it is.
    pub(crate) fn known_link(&self) -> Result<Rc<Link>, Failed> {
        let link = self.link.borrow().clone();
        link.ok_or_else(|| Failed("the host has not told its address yet".into()))
    }

    /// Lets the status machine know how a call went.
    pub(crate) fn judge(&self, failed: Option<&Failed>) {
        match failed {
            None => {
                if self.status.borrow_mut().call_ok(now()) {
                    self.status_changed.raise();
                }
            }
            Some(Failed(why)) => {
                self.trouble(&format!("lost host: {why}"));
                self.status(|status| status.host_lost(now()));
            }
        }
    }

    /// After a connection was verified: gives back a Ready that the host has forgotten.
    pub(crate) async fn replay_ready(&self, host_state: Option<&str>) {
        let Some(host_state) = host_state else { return };
        if !self.options.replay_ready {
            return;
        }
        let Some(state) = self.ready.borrow().on_connected(host_state) else { return };
        let body = format!("{{\"state\":\"{}\"}}", state.name());
        let request = Call {
            method: "PATCH",
            target: "/1.0",
            body: Some(body.as_bytes()),
            extra: &[("Content-Type", "application/json")],
            patience: PATIENCE,
            retry: Retry::Dial,
        };
        match self.ask(&request).await {
            Ok(reply) if reply.status == 200 => log::info(format_args!("ready replayed")),
            Ok(reply) => {
                self.trouble(&format!("ready not replayed: the host answered {}", reply.status));
            }
            // judge() has said it already.
            Err(_) => {}
        }
    }
}

/// `metadata.state` of the host's `GET /1.0`.
fn host_state(body: &[u8]) -> Option<String> {
    let envelope = json::envelope(body).ok()?;
    let raw = json::member(envelope.metadata, "state").ok()??;
    json_text(raw)
}

/// A JSON string as text.
pub(crate) fn json_text(raw: &[u8]) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    json::unescape(raw, |piece: &[u8]| {
        bytes.extend_from_slice(piece);
        Ok(())
    })
    .ok()?;
    String::from_utf8(bytes).ok()
}
