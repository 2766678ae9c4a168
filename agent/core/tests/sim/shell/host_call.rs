//! Calls to the host, as by `net/host_call.rs` and `net/tickets.rs`.

use std::cell::RefCell;
use std::rc::Rc;

use mote_core::dial::{Failure, Retry, Tries};
use mote_core::host_address::HostAddress;
use mote_core::http::body::Decoder;
use mote_core::http::head::{Method, response};
use mote_core::http::reply::{RequestLine, write_request};
use mote_core::limits;
use mote_core::tls::tickets::{Earner, Tickets, Turn};

use crate::machine::executor::{MILLI, Micros, SECOND, Sim, Zone};
use crate::machine::handshake::{Certificate, Hello};
use crate::machine::net::{Net, NoWay, Place, Stream};
use crate::machine::wait::{Signal, sleep, within};

const CONNECT: Micros = 2 * SECOND;
const HANDSHAKE: Micros = 5 * SECOND;
const PIECE: Micros = 30 * SECOND;
/// Longest wait for another call's ticket.
const TICKET_WAIT: Micros = 250 * MILLI;
/// Longest write without progress.
pub(crate) const STALLED: Micros = 10 * SECOND;
/// The agent's certificate.
pub(crate) const OURS: Certificate = 7;

/// The host's address and what it must show.
pub(crate) struct Link {
    pub(crate) address: HostAddress,
    pub(crate) pin: Certificate,
    pub(crate) tls: Rc<Store>,
}

/// Tickets of one pin.
#[derive(Default)]
pub(crate) struct Store {
    tickets: RefCell<Tickets<u64>>,
    changed: Signal,
}

/// A permit for a full handshake.
struct Earning {
    store: Rc<Store>,
    earner: Earner,
    is_answered: bool,
}

impl Drop for Earning {
    fn drop(&mut self) {
        self.store.tickets.borrow_mut().earned(self.earner, self.is_answered);
        self.store.changed.raise();
    }
}

impl Store {
    /// Waits for a turn, then takes what there is to resume with.
    async fn turn(self: &Rc<Self>, sim: &Sim) -> (Option<Earning>, u64) {
        let admitted = async {
            loop {
                let seen = self.changed.seen();
                let turn = self.tickets.borrow_mut().turn();
                match turn {
                    Turn::Go => return None,
                    Turn::Earn(earner) => {
                        return Some(Earning { store: self.clone(), earner, is_answered: false });
                    }
                    Turn::Wait => self.changed.after(seen).await,
                }
            }
        };
        let earning = within(sim, Zone::Guest, TICKET_WAIT, admitted).await.flatten();
        (earning, self.tickets.borrow_mut().take().unwrap_or(0))
    }
}

/// One request to the host.
pub(crate) struct Call<'a> {
    pub(crate) method: &'a str,
    pub(crate) target: &'a str,
    pub(crate) body: Option<&'a [u8]>,
    pub(crate) extra: &'a [(&'a str, &'a str)],
    pub(crate) patience: Micros,
    pub(crate) retry: Retry,
}

/// Why there was no answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed(pub(crate) &'static str);

/// The host's answer.
pub(crate) struct HostReply {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

/// The answer's head, and what has come behind it.
struct Begun {
    status: u16,
    decoder: Decoder,
    bytes: Vec<u8>,
}

/// Makes the call and takes the whole answer.
pub(crate) async fn call(
    sim: &Sim,
    net: &Rc<Net>,
    link: &Link,
    call: &Call<'_>,
) -> Result<HostReply, Failed> {
    let (mut earning, ticket) = link.tls.turn(sim).await;
    let stream = dial(sim, net, link, call.retry).await?;
    let shaken = within(sim, Zone::Guest, HANDSHAKE, shake(&stream, link, ticket)).await;
    shaken.ok_or(Failed("TLS took too long"))??;
    let mut out = String::new();
    let body = call.body.map(|body| u64::try_from(body.len()).expect("a length"));
    let line = RequestLine {
        method: call.method,
        target: call.target,
        host: "custom.socket",
        body,
        close: true,
        extra: call.extra,
    };
    write_request(&mut out, &line).map_err(|_| Failed("a header cannot be sent"))?;
    let mut out = out.into_bytes();
    out.extend_from_slice(call.body.unwrap_or_default());
    let written = within(sim, Zone::Guest, STALLED, stream.write_all(&out)).await;
    written.ok_or(Failed("it stalls"))?.map_err(|_| Failed("it broke"))?;
    let begun = within(sim, Zone::Guest, call.patience, read_head(&stream, call.method)).await;
    let begun = begun.ok_or(Failed("the host took too long"))??;
    if let Some(earning) = &mut earning {
        earning.is_answered = true;
    }
    drop(earning);
    read_body(sim, &stream, begun).await
}

async fn shake(stream: &Stream, link: &Link, ticket: u64) -> Result<(), Failed> {
    let broke = |_| Failed("TLS broke");
    Hello { certificate: OURS, ticket }.send(stream).await.map_err(broke)?;
    let theirs = Hello::receive(stream).await.map_err(broke)?;
    if theirs.certificate != link.pin {
        return Err(Failed("another certificate"));
    }
    if theirs.ticket != 0 {
        link.tls.tickets.borrow_mut().put(theirs.ticket);
        link.tls.changed.raise();
    }
    Ok(())
}

async fn dial(sim: &Sim, net: &Rc<Net>, link: &Link, retry: Retry) -> Result<Stream, Failed> {
    let mut tries = Tries::new(retry);
    let place = Place::Vsock(link.address.cid, link.address.port);
    loop {
        let failure = match within(sim, Zone::Guest, CONNECT, net.connect(place, Zone::Guest)).await
        {
            Some(Ok(stream)) => return Ok(stream),
            Some(Err(NoWay::Refused)) => Failure::Refused,
            Some(Err(NoWay::Other)) => Failure::Other,
            None => Failure::TimedOut,
        };
        let pause = tries.failed(failure).ok_or(Failed("cannot reach host"))?;
        let pause = Micros::try_from(pause.as_micros()).expect("a short pause");
        sleep(sim, Zone::Guest, pause).await;
    }
}

async fn read_head(stream: &Stream, method: &str) -> Result<Begun, Failed> {
    let to = if method == "HEAD" { Method::Head } else { Method::Get };
    let mut bytes = Vec::new();
    loop {
        let head = response(&bytes, to).map_err(|_| Failed("no HTTP"))?;
        let head = head.map(|(head, length)| (head.status, Decoder::new(head.framing), length));
        if let Some((status, decoder, length)) = head {
            drop(bytes.drain(..length));
            if status >= 200 {
                return Ok(Begun { status, decoder, bytes });
            }
        } else if receive(stream, &mut bytes).await? == 0 {
            return Err(Failed("no answer"));
        }
    }
}

async fn read_body(sim: &Sim, stream: &Stream, mut begun: Begun) -> Result<HostReply, Failed> {
    let mut body = Vec::new();
    while !begun.decoder.finished() {
        let step = begun.decoder.decode(&begun.bytes).map_err(|_| Failed("a broken body"))?;
        let consumed = step.consumed;
        body.extend_from_slice(step.data);
        drop(begun.bytes.drain(..consumed));
        if body.len() > limits::HOST_REPLY {
            return Err(Failed("too long"));
        }
        if consumed > 0 || begun.decoder.finished() {
            continue;
        }
        let more = within(sim, Zone::Guest, PIECE, receive(stream, &mut begun.bytes)).await;
        if more.ok_or(Failed("the host stopped"))?? == 0 {
            begun.decoder.eof().map_err(|_| Failed("cut"))?;
            break;
        }
    }
    Ok(HostReply { status: begun.status, body })
}

async fn receive(stream: &Stream, bytes: &mut Vec<u8>) -> Result<usize, Failed> {
    let mut buffer = [0; 2048];
    let count = stream.read(&mut buffer).await.map_err(|_| Failed("it broke"))?;
    bytes.extend_from_slice(&buffer[..count]);
    Ok(count)
}
