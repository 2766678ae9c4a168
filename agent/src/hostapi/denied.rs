//! Refuses requests that the guest's policy denies, and ends connections that it no longer allows.

use std::fmt::Display;
use std::io;

use smol::future::FutureExt;

use crate::agent::{Agent, error};
use crate::net::relay::relay;
use crate::net::serve::Answer;
use crate::net::stream::Stream;
use crate::runtime::io_error;
use crate::transport::Socket;

/// Relays a connection until either side ends it or the policy changes. `allowed` is the policy's
/// change count when the connection was allowed.
pub(crate) async fn relay_while_allowed(
    agent: &Agent,
    allowed: u64,
    stream: &Stream,
    socket: Socket,
) -> io::Result<()> {
    let changed = async {
        agent.policy.changed.after(allowed).await;
        Err(io_error("the guest's policy has changed"))
    };
    changed.or(relay(stream, socket)).await
}

/// Returns 403 with the reason, and logs it.
pub(crate) fn denied(agent: &Agent, what: &dyn Display) -> Answer {
    // Say so: an invalid file denies everything, including what would be needed to repair it.
    let broken = if agent.policy.is_broken.get() { ": its file is invalid" } else { "" };
    let why = format!("The guest's policy does not allow {what}{broken}");
    agent.refused(&why);
    error(403, &why)
}
