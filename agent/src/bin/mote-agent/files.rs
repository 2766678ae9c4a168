//! `GET /1.0/sftp` (P§4.4): an SFTP session in a process of its own, so that a file system that
//! hangs stops that session and nothing else.

use std::rc::Rc;
use std::time::Duration;

use mote_agent::flavour::Flavour;
use mote_agent::http::head::Request;

use crate::agent::Agent;
use crate::children::Child;
use crate::clock::within;
use crate::exchange::{Answer, Reply};
use crate::host::Place;
use crate::log;
use crate::relay::relay;
use crate::socket::Socket;
use crate::stream::Stream;
use crate::upgrade::{Upgrade, switch};
use crate::worker;

/// Sessions at once. Over it: 503.
pub(crate) const SESSIONS: usize = 64;

/// For a server to finish once its client has gone.
const GRACE: Duration = Duration::from_secs(5);

/// Answers the request.
pub(crate) fn answer(agent: &Rc<Agent>, request: &Request<'_>) -> Answer {
    if !request.headers.has_token("Upgrade", "sftp") {
        return Answer::Reply(Reply::text(400, "Missing or invalid upgrade header"));
    }
    let Some(place) = agent.sessions.try_take() else {
        return Answer::Reply(Reply::text(503, "Too many SFTP sessions"));
    };
    let agent = agent.clone();
    Answer::Upgrade(Upgrade::new(|stream| serve(agent, stream, place)))
}

/// Serves a session to its end. One whose server hangs on a dead file system keeps its place until the
/// server is really gone, or a host that tries again and again would get any number of them.
async fn serve(agent: Rc<Agent>, stream: Stream, place: Place) {
    match start(&agent, &stream).await {
        Ok((child, socket)) => {
            if let Err(error) = relay(&stream, socket).await {
                log::debug(format_args!("an SFTP session was cut: {error}"));
            }
            stream.close().await;
            // It ends by itself, with what it was already told to write.
            if within(GRACE, child.ended()).await.is_none() {
                child.kill();
                child.ended().await;
            }
        }
        Err(error) => {
            log::debug(format_args!("no SFTP session: {error}"));
            stream.close().await;
        }
    }
    drop(place);
}

async fn start(agent: &Agent, stream: &Stream) -> std::io::Result<(Rc<Child>, Socket)> {
    // Relative paths begin at the working directory under LXD, at the root under Incus.
    let arguments: &[&str] = match agent.flavour {
        Flavour::Incus => &["sftp-server", "-d", "/"],
        Flavour::Lxd | Flavour::LxdOld => &["sftp-server"],
    };
    let (child, socket) = worker::connected(agent, arguments)?;
    child.started().await?;
    switch(stream, "sftp").await?;
    Ok((child, socket))
}
