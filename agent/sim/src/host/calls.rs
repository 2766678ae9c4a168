//! How the host calls the agent, and which requests it makes (P§3.2, P§3.3, P§4).

use super::daemon::Host;
use super::exec::exec;
use super::http::{Message, Reader, request};
use super::pipes::pipe;
use crate::sim_prelude::*;

/// Reports the host's address to the agent, once.
pub(crate) async fn put(host: &Rc<Host>) {
    let body = host.body();
    let both = async {
        if host.nature.flavour != Flavour::Incus {
            call(host, "GET", "/1.0", "").await?;
        }
        call(host, "PUT", "/1.0", &body).await
    };
    let answer = within(&host.sim, Zone::Host, LIMIT, both).await.flatten();
    host.sim.trace("PUT", answer.map_or(0, |answer| answer.status().into()), 0);
}

impl Host {
    pub(crate) fn runs(self: &Rc<Self>) {
        let (host, process) = (self.clone(), self.process.get());
        process.inspect(|process| {
            self.sim.spawn(*process, async move { exec(&host).await });
        });
    }

    pub(crate) fn body(&self) -> String {
        let member = match self.nature.flavour {
            Flavour::Incus => "dev_incus",
            Flavour::Lxd | Flavour::LxdOld => "devlxd",
        };
        let (port, certificate) = (self.port.get(), self.certificate.get());
        format!(
            "{{\"cid\":2,\"port\":{port},\"certificate\":\"CERTIFICATE {certificate}\",\"{member}\":true}}"
        )
    }
}

pub(crate) async fn now_and_then(host: Rc<Host>) {
    let (sim, mut number) = (host.sim.clone(), 0);
    loop {
        sleep(&sim, Zone::Host, sim.dice.between(SECOND, 20 * SECOND)).await;
        host.alive().await;
        number += 1;
        match sim.dice.below(7) {
            0 => unknown_caller(&host).await,
            1 => exec(&host).await,
            2 => state(&host).await,
            3 => {
                let task = host.clone();
                let process = host.process.get().expect("this one");
                sim.spawn(process, async move { pipe(&task).await });
            }
            _ => {
                let kind = sim.dice.pick(&["config", "device", "lifecycle"]);
                // The device is a share to be mounted.
                let share = "\"action\":\"added\",\"name\":\"d\",\"config\":{\"type\":\"disk\",\"path\":\"/mnt\"}";
                let comma = if kind == "device" { "," } else { "" };
                let share = if kind == "device" { share } else { "" };
                let body = format!(
                    "{{\"type\":\"{kind}\",\"metadata\":{{\"port\":{},\"number\":{number}{comma}{share}}}}}",
                    host.port.get()
                );
                let posted = call(&host, "POST", "/1.0/events", &body);
                drop(within(&sim, Zone::Host, LIMIT, posted).await);
            }
        }
    }
}

/// Requests a report, and checks that it or an error arrives before the host gives up.
async fn state(host: &Rc<Host>) {
    let sim = &host.sim;
    let before = Before::now(&host.oracle);
    // An agent that is absent or suspended does not answer.
    let Some(Some(stream)) = within(sim, Zone::Host, LIMIT, connect(host)).await else { return };
    let asked = call_on(sim, &stream, "GET", "/1.0/state", "");
    let answer = within(sim, Zone::Host, LIMIT, asked).await;
    let is_excused = host.net.mishaps.get() > 0 || before.is_excused() || before.has_ended();
    if !is_excused && answer.flatten().is_none() {
        sim.fail("a report is not answered".into());
    }
}

/// Checks that another certificate does not reach HTTP.
async fn unknown_caller(host: &Rc<Host>) {
    let work = async {
        let stream: Stream = host.net.connect(AGENT, Zone::Host).await.ok()?;
        Hello { certificate: HOST_CLIENT + 1, ticket: 0 }.send(&stream).await.ok()?;
        Hello::receive(&stream).await.ok()
    };
    if within(&host.sim, Zone::Host, 10 * SECOND, work).await.flatten().is_some() {
        host.sim.fail("an unknown caller is accepted".into());
    }
}

/// Where the agent listens.
pub(crate) const AGENT: Place = Place::Vsock(3, 8443);
/// The host's client certificate; `server.crt` in the guest.
pub(crate) const HOST_CLIENT: Certificate = 9;
/// Time limit for a PUT or an event.
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
