//! How the host calls the agent (P§3.2).

use std::rc::Rc;

use super::daemon::Host;
use super::http::{Message, Reader, request};
use crate::machine::{Certificate, Hello, MILLI, Micros, Place, SECOND, Sim, Stream, Zone, within};

/// Where the agent listens.
pub(crate) const AGENT: Place = Place::Vsock(3, 8443);
/// The host's client certificate; `server.crt` in the guest.
pub(crate) const HOST_CLIENT: Certificate = 9;
/// Time limit of a PUT or an event.
pub(super) const LIMIT: Micros = 3 * SECOND;

pub(crate) async fn connect(host: &Rc<Host>) -> Option<Stream> {
    let stream = host.net.connect(AGENT, Zone::Host).await.ok()?;
    Hello { certificate: HOST_CLIENT, ticket: 0 }.send(&stream).await.ok()?;
    Hello::receive(&stream).await.ok()?;
    Some(stream)
}

/// Makes a call on its own connection; returns `None` if it failed.
pub(super) async fn call(host: &Rc<Host>, method: &str, path: &str, body: &str) -> Option<Message> {
    let sim = &host.sim;
    let stream = connect(host).await?;
    call_on(sim, &stream, method, path, body).await
}

pub(super) async fn call_on(
    sim: &Sim,
    stream: &Stream,
    method: &str,
    path: &str,
    body: &str,
) -> Option<Message> {
    let sent = request(method, path, "Connection: close\r\n", body);
    stream.write_all(&sent).await.ok()?;
    let mut reader = Reader::new(stream);
    let answer = reader.message().await.ok()??;
    let more = within(sim, Zone::Host, 50 * MILLI, reader.message()).await;
    if let Some(Ok(Some(second))) = more {
        sim.fail(format!("{method} {path} is answered twice: {}", second.first));
    }
    sim.trace("agent answers the host", answer.status().into(), 0);
    Some(answer)
}
