//! The host's server for guests (P§3.5, P§5.3, P§5.4).

use super::daemon::Host;
use super::http::{Message, Reader};
use crate::sim_prelude::*;

const AGENTS: Certificate = 7;

pub(crate) async fn run(host: Rc<Host>) {
    let listener = host.net.listen(Place::Vsock(2, host.port.get()));
    loop {
        let stream = Rc::new(listener.accept().await);
        let count = {
            let mut calls = host.calls.borrow_mut();
            calls.retain(|call| call.upgrade().is_some_and(|call| !call.is_gone()));
            calls.push(Rc::downgrade(&stream));
            calls.len()
        };
        host.oracle.at_most("calls to the host", count, host.nature.most);
        let (task, process) = (host.clone(), host.process.get().expect("this one"));
        host.sim.spawn(process, async move { serve(&task, &stream).await });
    }
}

async fn serve(host: &Rc<Host>, stream: &Stream) {
    let sim = &host.sim;
    host.alive().await;
    let Some(Some(())) = within(sim, Zone::Host, 5 * SECOND, shake(host, stream)).await else {
        return;
    };
    let mut reader = Reader::new(stream);
    let read = within(sim, Zone::Host, 3 * SECOND, reader.message()).await;
    let Some(Ok(Some(request))) = read else { return };
    host.alive().await;
    sleep(sim, Zone::Host, sim.dice.between(100, 5 * MILLI)).await;
    if stream.is_gone() {
        // The caller already knows that the call failed.
        return;
    }
    let (status, content) = answer(host, &request).await;
    if host.net.mishaps.get() > 0 && sim.dice.one_in(20) {
        sleep(sim, Zone::Host, sim.dice.between(MILLI, 40 * SECOND)).await;
    }
    let body = if status < 400 {
        format!(
            "{{\"type\":\"sync\",\"status\":\"Success\",\"status_code\":200,\"operation\":\"\",\
             \"error_code\":0,\"error\":\"\",\"metadata\":{content}}}\n"
        )
    } else {
        format!("{{\"type\":\"error\",\"error_code\":{status},\"error\":\"{content}\"}}\n")
    };
    let head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n");
    let out = match sim.dice.below(3) {
        0 => format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()),
        1 => format!("{head}Connection: close\r\n\r\n{body}"),
        _ => {
            let (one, other) = body.split_at(body.len() / 2);
            let (first, second) = (one.len(), other.len());
            format!(
                "{head}Transfer-Encoding: chunked\r\n\r\n{first:x}\r\n{one}\r\n{second:x}\r\n{other}\r\n0\r\n\r\n"
            )
        }
    };
    drop(stream.write_all(out.as_bytes()).await);
}

async fn shake(host: &Rc<Host>, stream: &Stream) -> Option<()> {
    let theirs = Hello::receive(stream).await.ok()?;
    if theirs.ticket != 0 {
        host.oracle.once("ticket", theirs.ticket);
    }
    let certificate = host.certificate.get();
    let is_resumed = host.tickets.borrow_mut().remove(&theirs.ticket) == Some(certificate);
    let count = &host.handshakes[usize::from(is_resumed)];
    count.set(count.get() + 1);
    let work = if is_resumed { 2 * MILLI } else { 30 * MILLI };
    sleep(&host.sim, Zone::Host, host.sim.dice.between(work / 2, work)).await;
    let mut ticket = 0;
    if host.nature.gives_tickets {
        ticket = host.sim.number();
        host.tickets.borrow_mut().insert(ticket, certificate);
    }
    Hello { certificate, ticket }.send(stream).await.ok()?;
    if theirs.certificate != AGENTS {
        host.sim.fail("the agent shows another certificate".into());
    }
    Some(())
}

/// Returns the status, and metadata or an error text.
async fn answer(host: &Rc<Host>, request: &Message) -> (u16, String) {
    if host.refuses.get() {
        return (401, "Unauthorized".into());
    }
    let mut words = request.first.split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    let number = request.header("If-Match").and_then(|text| text.parse().ok());
    if let Some(number) = number {
        host.oracle.once("request at the host", number);
    }
    let shown = number.unwrap_or(0);
    match (method, path) {
        ("GET", "/1.0") => {
            host.oracle.host_answers_well(host.port.get());
            let state = host.keeps.get().name();
            let content =
                "\"api_version\":\"1.0\",\"auth\":\"untrusted\",\"environment\":{\"a\":1}";
            (200, format!("{{{content},\"state\":\"{state}\"}}"))
        }
        ("PATCH", "/1.0") => {
            let is = |word: Word| {
                let said = format!("{{\"state\":\"{}\"}}", word.name());
                request.body == said.as_bytes()
            };
            let Some(word) = [Word::Started, Word::Ready].into_iter().find(|word| is(*word)) else {
                host.sim.fail("the host received an invalid state".into());
                return (400, "Invalid state".into());
            };
            host.oracle.host_hears(word);
            host.keeps.set(word);
            (200, "{}".into())
        }
        ("GET", "/1.0/config/user.a" | "/1.0/meta-data") => (200, format!("\"{shown}\"")),
        ("GET", "/1.0/devices") => (200, format!("{{\"number\":{shown}}}")),
        ("GET", path) if path.starts_with("/1.0/operations/") => {
            sleep(&host.sim, Zone::Host, host.sim.dice.between(0, 20 * SECOND)).await;
            (200, format!("{{\"number\":{shown}}}"))
        }
        ("POST", "/1.0/storage-pools/p/volumes/custom") => (200, format!("{{\"number\":{shown}}}")),
        _ => {
            host.sim.fail(format!("the host is asked {method} {path}"));
            (404, "not found".into())
        }
    }
}
