//! `POST /1.0/port-forward` of Incus (P§4.7): connects to a TCP port of the guest.

use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::port_forward::Target;
use mote_core::http::head::Request;

use crate::agent::{Agent, error, error_by};
use crate::hostapi::server::{denied, relay_while_allowed};
use crate::net::serve::{Answer, Upgrade, switch};
use crate::net::stream::Stream;
use crate::runtime::log::audit;
use crate::runtime::log::audit::Quoted;
use crate::runtime::{Permit, log, within};
use crate::transport::{Socket, dial_tcp};

/// Time limit for the guest's port to accept; the host waits for an hour.
const DIAL: Duration = Duration::from_secs(30);

pub(crate) async fn answer(agent: &Rc<Agent>, request: &Request<'_>, body: &[u8]) -> Answer {
    if !request.headers.has_token("Upgrade", "tcp") {
        return error(400, "Missing or invalid upgrade header");
    }
    let target = match Target::parse(body) {
        Ok(target) => target,
        Err(why) => return error_by(400, &why),
    };
    if let Err(what) = agent.policy.get().check_port(&target) {
        return denied(agent, &what);
    }
    let allowed = agent.policy.changed.seen();
    let failed = |why: &str| {
        let Target { name, port } = &target;
        error(500, &format!("Failed connecting to \"{name}\" port {port}: {why}"))
    };
    let Some(address) = target.address() else { return failed("not an IP address") };
    audit::note(format_args!("port-forward to={} port={}", Quoted(&target.name), target.port));
    match within(DIAL, dial_tcp(address)).await {
        Some(Ok(socket)) => {
            let (agent, act) = (agent.clone(), agent.forwards.try_take());
            Answer::Upgrade(Upgrade::new(move |stream| serve(agent, allowed, socket, stream, act)))
        }
        Some(Err(why)) => failed(&why.to_string()),
        None => failed("timed out"),
    }
}

async fn serve(
    agent: Rc<Agent>,
    allowed: u64,
    local: Socket,
    stream: Stream,
    _act: Option<Permit>,
) {
    let result = match switch(&stream, "tcp", "").await {
        Ok(()) => relay_while_allowed(&agent, allowed, &stream, local).await,
        Err(error) => Err(error),
    };
    if let Err(error) = result {
        log::debug(format_args!("a forwarded connection broke: {error}"));
    }
    stream.close().await;
}
