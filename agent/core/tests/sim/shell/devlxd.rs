//! The socket for guests and who gives way there, as in `devlxd/server.rs` and `devlxd/admission.rs`.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use mote_core::devlxd::answer::{Body, show, unreachable};
use mote_core::devlxd::forward::{forwards, write_target};
use mote_core::devlxd::ready::ReadyState;
use mote_core::devlxd::route::{Ask, NoRoute, Route, route};
use mote_core::dial::Retry;
use mote_core::hostapi::event::{Audience, Subscription};
use mote_core::hostapi::info::write_index;
use mote_core::http::admission::{Activity, Connected, GRACE, first_to_go};
use mote_core::http::head::{Method, Request};
use mote_core::json::{Document, Value};
use mote_core::limits;

use super::agent::{Agent, Hearer, PATIENCE};
use super::host_call::{Call, Failed};
use super::serve::{Answer, Reply, Service, serve};
use crate::machine::executor::{Micros, SECOND, TaskId, Zone};
use crate::machine::net::{Listener, Place, Stream};
use crate::machine::wait::{Permit, Permits, either, give_way, sleep, within};

/// How long a guest may wait for an operation of the host.
const OPERATION: Micros = 3600 * SECOND;

/// The clients and what they may hold at once.
struct Guests {
    agent: Rc<Agent>,
    clients: RefCell<Vec<Rc<Client>>>,
    answers: Rc<Permits>,
    long: Rc<Permits>,
}

struct Client {
    connected: Cell<Connected>,
    task: Cell<Option<TaskId>>,
    /// Its permit, and whether that is one for answers.
    permit: RefCell<Option<(Permit, bool)>>,
}

/// Opens and closes the socket as the host demands.
pub(crate) async fn run(agent: Rc<Agent>) {
    let bounds = agent.around.bounds;
    let guests = Rc::new(Guests {
        clients: RefCell::default(),
        answers: Permits::new(bounds.answers),
        long: Permits::new(bounds.long),
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
            while self.clients.borrow().len() >= most && !self.displace(|_| true, true) {
                sleep(self.agent.sim(), Zone::Guest, grace()).await;
            }
            let connected = Connected { activity: Activity::Silent, since: self.agent.now() };
            let client = Rc::new(Client {
                connected: Cell::new(connected),
                task: Cell::default(),
                permit: RefCell::default(),
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

    /// Closes the first client that can be closed, if it is past its grace or none is needed.
    fn displace(&self, among: impl Fn(&Client) -> bool, is_at_once: bool) -> bool {
        let now = self.agent.now();
        let mut clients = self.clients.borrow_mut();
        let all = clients.iter().enumerate().filter(|(_, client)| among(client));
        let mut all = all.map(|(index, client)| (index, client.connected.get()));
        let first = first_to_go(&mut all, now);
        let first = first.filter(|(_, client)| is_at_once || client.is_past_grace(now));
        let Some((index, _)) = first else { return false };
        let client = clients.swap_remove(index);
        drop(clients);
        if let Some(task) = client.task.take() {
            self.agent.sim().kill_task(task);
        }
        true
    }

    /// Waits for a permit to ask the host; `None` if a long one is not free.
    async fn permit(&self, is_long: bool) -> Option<Permit> {
        if is_long {
            return self.long.try_take();
        }
        let holds = |client: &Client| client.permit.borrow().as_ref().is_some_and(|(_, is)| *is);
        loop {
            let sim = self.agent.sim();
            if let Some(permit) = within(sim, Zone::Guest, grace(), self.answers.take_many(1)).await
            {
                return Some(permit);
            }
            self.displace(holds, false);
        }
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
        if matches!(activity, Activity::Idle | Activity::Closing) {
            self.client.permit.take();
        }
        if before.activity != activity || activity == Activity::Writing {
            self.client.connected.set(Connected { activity, since: self.guests.agent.now() });
        }
    }

    fn answered(&self) {
        self.client.permit.take();
    }
}

impl Guest {
    async fn ask(&self, stream: &Stream, request: &Request<'_>, ask: Ask, body: &[u8]) -> Reply {
        let Some(permit) = self.guests.permit(ask.takes_long()).await else {
            return Reply::text(503, "Too many requests that take long");
        };
        *self.client.permit.borrow_mut() = Some((permit, !ask.takes_long()));
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
            patience: if ask == Ask::OperationWait { OPERATION } else { PATIENCE },
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
        let hearer = Rc::new(Hearer {
            subscription,
            queue: RefCell::default(),
            signal: crate::machine::wait::Signal::default(),
        });
        let mut all = self.hearers.borrow_mut();
        // Those whose connection has ended.
        all.retain(|other| Rc::strong_count(other) > 1);
        all.push(hearer.clone());
        hearer
    }
}
