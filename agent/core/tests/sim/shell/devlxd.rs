//! The socket for guests and who gives way there, as in `devlxd/server.rs` and `devlxd/admission.rs`.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use mote_core::devlxd::answer::{Body, show, unreachable};
use mote_core::devlxd::forward::{forwards, write_target};
use mote_core::devlxd::quota::{Class, Quota, Quotas};
use mote_core::devlxd::ready::ReadyState;
use mote_core::devlxd::route::{Ask, NoRoute, Route, route};
use mote_core::dial::Retry;
use mote_core::hostapi::event::{Audience, Subscription};
use mote_core::hostapi::info::write_index;
use mote_core::http::admission::{Activity, Connected, GRACE, eviction_candidate};
use mote_core::http::head::{Method, Request};
use mote_core::json::{Document, Value};
use mote_core::limits;

use super::agent::{Agent, HOST_CALL_TIMEOUT, Hearer};
use super::host_call::{Call, Failed};
use super::serve::{Answer, Reply, Service, serve};
use crate::machine::executor::{Micros, SECOND, TaskId, Zone};
use crate::machine::net::{Listener, Place, Stream};
use crate::machine::wait::{Signal, either, give_way, sleep, within};

/// How long a guest may wait for an operation of the host.
const OPERATION: Micros = 3600 * SECOND;

/// The clients and what they may hold at once.
struct Guests {
    agent: Rc<Agent>,
    clients: RefCell<Vec<Rc<Client>>>,
    quotas: RefCell<Quotas>,
    given_back: Signal,
}

struct Client {
    connected: Cell<Connected>,
    task: Cell<Option<TaskId>>,
    held: RefCell<Vec<Quota>>,
}

/// Opens and closes the socket as the host demands.
pub(crate) async fn run(agent: Rc<Agent>) {
    let bounds = agent.around.bounds;
    let guests = Rc::new(Guests {
        clients: RefCell::default(),
        quotas: RefCell::new(Quotas::new(&bounds)),
        given_back: Signal::default(),
        agent: agent.clone(),
    });
    loop {
        let seen = agent.devlxd_changed.seen();
        if !agent.devlxd.get() {
            agent.devlxd_changed.after(seen).await;
            continue;
        }
        let listener = agent.around.net.listen(Place::Devlxd);
        either(guests.accept(&listener), agent.devlxd_changed.after(seen)).await;
    }
}

impl Guests {
    async fn accept(self: &Rc<Self>, listener: &Listener) {
        let most = self.agent.around.bounds.connections;
        loop {
            let stream = listener.accept().await;
            while self.clients.borrow().len() >= most && self.evict(None).is_none() {
                sleep(self.agent.sim(), Zone::Guest, grace()).await;
            }
            let class = Class::Root;
            let connected =
                Connected { class, activity: Activity::Silent, since: self.agent.now() };
            let client = Rc::new(Client {
                connected: Cell::new(connected),
                task: Cell::default(),
                held: RefCell::default(),
            });
            self.clients.borrow_mut().push(client.clone());
            let count = self.clients.borrow().len();
            self.agent.around.oracle.at_most("guest connections", count, most);
            let guest = Guest { guests: self.clone(), client: client.clone() };
            let sim = self.agent.sim().clone();
            let serve = async move { serve(&sim, stream, &guest).await };
            client.task.set(Some(self.agent.sim().spawn(self.agent.process, serve)));
            give_way().await;
        }
    }

    /// Closes the first client that can be closed: of all, or of those past their grace who hold one of a quota.
    fn evict(&self, quota: Option<Quota>) -> Option<Rc<Client>> {
        let now = self.agent.now();
        let mut clients = self.clients.borrow_mut();
        let among = |client: &Client| quota.is_none_or(|quota| client.holds(quota));
        let all = clients.iter().enumerate().filter(|(_, client)| among(client));
        let first =
            eviction_candidate(all.map(|(index, client)| (index, client.connected.get())), now);
        let first = first.filter(|(_, client)| quota.is_none() || client.since + GRACE <= now);
        let client = clients.swap_remove(first?.0);
        drop(clients);
        if let Some(task) = client.task.take() {
            self.agent.sim().kill_task(task);
        }
        Some(client)
    }

    fn give_back(&self, client: &Client, quotas: &[Quota]) {
        for held in client.held.borrow_mut().extract_if(.., |held| quotas.contains(held)) {
            self.quotas.borrow_mut().give_back(client.connected.get().class, held);
            self.given_back.raise();
        }
    }

    fn try_obtain(&self, client: &Client, quota: Quota) -> bool {
        let holds = client.holds(quota);
        let taken = holds || self.quotas.borrow_mut().take(client.connected.get().class, quota);
        if taken && !holds {
            client.held.borrow_mut().push(quota);
        }
        taken
    }

    /// Waits until it may call the host; false if too many wait for that.
    async fn turn(&self, client: &Client) -> bool {
        let is_queued = self.try_obtain(client, Quota::Queued);
        if is_queued {
            let now = self.agent.now();
            let wait = self.quotas.borrow_mut().call(client.connected.get().class, now);
            let wait = Micros::try_from(wait.as_micros()).expect("a short time");
            sleep(self.agent.sim(), Zone::Guest, wait).await;
        }
        is_queued
    }

    /// Waits until it may ask the host; false if that may take long, and too many do.
    async fn obtain(&self, client: &Client, quota: Quota) -> bool {
        loop {
            let seen = self.given_back.seen();
            if self.try_obtain(client, quota) {
                return true;
            }
            if let Some(evicted) = self.evict(Some(quota)) {
                self.give_back(&evicted, &[quota]);
                self.try_obtain(client, quota);
                give_way().await;
            } else if quota == Quota::LongPoll {
                return false;
            } else {
                within(self.agent.sim(), Zone::Guest, grace(), self.given_back.after(seen)).await;
            }
        }
    }
}

impl Client {
    fn holds(&self, quota: Quota) -> bool {
        self.held.borrow().contains(&quota)
    }
}

fn grace() -> Micros {
    Micros::try_from(GRACE.as_micros()).expect("a short time")
}

/// Answers one client.
struct Guest {
    guests: Rc<Guests>,
    client: Rc<Client>,
}

impl Drop for Guest {
    fn drop(&mut self) {
        let mut clients = self.guests.clients.borrow_mut();
        clients.retain(|other| !Rc::ptr_eq(other, &self.client));
        drop(clients);
        self.answered();
    }
}

impl Service for Guest {
    const BODY: usize = limits::BODY;

    async fn answer(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.guests.agent;
        if !agent.devlxd.get() {
            return Answer::Reply(Reply::text(403, "Forbidden"));
        }
        match route(agent.around.flavour, request.method, request.path) {
            Ok(Route::Index) => {
                Answer::Reply(Reply::json(200, Document::new(16, write_index).line()))
            }
            Ok(Route::Events) => {
                let subscription = Subscription::new(Audience::Guest, request.query);
                Answer::Events(agent.hear(subscription))
            }
            Ok(Route::Ask(ask)) => Answer::Reply(self.ask(stream, request, ask, body).await),
            Err(NoRoute::Verb) => Answer::Reply(Reply::text(404, "Method not found")),
            Err(other @ (NoRoute::Path | NoRoute::Method | NoRoute::Encoding | NoRoute::Key)) => {
                let (status, text) = other.reply();
                Answer::Reply(Reply::text(status, text))
            }
        }
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        Reply::text(status, text)
    }

    fn note(&self, activity: Activity) {
        let before = self.client.connected.get();
        if before.activity != activity || activity == Activity::Writing {
            let since = self.guests.agent.now();
            self.client.connected.set(Connected { activity, since, ..before });
        }
    }

    fn answered(&self) {
        self.guests.give_back(&self.client, &[Quota::Queued, Quota::Call, Quota::LongPoll]);
    }
}

impl Guest {
    async fn ask(&self, stream: &Stream, request: &Request<'_>, ask: Ask, body: &[u8]) -> Reply {
        if !self.guests.turn(&self.client).await {
            return Reply::text(429, "Too many requests wait for the host");
        }
        let quota = if ask.takes_long() { Quota::LongPoll } else { Quota::Call };
        if !self.guests.obtain(&self.client, quota).await {
            return Reply::text(503, "Too many requests that take long");
        }
        let answer = self.forward(stream, request, ask, body).await;
        answer.unwrap_or_else(|Failed(why)| {
            let flavour = self.guests.agent.around.flavour;
            Reply::text(500, &format!("{}{why}", unreachable(flavour, ask)))
        })
    }

    async fn forward(
        &self,
        stream: &Stream,
        request: &Request<'_>,
        ask: Ask,
        body: &[u8],
    ) -> Result<Reply, Failed> {
        let agent = &self.guests.agent;
        let mut target = String::new();
        write_target(&mut target, ask, request.path, request.query).expect("a text");
        let mut extra = Vec::new();
        for (name, value) in
            request.headers.iter().filter(|(name, value)| forwards(ask, name, value))
        {
            extra.push((name, std::str::from_utf8(value).map_err(|_| Failed("a header"))?));
        }
        let is_read = matches!(request.method, Method::Get | Method::Head);
        let call = Call {
            method: if is_read { "GET" } else { request.method_text },
            target: &target,
            body: (!is_read).then_some(body),
            extra: &extra,
            patience: if ask == Ask::OperationWait { OPERATION } else { HOST_CALL_TIMEOUT },
            retry: if ask == Ask::MetaData { Retry::Patient } else { Retry::Dial },
        };
        let _word = if ask == Ask::SetState { Some(agent.words.take_many(1).await) } else { None };
        let left = async {
            if ask != Ask::OperationWait {
                return pending().await;
            }
            stream.gone().await;
            Err(Failed("the guest client is gone"))
        };
        let reply = either(agent.ask(&call), left).await?;
        if ask == Ask::SetState && reply.status == 200 {
            remember(agent, body);
        }
        let mut out = Vec::new();
        let flavour = agent.around.flavour;
        let mut sink = |piece: &[u8]| out.extend_from_slice(piece);
        let shown = show(flavour, ask, reply.status, &reply.body, &mut sink);
        let content_type = match shown.body {
            Body::Json => "application/json",
            Body::Raw => "application/octet-stream",
            Body::Text => "text/plain; charset=utf-8",
        };
        Ok(Reply { status: shown.status, content_type, location: None, body: out })
    }
}

/// Keeps the state that the host has accepted.
fn remember(agent: &Agent, body: &[u8]) {
    let state = Value::parse(body).ok().and_then(|body| body.member("state")?.string().ok());
    let Some(state) = state.as_deref().and_then(ReadyState::parse) else { return };
    agent.ready.borrow_mut().set(state);
    *agent.around.run_dir.ready.borrow_mut() = state.name().as_bytes().to_vec();
}

impl Agent {
    /// A new listener, for events from now on.
    pub(crate) fn hear(&self, subscription: Subscription) -> Rc<Hearer> {
        let hearer =
            Rc::new(Hearer { subscription, queue: RefCell::default(), signal: Signal::default() });
        let mut all = self.hearers.borrow_mut();
        // Those whose connection has ended.
        all.retain(|other| Rc::strong_count(other) > 1);
        all.push(hearer.clone());
        hearer
    }
}
