//! `GET /1.0/sftp` (P§4.4): an SFTP session in a process of its own, so that a file system that
//! hangs stops that session and nothing else.

use std::cell::Cell;
use std::rc::Rc;

use mote_agent::flavour::Flavour;
use mote_agent::http::head::Request;

use crate::agent::Agent;
use crate::exchange::{Answer, Reply};
use crate::log;
use crate::relay::relay;
use crate::stream::Stream;
use crate::upgrade::{Upgrade, switch};
use crate::worker;

/// Sessions at once. Over it: 503.
const SESSIONS: usize = 64;

/// How many sessions there are.
#[derive(Default)]
pub(crate) struct Sessions(Cell<usize>);

/// Answers the request.
pub(crate) fn answer(agent: &Rc<Agent>, request: &Request<'_>) -> Answer {
    if !request.headers.has_token("Upgrade", "sftp") {
        return Answer::Reply(Reply::text(400, "Missing or invalid upgrade header"));
    }
    if agent.sessions.0.get() >= SESSIONS {
        return Answer::Reply(Reply::text(503, "Too many SFTP sessions"));
    }
    let agent = agent.clone();
    Answer::Upgrade(Upgrade::new(|stream| serve(agent, stream)))
}

/// Serves a session to its end.
async fn serve(agent: Rc<Agent>, stream: Stream) {
    agent.sessions.0.set(agent.sessions.0.get() + 1);
    if let Err(error) = session(&agent, &stream).await {
        log::debug(format_args!("an SFTP session was cut: {error}"));
    }
    agent.sessions.0.set(agent.sessions.0.get().saturating_sub(1));
    stream.close().await;
}

async fn session(agent: &Agent, stream: &Stream) -> std::io::Result<()> {
    // Relative paths begin at the working directory under LXD, at the root under Incus.
    let arguments: &[&str] = match agent.flavour {
        Flavour::Incus => &["sftp-server", "-d", "/"],
        Flavour::Lxd | Flavour::LxdOld => &["sftp-server"],
    };
    let (child, socket) = worker::connected(agent, arguments)?;
    child.started().await?;
    switch(stream, "sftp").await?;
    relay(stream, socket).await
}
