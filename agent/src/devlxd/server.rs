//! Serves the devlxd socket, which the host enables and disables at run time (P§5.1). The core's
//! `devlxd/exchange.rs` decides what happens with a request; this module does it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::answer::Body;
use mote_core::devlxd::exchange::{self, Event, Exchange, Next, write_image_head};
use mote_core::devlxd::quota::Quota;
use mote_core::dial::{self, Call};
use mote_core::hostapi::event::Audience;
use mote_core::http::admission::Activity;
use mote_core::http::head::Request;
use mote_core::http::reply::{LAST_CHUNK, Length, write_chunk_head};
use mote_core::limits;
use smol::future::{FutureExt, pending, yield_now};

use crate::agent::Agent;
use crate::built::BoxFuture;
use crate::devlxd::admission::{Entry, Guests};
use crate::devlxd::socket;
use crate::hostapi::events;
use crate::net::host_call::{CallError, Incoming, open};
use crate::net::serve::{ACCEPT_AGAIN, Answer, JSON, Limiter, Reply, Service, TEXT, serve};
use crate::net::stream::Stream;
use crate::runtime::{log, now, sleep};
use crate::status::status_file::remember;
use crate::transport::{self, Socket, is_passing};

/// The kernel's send buffer for a client that does not read, in bytes, before the kernel doubles
/// it. The minimum, because there may be hundreds, and a cgroup charges them to the agent.
const UNREAD: usize = 2 * 1024;
/// Size of the send buffer for the few clients that receive an image or a long answer, in bytes.
const UNREAD_LONG: usize = 8 * 1024;
/// Pause between attempts to open the socket, for example before `/dev` is mounted.
const REOPEN: Duration = Duration::from_secs(1);

/// Opens and closes the socket as the host demands.
pub(crate) async fn run(agent: Rc<Agent>) -> std::convert::Infallible {
    let guests = Rc::new(Guests::new());
    loop {
        let seen = agent.devlxd_changed.seen();
        if !agent.devlxd.get() {
            agent.devlxd_changed.after(seen).await;
            continue;
        }
        let path = socket::path(&agent.options.root, agent.flavour);
        match socket::open(&agent, &path) {
            Ok(listener) => {
                log::info(format_args!("devlxd on {}", path.display()));
                agent.status_changed.raise();
                let off = agent.devlxd_changed.after(seen);
                accept(&agent, &listener, &guests).or(off).await;
                // Remove the name before the listener closes: a client that finds it can connect.
                socket::hide(&agent, &path);
                drop(listener);
                if !agent.devlxd.get() {
                    log::info(format_args!("devlxd off"));
                    agent.status_changed.raise();
                }
            }
            Err(error) => {
                agent.report_error(format_args!("cannot open {}: {error}", path.display()));
                sleep(REOPEN).await;
            }
        }
    }
}

async fn accept(agent: &Rc<Agent>, listener: &Socket, guests: &Rc<Guests>) {
    let mut accepted = 0;
    loop {
        match transport::accept(listener).await {
            Ok(socket) => {
                guests.make_room().await;
                let user = transport::user(&socket);
                let serve = |entry| -> BoxFuture<'static> {
                    let guest = Guest { agent: agent.clone(), entry, has_asked: Cell::default() };
                    Box::pin(async move { serve(Stream::plain(socket), &guest).await })
                };
                guests.admit(user, serve, |serve| agent.boxed_task(serve)).await;
                // Lets other tasks run, and closed clients free their descriptors. Not after each
                // connection: the tasks may be busy, and a new client may be behind many others.
                accepted += 1;
                if accepted >= guests.at_once() {
                    accepted = 0;
                    yield_now().await;
                }
            }
            Err(error) => {
                let why = format!("cannot accept a guest client: {error}");
                if !is_passing(&error) {
                    return agent.report_error(format_args!("{why}"));
                }
                agent.shortage(&why);
                guests.close_one();
                sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

struct Guest {
    agent: Rc<Agent>,
    entry: Entry,
    has_asked: Cell<bool>,
}

impl Service for Guest {
    fn longest_body(&self) -> usize {
        limits::BODY
    }

    fn answer<'a>(
        &'a self,
        stream: &'a Stream,
        request: &'a Request<'_>,
        body: &'a [u8],
    ) -> BoxFuture<'a, Answer> {
        Box::pin(self.answer_in_turn(stream, request, body))
    }

    fn refuse(&self, status: u16, text: &str) -> Reply {
        Reply::text(status, text)
    }

    fn limiter(&self) -> Option<&dyn Limiter> {
        Some(&self.entry)
    }
}

impl Guest {
    async fn answer_in_turn(&self, stream: &Stream, request: &Request<'_>, body: &[u8]) -> Answer {
        let agent = &self.agent;
        // A client may send requests without reading the answers: the kernel's buffers for it, even
        // after a close, are charged to the agent.
        if !self.has_asked.replace(true) {
            stream.limit_send_buffer(UNREAD);
        } else if stream.is_unread() {
            self.entry.note(Activity::Writing, now());
            if !stream.taken().await {
                return Answer::Written { keep_alive: false };
            }
            self.entry.note(Activity::Served, now());
        }
        // Dropped after the exchange, which holds the lock.
        let _released = agent.ready_released.raised_on_drop();
        let mut exchange = Exchange::new(agent.flavour, &agent.ready, request, body);
        let mut event = Event::Request { is_enabled: agent.devlxd.get() };
        loop {
            event = match exchange.next(event) {
                Next::Answer(answer) => return Answer::Reply(reply(answer)),
                Next::Listen => {
                    let answer = events::listen(agent, request, Audience::Guest);
                    if matches!(answer, Answer::Upgrade(_)) {
                        self.entry.leave();
                    }
                    return answer;
                }
                Next::Obtain(quota) => self.obtain(stream, quota).await,
                Next::Wait => {
                    agent.ready_released.after(agent.ready_released.seen()).await;
                    Event::Released
                }
                Next::Store { state, is_accepted } => {
                    if is_accepted {
                        log::info(format_args!("an application reports {}", state.name()));
                    }
                    remember(agent);
                    Event::Stored
                }
                Next::Call { call, ends_with_client } => {
                    self.call(stream, &call, ends_with_client).await
                }
                Next::Stream(call) => match self.export(stream, request, &call).await {
                    Ok(Exported::Written(keep_alive)) => return Answer::Written { keep_alive },
                    Ok(Exported::Refused(reply)) => Event::Reply { reply, may_be_long: true },
                    Err(failed) => Event::Failed(failed.into_why()),
                },
            }
        }
    }

    async fn obtain(&self, stream: &Stream, quota: Quota) -> Event {
        let is_long = quota == Quota::LongReply;
        if is_long {
            self.entry.has_called();
        }
        let left = async {
            left(stream, is_long).await;
            false
        };
        let is_granted = self.entry.obtain(quota).or(left).await;
        if is_granted { Event::Granted(quota) } else { Event::Refused(quota) }
    }

    /// Reads the host's whole answer.
    async fn call(&self, stream: &Stream, call: &Call<'_>, ends_with_client: bool) -> Event {
        let longer = || self.entry.try_obtain(Quota::LongReply);
        let left = async {
            left(stream, ends_with_client).await;
            Err("the guest client is gone".into())
        };
        match self.agent.ask(call, &longer).or(left).await {
            Ok(reply) => {
                let may_be_long = self.entry.holds(Quota::LongReply);
                if may_be_long {
                    stream.limit_send_buffer(UNREAD_LONG);
                }
                Event::Reply { reply, may_be_long }
            }
            Err(failed) => Event::Failed(failed.into_why()),
        }
    }

    /// Relays an image of any size, one piece at a time.
    async fn export(
        &self,
        stream: &Stream,
        request: &Request<'_>,
        call: &Call<'_>,
    ) -> Result<Exported, CallError> {
        let agent = &*self.agent;
        let link = agent.known_link()?;
        let incoming = open(&link, call).await;
        agent.judge(link.host, incoming.as_ref().map(|incoming| incoming.status));
        let mut incoming = incoming?;
        stream.limit_send_buffer(UNREAD_LONG);
        if incoming.status != 200 {
            let mut body = Vec::new();
            while body.len() < limits::BODY && incoming.more(&mut body).await? {}
            let (status, etag, is_whole) = (incoming.status, None, true);
            return Ok(Exported::Refused(dial::Reply { status, etag, body, is_whole }));
        }
        let relayed = self.relay(stream, request, &mut incoming).await;
        if let Err(failed) = &relayed {
            agent.report_error(format_args!("an image download failed: {}", failed.why()));
        }
        Ok(Exported::Written(relayed.is_ok_and(|length| length != Length::UntilClose)))
    }

    /// Writes the head and the body. After an error the guest's connection must be closed, so that
    /// the guest notices.
    async fn relay(
        &self,
        stream: &Stream,
        request: &Request<'_>,
        incoming: &mut Incoming,
    ) -> Result<Length, CallError> {
        let gone = |error| CallError::from(format!("the guest client is gone: {error}"));
        let mut head = String::with_capacity(512);
        let length = write_image_head(&mut head, request, &incoming.headers)
            .map_err(|_| "cannot forward one of the host's headers")?;
        self.entry.note(Activity::Writing, now());
        stream.write_all(head.as_bytes()).await.map_err(gone)?;
        self.entry.note(Activity::Served, now());
        let chunked = length == Length::Chunked;
        let mut piece = Vec::new();
        while incoming.more(&mut piece).await? {
            self.entry.note(Activity::Writing, now());
            if chunked {
                let mut size = String::new();
                let _infallible = write_chunk_head(&mut size, piece.len());
                stream.write_all(size.as_bytes()).await.map_err(gone)?;
                piece.extend_from_slice(b"\r\n");
            }
            stream.write_all(&piece).await.map_err(gone)?;
            piece.clear();
            self.entry.note(Activity::Served, now());
        }
        if chunked {
            stream.write_all(LAST_CHUNK).await.map_err(gone)?;
        }
        Ok(length)
    }
}

/// Waits until the client leaves, if it `matters`; otherwise forever.
async fn left(stream: &Stream, matters: bool) {
    if !matters {
        return pending().await;
    }
    stream.gone().await;
}

enum Exported {
    /// The image was written. Contains whether another request may follow.
    Written(bool),
    /// The host's answer is not an image.
    Refused(dial::Reply),
}

fn reply(answer: exchange::Answer) -> Reply {
    let content_type = match answer.format {
        Body::Json => JSON,
        Body::Raw => "application/octet-stream",
        Body::Text => TEXT,
    };
    let header = answer.etag.map(|etag| ("ETag", etag));
    Reply { header, ..Reply::of(answer.status, content_type, answer.body) }
}
