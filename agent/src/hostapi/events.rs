//! `/1.0/events`: sends listeners the events that the host posts and the changes of operations, as
//! JSON lines or over a websocket (P§4.3). A listener that falls behind is dropped in the middle of
//! an event. The core's `event.rs` decides which listener may receive which event.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::event::{Audience, Subscription};
use mote_core::http::head::Request;
use mote_core::ws::Opcode;
use smol::future::FutureExt;

use crate::agent::{Agent, Listener};
use crate::net::serve::{Answer, Reply, Upgrade};
use crate::net::stream::Stream;
use crate::net::websocket::{Inbox, Received, WebSocket, upgrade};
use crate::runtime::{log, sleep};

/// Maximum number of the host's listeners; beyond it: 503. Each `lxc exec` has one, which costs a
/// TLS connection of 16 KB, and hundreds at once are normal.
const LISTENERS: usize = 1024;
/// Maximum unread output per listener, in bytes, both in TLS and in the kernel.
const AHEAD: usize = 4 * 1024;
/// Interval between pings on a websocket (P§4.3).
const PING: Duration = Duration::from_secs(10);
/// Maximum number of unanswered pings (P§4.3).
const MISSED: u32 = 2;

/// Registers the caller as a listener for future events.
pub(crate) fn listen(agent: &Rc<Agent>, request: &Request<'_>, audience: Audience) -> Answer {
    let accept = match upgrade(request) {
        Ok(accept) => accept,
        Err(why) => return Answer::Reply(Reply::text(400, why)),
    };
    // `devlxd/admission.rs` limits the guest's listeners.
    if audience == Audience::Host && agent.events.hosts() >= LISTENERS {
        return Answer::Reply(Reply::text(503, "Too many event listeners"));
    }
    let listener = Rc::new(Listener::new(Subscription::new(audience, request.query)));
    agent.events.listeners.borrow_mut().push(listener.clone());
    let listening = Listening { agent: agent.clone(), listener, accept };
    Answer::Upgrade(Upgrade::new(|stream| listening.serve(stream)))
}

/// A registered listener, removed from the list on drop.
struct Listening {
    agent: Rc<Agent>,
    listener: Rc<Listener>,
    accept: Option<String>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        let mut listeners = self.agent.events.listeners.borrow_mut();
        listeners.retain(|other| !Rc::ptr_eq(other, &self.listener));
        if listeners.is_empty() {
            *listeners = Vec::new();
        }
    }
}

impl Listening {
    async fn serve(self, stream: Stream) {
        let listener = &self.listener;
        stream.limit_send_buffer(AHEAD);
        let result = match &self.accept {
            Some(accept) => {
                let payload = match self.agent.flavour {
                    Flavour::Incus => &b"keepalive"[..],
                    Flavour::Lxd | Flavour::LxdOld => &[],
                };
                listener.websocket(stream, accept, payload).await
            }
            None => listener.lines(stream).await,
        };
        if let Err(error) = result {
            log::debug(format_args!("an event listener is gone: {error}"));
        }
    }
}

impl Listener {
    /// Sends events as JSON lines until the client disconnects or falls behind.
    async fn lines(&self, stream: Stream) -> std::io::Result<()> {
        // Without a length, the stream ends with the connection. Go agents write a bare LF here.
        let head = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: application/json\r\n\
                     X-Content-Type-Options: nosniff\r\n\r\n";
        stream.write_all(head).await?;
        let write = async {
            loop {
                stream.write_all(self.next().await.line.as_bytes()).await?;
                self.sent();
            }
        };
        let read = async {
            let mut scrap = [0; 64];
            while stream.read(&mut scrap).await? > 0 {}
            Ok(())
        };
        let result = self.unless_dropped(write.or(read)).await;
        if !self.overrun.get() {
            stream.close().await;
        }
        result
    }

    /// Ends early if the listener is dropped. Its connection is then closed without shutdown,
    /// because the last event is incomplete and the client does not read.
    async fn unless_dropped(
        &self,
        serve: impl Future<Output = std::io::Result<()>>,
    ) -> std::io::Result<()> {
        let dropped = async {
            self.dropped().await;
            Ok(())
        };
        dropped.or(serve).await
    }

    /// Sends each event as a text message, and pings.
    async fn websocket(&self, stream: Stream, accept: &str, payload: &[u8]) -> std::io::Result<()> {
        let socket = WebSocket::accept(stream, accept).await?;
        let unanswered = Cell::new(0u32);
        let write = async {
            loop {
                let event = self.next().await;
                socket.send(Opcode::Text, event.line.trim_ascii_end().as_bytes()).await?;
                drop(event);
                self.sent();
            }
        };
        let ping = async {
            loop {
                if unanswered.get() > MISSED {
                    return Err(std::io::ErrorKind::TimedOut.into());
                }
                unanswered.set(unanswered.get() + 1);
                socket.send(Opcode::Ping, payload).await?;
                sleep(PING).await;
            }
        };
        let receive = async {
            let mut inbox = Inbox::new(256);
            loop {
                match socket.receive(&mut inbox).await? {
                    Received::Closed | Received::Lost => return Ok(()),
                    Received::Pong => unanswered.set(0),
                    // Ignore messages from a listener.
                    Received::Data { .. } => {}
                }
            }
        };
        let result = self.unless_dropped(write.or(ping).or(receive)).await;
        if !self.overrun.get() {
            socket.close().await;
        }
        result
    }
}
