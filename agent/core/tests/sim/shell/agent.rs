//! The state that tasks share and what they do with it, as in `agent.rs`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::quota::Bounds;
use mote_core::devlxd::ready::{Ready, host_state, write_state};
use mote_core::dial::Retry;
use mote_core::flavour::Flavour;
use mote_core::host_address::HostAddress;
use mote_core::hostapi::event::Subscription;
use mote_core::hostapi::host_info::HostInfo;
use mote_core::hostapi::operation::State as OperationState;
use mote_core::hostapi::policy::Policy;
use mote_core::json::Document;
use mote_core::status::{Intervals, State, Status};
use mote_core::time::Uptime;

use super::host_call::{Call, Failed, HostReply, Link, Store, call};
use crate::host::port::Qemu;
use crate::machine::executor::{Micros, Process, SECOND, Sim, Zone};
use crate::machine::handshake::Certificate;
use crate::machine::net::Net;
use crate::machine::wait::{Permits, Signal, within};
use crate::oracle::Oracle;

/// One verification.
const VERIFY: Micros = 2_500_000;
/// How long the host may take for an ordinary answer.
pub(crate) const HOST_CALL_TIMEOUT: Micros = 30 * SECOND;
/// Most words of applications under way.
const WORDS: usize = 1 << 16;
/// Uptime at which histories begin, so that the clock can go back when a history has hardly begun.
const BEGIN: Duration = Duration::from_secs(1000);

/// What outlives an agent: `/run/mote`.
#[derive(Default)]
pub(crate) struct RunDir {
    pub(crate) ready: RefCell<Vec<u8>>,
    pub(crate) known_host: RefCell<Option<Vec<u8>>>,
}

/// What surrounds an agent.
pub(crate) struct Around {
    pub(crate) sim: Rc<Sim>,
    pub(crate) net: Rc<Net>,
    pub(crate) qemu: Rc<Qemu>,
    pub(crate) oracle: Rc<Oracle>,
    pub(crate) run_dir: Rc<RunDir>,
    pub(crate) flavour: Flavour,
    pub(crate) policy: Policy,
    pub(crate) bounds: Bounds,
}

/// A listener of `/1.0/events`.
pub(crate) struct Hearer {
    pub(crate) subscription: Subscription,
    pub(crate) queue: RefCell<Vec<Rc<str>>>,
    pub(crate) signal: Signal,
}

/// An operation and when it ends.
pub(crate) struct Operation {
    pub(crate) id: String,
    pub(crate) state: Cell<OperationState>,
    pub(crate) changed: Signal,
}

/// Everything that more than one task needs.
pub(crate) struct Agent {
    pub(crate) around: Rc<Around>,
    pub(crate) process: Process,
    /// Its start, in time awake.
    pub(crate) begun: Micros,
    pub(crate) status: RefCell<Status>,
    pub(crate) status_changed: Signal,
    pub(crate) link: RefCell<Option<Rc<Link>>>,
    pub(crate) devlxd: Cell<bool>,
    pub(crate) devlxd_changed: Signal,
    pub(crate) ready: RefCell<Ready>,
    /// Permits of words under way; all of them to say Ready again.
    pub(crate) words: Rc<Permits>,
    pub(crate) hearers: RefCell<Vec<Rc<Hearer>>>,
    pub(crate) operations: RefCell<Vec<Rc<Operation>>>,
}

/// The guest's time as the core takes it.
pub(crate) fn uptime(sim: &Sim) -> Uptime {
    Uptime(BEGIN + Duration::from_micros(sim.now(Zone::Guest)))
}

/// The guest's clock at that uptime.
pub(crate) fn micros(time: Uptime) -> Micros {
    let since = time.0.saturating_sub(BEGIN).as_nanos().div_ceil(1000);
    Micros::try_from(since).unwrap_or(Micros::MAX)
}

impl Agent {
    pub(crate) fn new(around: Rc<Around>) -> Rc<Self> {
        let ready = Ready::restore(&around.run_dir.ready.borrow());
        let now = uptime(&around.sim);
        let agent = Rc::new(Self {
            process: around.sim.process(Zone::Guest),
            begun: around.sim.awake(),
            status: RefCell::new(Status::new(now, Intervals::default())),
            status_changed: Signal::default(),
            link: RefCell::default(),
            devlxd: Cell::new(false),
            devlxd_changed: Signal::default(),
            ready: RefCell::new(ready),
            words: Permits::new(WORDS),
            hearers: RefCell::default(),
            operations: RefCell::default(),
            around,
        });
        agent.find_host();
        agent
    }

    /// With what an earlier agent was told.
    fn find_host(&self) {
        let kept = self.around.run_dir.known_host.borrow().clone();
        let Some(info) = kept.as_deref().and_then(|bytes| HostInfo::parse(bytes).ok()) else {
            return;
        };
        let link = self.take(&info);
        self.status(|status| status.know(self.now(), link.address));
        self.allow_devlxd(info.guest_api);
    }

    pub(crate) fn sim(&self) -> &Rc<Sim> {
        &self.around.sim
    }

    pub(crate) fn now(&self) -> Uptime {
        uptime(&self.around.sim)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.sim().spawn(self.process, task);
    }

    pub(crate) fn state(&self) -> State {
        self.status.borrow().state()
    }

    /// Shows the oracle the state.
    pub(crate) fn watch(&self) {
        let port = self.status.borrow().address().map(|address| address.port);
        self.around.oracle.agent_is(self.state(), port);
    }

    /// Changes the status machine and wakes its task.
    pub(crate) fn status<T>(&self, change: impl FnOnce(&mut Status) -> T) -> T {
        let result = change(&mut self.status.borrow_mut());
        self.watch();
        self.status_changed.raise();
        result
    }

    /// Adopts the host info. Tickets are kept only with the same certificate.
    pub(crate) fn take(&self, info: &HostInfo<'_>) -> Rc<Link> {
        let mut pem = Vec::new();
        info.certificate_pem(|piece| pem.extend_from_slice(piece));
        let text = String::from_utf8_lossy(&pem);
        let pin = text.rsplit(' ').next().and_then(|number| number.parse().ok());
        let link = self.link_to(info.address, pin.expect("a certificate of this simulation"));
        *self.link.borrow_mut() = Some(link.clone());
        self.status(|status| status.trust_known(true));
        link
    }

    pub(crate) fn link_to(&self, address: HostAddress, pin: Certificate) -> Rc<Link> {
        let known = self.link.borrow().clone();
        let tls = match known {
            Some(known) if known.pin == pin => known.tls.clone(),
            Some(_) | None => Rc::new(Store::default()),
        };
        Rc::new(Link { address, pin, tls })
    }

    pub(crate) fn allow_devlxd(&self, is_allowed: bool) {
        use mote_core::hostapi::policy::Capability;
        let is_allowed = is_allowed && self.around.policy.allows(Capability::GuestApi);
        if self.devlxd.replace(is_allowed) != is_allowed {
            self.devlxd_changed.raise();
        }
    }

    /// Checks that the host answers there; returns what it keeps of Ready.
    pub(crate) async fn verify(&self, link: &Link) -> Result<Option<String>, Failed> {
        let request = Call {
            method: "GET",
            target: "/1.0",
            body: None,
            extra: &[],
            patience: VERIFY,
            retry: Retry::Dial,
        };
        let answer = call(self.sim(), &self.around.net, link, &request);
        let reply = within(self.sim(), Zone::Guest, VERIFY, answer).await;
        let reply = reply.ok_or(Failed("the verification took too long"))??;
        match reply.status {
            200 => Ok(host_state(&reply.body)),
            403 => Ok(None),
            _ => Err(Failed("the verification was refused")),
        }
    }

    /// Makes a call and tells the status machine how it went.
    pub(crate) async fn ask(&self, request: &Call<'_>) -> Result<HostReply, Failed> {
        let link = self.link.borrow().clone().ok_or(Failed("the host is not known"))?;
        let result = call(self.sim(), &self.around.net, &link, request).await;
        let now = self.now();
        let is_news = match &result {
            Ok(reply) => self.status.borrow_mut().call_answered(now, reply.status),
            Err(_) => {
                self.status.borrow_mut().host_lost(now);
                true
            }
        };
        self.watch();
        if is_news {
            self.status_changed.raise();
        }
        result
    }

    /// After a verification: says Ready again if the host has forgotten it.
    pub(crate) async fn replay_ready(&self, host_state: Option<&str>) {
        let Some(host_state) = host_state else { return };
        let _alone = self.words.take_many(WORDS).await;
        let Some(state) = self.ready.borrow().on_connected(host_state) else { return };
        let body = Document::new(32, |json| write_state(json, state.name()));
        let request = Call {
            method: "PATCH",
            target: "/1.0",
            body: Some(body.value().raw().as_bytes()),
            extra: &[("Content-Type", "application/json")],
            patience: HOST_CALL_TIMEOUT,
            retry: Retry::Dial,
        };
        drop(self.ask(&request).await);
    }
}
