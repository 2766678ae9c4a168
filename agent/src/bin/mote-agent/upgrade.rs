//! What a connection may become after its last HTTP request. The request's buffers are gone by then:
//! an idle exec or listener costs its TLS state and little more.

use std::rc::Rc;

use crate::agent::Agent;
use crate::events::Listening;
use crate::exec::Arrival;
use crate::forward::Forward;
use crate::stream::Stream;
use crate::{files, forward};

/// What it becomes.
pub(crate) enum Upgrade {
    /// A listener of `/1.0/events`.
    Events(Listening),
    /// One of the sockets of an exec.
    Exec(Arrival),
    /// An SFTP session.
    Files,
    /// A connection to a port of the guest.
    Forward(Forward),
}

impl Upgrade {
    /// Serves it to its end.
    pub(crate) async fn run(self, agent: &Rc<Agent>, stream: Stream) {
        match self {
            Self::Events(listening) => listening.serve(stream).await,
            Self::Exec(arrival) => arrival.serve(stream).await,
            Self::Files => files::serve(agent, stream).await,
            Self::Forward(forward) => forward::serve(forward, stream).await,
        }
    }
}

/// Says yes to an upgrade to `protocol`, in a record of its own: the host reads the head with a
/// buffer it throws away (P§4.4).
///
/// # Errors
/// The stream's.
pub(crate) async fn switch(stream: &Stream, protocol: &str) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: {protocol}\r\nConnection: Upgrade\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await
}
