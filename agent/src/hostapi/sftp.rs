//! `GET /1.0/sftp` (P§4.4): runs an SFTP session in a worker process, so that a hanging file system
//! blocks only that session.

use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::http::head::Request;

use crate::agent::{Agent, error};
use crate::hostapi::server::relay_while_allowed;
use crate::net::serve::{Answer, Reply, Upgrade, switch};
use crate::net::stream::Stream;
use crate::runtime::{Child, Permit, log, within};
use crate::transport::Socket;
use crate::workers::run;

/// Time limit for a session's process after its client has disconnected.
const GRACE: Duration = Duration::from_secs(5);

pub(crate) fn answer(agent: &Rc<Agent>, request: &Request<'_>) -> Answer {
    if !request.headers.has_token("Upgrade", "sftp") {
        return Answer::Reply(Reply::text(400, "Missing or invalid upgrade header"));
    }
    if let Err(why) = run::possible() {
        return error(500, why);
    }
    let Some(permit) = agent.sessions.try_take() else {
        return Answer::Reply(Reply::text(503, "Too many SFTP sessions"));
    };
    let (agent, allowed) = (agent.clone(), agent.policy.changed.seen());
    Answer::Upgrade(Upgrade::new(move |stream| serve(agent, allowed, stream, permit)))
}

/// Serves a session. Holds the permit until the process has exited, even if that hangs on a dead
/// file system: a host that retries must not accumulate hanging processes.
async fn serve(agent: Rc<Agent>, allowed: u64, stream: Stream, permit: Permit) {
    match launch(&agent) {
        Ok((child, socket)) => {
            if let Err(error) = session(&agent, allowed, &stream, &child, socket).await {
                log::debug(format_args!("an SFTP session broke: {error}"));
            }
            stream.close().await;
            // The process exits by itself after it has written what it received.
            if within(GRACE, child.ended()).await.is_none() {
                child.kill();
                child.ended().await;
            }
        }
        Err(error) => {
            log::debug(format_args!("SFTP failed: {error}"));
            stream.close().await;
        }
    }
    drop(permit);
}

async fn session(
    agent: &Agent,
    allowed: u64,
    stream: &Stream,
    child: &Child,
    socket: Socket,
) -> std::io::Result<()> {
    child.started().await?;
    switch(stream, "sftp", "").await?;
    relay_while_allowed(agent, allowed, stream, socket).await
}

fn launch(agent: &Agent) -> std::io::Result<(Rc<Child>, Socket)> {
    // Relative paths start at the working directory under LXD, at the root under Incus.
    let mut arguments = vec!["sftp-server"];
    if agent.flavour == Flavour::Incus {
        arguments.extend(["-d", "/"]);
    }
    let policy = agent.policy.get();
    if policy.read_only() {
        arguments.push("-R");
    }
    let mut add = |option, value| arguments.extend([option, value]);
    for directory in policy.below() {
        add("-b", directory);
    }
    if let Some([user, group]) = policy.files_as() {
        add("-U", user);
        add("-G", group);
    }
    run::connected(agent, &arguments)
}
