//! What the host asks of the agent (P§3.2, P§3.3, P§4).

use std::rc::Rc;

use mote_core::flavour::Flavour;

use super::daemon::Host;
use super::http::{Message, Reader, request};
use crate::machine::executor::{MILLI, Micros, SECOND, Zone};
use crate::machine::handshake::{Certificate, Hello};
use crate::machine::net::{Place, Stream};
use crate::machine::wait::{sleep, within};

/// Where the agent listens.
pub(crate) const AGENT: Place = Place::Vsock(3, 8443);
/// What the host shows as a client; `server.crt` in the guest.
pub(crate) const HOST_CLIENT: Certificate = 9;
/// A program that is not there.
pub(crate) const MISSING: &str = "missing";
/// What the agent says then.
pub(crate) const NOT_THERE: &str = "there is no such program";
/// All of a PUT, or of an event.
const LIMIT: Micros = 3 * SECOND;
/// How soon the guest's policy is in force.
const SETTLED: Micros = 100 * MILLI;
/// How late an answer to a wait with a limit may be.
const SLACK: Micros = SECOND;

/// One call on a connection of its own; `None` if it failed.
async fn call(host: &Rc<Host>, method: &str, path: &str, body: &str) -> Option<Message> {
    let (sim, net) = (&host.sim, &host.net);
    let stream = net.connect(AGENT, Zone::Host).await.ok()?;
    Hello { certificate: HOST_CLIENT, ticket: 0 }.send(&stream).await.ok()?;
    Hello::receive(&stream).await.ok()?;
    let sent = request(method, path, "Connection: close\r\n", body);
    stream.write_all(&sent).await.ok()?;
    let mut reader = Reader::new(&stream);
    let answer = reader.message().await.ok()??;
    let more = within(sim, Zone::Host, 50 * MILLI, reader.message()).await;
    if let Some(Ok(Some(second))) = more {
        sim.fail(format!("{method} {path} is answered twice: {}", second.first));
    }
    sim.trace("agent answers the host", answer.status().into(), 0);
    Some(answer)
}

/// Tells the agent where the host is; never repeated.
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
    /// A user runs a command.
    pub(crate) fn runs(self: &Rc<Self>) {
        let (host, process) = (self.clone(), self.process.get());
        process.inspect(|process| {
            self.sim.spawn(*process, async move { exec(&host).await });
        });
    }

    /// What it says of itself.
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

/// What users of the host cause.
pub(crate) async fn now_and_then(host: Rc<Host>) {
    let (sim, mut number) = (host.sim.clone(), 0);
    loop {
        sleep(&sim, Zone::Host, sim.dice.between(SECOND, 20 * SECOND)).await;
        host.alive().await;
        number += 1;
        match sim.dice.below(5) {
            0 => stranger(&host).await,
            1 => exec(&host).await,
            2 => drop(within(&sim, Zone::Host, LIMIT, call(&host, "GET", "/1.0/state", "")).await),
            _ => {
                let kind = sim.dice.pick(&["config", "device", "lifecycle"]);
                let body = format!(
                    "{{\"type\":\"{kind}\",\"metadata\":{{\"port\":{},\"number\":{number}}}}}",
                    host.port.get()
                );
                let posted = call(&host, "POST", "/1.0/events", &body);
                drop(within(&sim, Zone::Host, LIMIT, posted).await);
            }
        }
    }
}

/// Somebody else's certificate must not reach HTTP.
async fn stranger(host: &Rc<Host>) {
    let work = async {
        let stream: Stream = host.net.connect(AGENT, Zone::Host).await.ok()?;
        Hello { certificate: HOST_CLIENT + 1, ticket: 0 }.send(&stream).await.ok()?;
        Hello::receive(&stream).await.ok()
    };
    if within(&host.sim, Zone::Host, 10 * SECOND, work).await.flatten().is_some() {
        host.sim.fail("a stranger is let in".into());
    }
}

/// Starts a command, connects its sockets, perhaps not all, and waits for its end for some seconds.
async fn exec(host: &Rc<Host>) {
    let (sim, oracle) = (&host.sim, &host.oracle);
    let (excuses, ends, asked) = (oracle.excuses(), oracle.ends(), sim.awake());
    let is_ending = oracle.is_ending();
    let (name, expects) =
        sim.dice.pick(&[("x", "Success"), ("x", "Success"), (MISSING, NOT_THERE)]);
    let command =
        format!("{{\"command\":[\"{name}\"],\"wait-for-websocket\":true,\"interactive\":false}}");
    let begun = call(host, "POST", "/1.0/exec", &command);
    let Some(begun) = within(sim, Zone::Host, LIMIT, begun).await.flatten() else { return };
    let expected = if host.may_exec.get() { 202 } else { 403 };
    // The agent has to hear of another policy first.
    let is_settled = asked > host.may_since.get() + SETTLED;
    if begun.status() != expected && (is_settled || ![202, 403].contains(&begun.status())) {
        return sim.fail(format!("exec is answered {}, not {expected}", begun.status()));
    }
    let Some(path) = begun.header("location") else { return };
    let mut are_all_here = true;
    for secret in secrets(&begun.body) {
        if sim.dice.one_in(20) {
            are_all_here = false;
            continue;
        }
        let socket = socket(host.clone(), format!("{path}/websocket?secret={secret}"));
        sim.spawn(host.process.get().expect("this one"), socket);
    }
    let seconds = sim.dice.between(0, 5);
    let since = sim.awake();
    // One that is told to end, or to make room, ends what it has begun, and is asked no more.
    let is_late = is_ending || ends != oracle.ends();
    let path = format!("{path}/wait?timeout={seconds}");
    let waited = call(host, "GET", &path, "");
    let limit = (seconds + 30) * SECOND;
    let waited = within(sim, Zone::Host, limit, waited).await.flatten();
    let took = sim.awake() - since;
    if host.net.mishaps.get() > 0 || excuses != oracle.excuses() {
        return;
    }
    let has_ended = is_ending || ends != oracle.ends();
    if took > seconds * SECOND + SLACK {
        sim.fail(format!("a wait of {seconds} s took {} ms", took / MILLI));
    }
    let Some(waited) = waited else {
        if !is_late && (are_all_here || !has_ended) {
            sim.fail(format!("a wait of {seconds} s is cut off"));
        }
        return;
    };
    let body = String::from_utf8_lossy(&waited.body);
    let says = |words: &[&str]| words.iter().any(|word| body.contains(word));
    let fits = match waited.status() {
        404 => is_late,
        _ if says(&["Running", "context deadline"]) => true,
        _ if says(&["policy has changed"]) => host.may_since.get() >= asked,
        _ if says(&["The agent ends"]) => has_ended,
        _ => !are_all_here || says(&[expects]),
    };
    if !fits {
        sim.fail(format!("{name} is to end with {expects}: {} {body}", waited.status()));
    }
}

/// The sockets' secrets in the answer.
fn secrets(body: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(body);
    let fds = text.split_once("\"fds\":{").and_then(|(_, rest)| rest.split_once('}'));
    let words = fds.map_or("", |(fds, _)| fds).split('"').map(str::to_owned);
    words.skip(3).step_by(4).collect()
}

/// Connects one, and takes what comes. A second time it is not for the taking.
async fn socket(host: Rc<Host>, path: String) {
    let open = || async {
        let stream = host.net.connect(AGENT, Zone::Host).await.ok()?;
        Hello { certificate: HOST_CLIENT, ticket: 0 }.send(&stream).await.ok()?;
        Hello::receive(&stream).await.ok()?;
        let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        stream.write_all(&request("GET", &path, upgrade, "")).await.ok()?;
        let answer = Reader::new(&stream).message().await.ok()??;
        Some((stream, answer.status()))
    };
    let work = async {
        let (stream, status) = open().await?;
        if status == 101 && host.sim.dice.one_in(8) && open().await.is_some_and(|it| it.1 == 101) {
            host.sim.fail("a websocket is taken twice".into());
        }
        let mut scrap = [0; 256];
        while let Ok(1..) = stream.read(&mut scrap).await {}
        Some(())
    };
    within(&host.sim, Zone::Host, 60 * SECOND, work).await;
}
