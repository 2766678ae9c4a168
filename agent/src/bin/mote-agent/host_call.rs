//! Our calls to the host: one short-lived vsock and TLS connection each (P§3.5), with the dial
//! policy of P§3.2. Nothing is asked before the real request; the second call to the same host
//! resumes the first one's session.

use std::io;
use std::time::Duration;

use futures_lite::future::zip;
use mote_agent::http::body::Decoder;
use mote_agent::http::head::{self, Framing, Method};
use mote_agent::http::reply::{RequestLine, write_request};
use mote_agent::limits;
use mote_agent::status::Address;

use crate::clock::{sleep, within};
use crate::socket::{Socket, Transport};
use crate::stream::Stream;
use crate::tls::{self, Pin};

/// Dial attempts and the pause between them (P§3.2).
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(100);
/// The pause for meta-data, which boot scripts ask for before the host may be up (P§5.3).
const PATIENT_PAUSE: Duration = Duration::from_millis(500);
/// One connect; Linux gives a vsock 2 s.
const CONNECT: Duration = Duration::from_secs(2);
/// The TLS handshake (P§3.2).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Between two pieces of a body.
const PIECE: Duration = Duration::from_secs(30);
/// What we read at a time, bytes: an answer as short as most are; and a TLS record's worth, if there is more
/// to come.
const SHORT: usize = 2 * 1024;
const CHUNK: usize = 16 * 1024;
/// The host ignores it (P§3.5).
const HOST: &str = "custom.socket";

/// Where the host is and how it is known.
pub(crate) struct Link {
    /// Told by PUT, CONNECT or agent.conf.
    pub(crate) address: Address,
    /// What it must present.
    pub(crate) pin: Pin,
    /// Ready-made TLS, with the tickets of earlier calls.
    pub(crate) tls: tls::Client,
}

/// One request to the host.
pub(crate) struct Call<'a> {
    /// As it goes on the wire.
    pub(crate) method: &'a str,
    /// Path and query.
    pub(crate) target: &'a str,
    /// The body, if the method has one.
    pub(crate) body: Option<&'a [u8]>,
    /// Further headers, passed on from the guest.
    pub(crate) extra: &'a [(&'a str, &'a str)],
    /// How long the host may think.
    pub(crate) patience: Duration,
    /// Whether to wait longer for a host that is not there yet.
    pub(crate) retry: Retry,
}

/// How hard to try to connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Retry {
    /// P§3.2: ten tries, but a refusal is final.
    Dial,
    /// P§5.3 for meta-data: ten tries 500 ms apart whatever happens.
    Patient,
}

/// A call that failed. All of these are the host's doing, so a guest is told 500 (P§5.4).
#[derive(Debug)]
pub(crate) struct Failed(pub(crate) String);

/// The host's answer, its body still to come.
pub(crate) struct Incoming {
    stream: Stream,
    buffer: Vec<u8>,
    decoder: Decoder,
    /// HTTP status.
    pub(crate) status: u16,
    /// The head's fields, as they came.
    pub(crate) headers: Vec<(String, String)>,
}

/// A whole answer.
pub(crate) struct HostReply {
    /// HTTP status.
    pub(crate) status: u16,
    /// `ETag`.
    pub(crate) etag: Option<String>,
    /// The body, at most [`limits::HOST_REPLY`].
    pub(crate) body: Vec<u8>,
}

/// Makes the call and takes the whole answer.
///
/// # Errors
/// [`Failed`].
pub(crate) async fn call(
    transport: &Transport,
    link: &Link,
    call: &Call<'_>,
) -> Result<HostReply, Failed> {
    let mut incoming = open(transport, link, call).await?;
    let mut body = Vec::new();
    while incoming.more(&mut body).await? {
        if body.len() > limits::HOST_REPLY {
            return Err(Failed("the host's answer is too long".into()));
        }
    }
    let etag = incoming.header("etag").map(str::to_owned);
    Ok(HostReply { status: incoming.status, etag, body })
}

/// Makes the call and takes the answer's head.
///
/// # Errors
/// [`Failed`].
pub(crate) async fn open(
    transport: &Transport,
    link: &Link,
    call: &Call<'_>,
) -> Result<Incoming, Failed> {
    let earning = link.tls.tickets.turn().await;
    // The keys are made while the dialled host is on its way to answer.
    let (socket, begun) =
        zip(dial(transport, link.address, call.retry), async { link.tls.begin() }).await;
    let begun = begun.map_err(|why| Failed(format!("TLS with the host: {why}")))?;
    let stream = match within(HANDSHAKE, Stream::connect(socket?, begun)).await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => return Err(Failed(format!("TLS with the host failed: {error}"))),
        None => return Err(Failed("TLS with the host took too long".into())),
    };
    crate::log::debug(format_args!(
        "{} {} ({})",
        call.method,
        call.target,
        if stream.is_resumed() { "resumed" } else { "full handshake" }
    ));
    let mut out = String::with_capacity(512);
    write_request(
        &mut out,
        &RequestLine {
            method: call.method,
            target: call.target,
            host: HOST,
            body: call.body.map(|body| u64::try_from(body.len()).unwrap_or(u64::MAX)),
            close: true,
            extra: call.extra,
        },
    )
    .map_err(|_| Failed("a header cannot be sent".into()))?;
    // Head and body in one go: the host allows 3 s for both (P§3.5).
    let mut out = out.into_bytes();
    out.extend_from_slice(call.body.unwrap_or_default());
    stream.write_all(&out).await.map_err(|error| broken(&error))?;
    let method = if call.method == "HEAD" { Method::Head } else { Method::Get };
    let Some(incoming) = within(call.patience, read_head(stream, method)).await else {
        return Err(Failed("the host took too long to answer".into()));
    };
    if let (Ok(_), Some(earning)) = (&incoming, earning) {
        earning.answered();
    }
    incoming
}

async fn read_head(stream: Stream, method: Method) -> Result<Incoming, Failed> {
    let mut buffer = Vec::new();
    loop {
        match parse_head(&buffer, method)? {
            // An interim answer says nothing yet.
            Some(head) if head.status < 200 && head.status != 101 => {
                drop(buffer.drain(..head.length));
            }
            Some(head) => {
                drop(buffer.drain(..head.length));
                let decoder = Decoder::new(head.framing);
                let (status, headers) = (head.status, head.headers);
                return Ok(Incoming { stream, buffer, decoder, status, headers });
            }
            None => {
                if receive(&stream, &mut buffer, SHORT).await? == 0 {
                    return Err(Failed("the host hung up without an answer".into()));
                }
            }
        }
    }
}

/// A response's head with fields of its own.
struct OwnedHead {
    status: u16,
    framing: Framing,
    headers: Vec<(String, String)>,
    length: usize,
}

fn parse_head(bytes: &[u8], method: Method) -> Result<Option<OwnedHead>, Failed> {
    let parsed = head::response(bytes, method)
        .map_err(|error| Failed(format!("the host's answer: {}", error.text())))?;
    Ok(parsed.map(|(response, length)| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = response.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_owned(), text(value))).collect();
        OwnedHead { status: response.status, framing: response.framing, headers, length }
    }))
}

impl Incoming {
    /// The first header of that name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut all = self.headers.iter();
        all.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// Appends the next piece of the body; false is its end.
    ///
    /// # Errors
    /// [`Failed`], also if the body ends early.
    pub(crate) async fn more(&mut self, out: &mut Vec<u8>) -> Result<bool, Failed> {
        loop {
            if self.decoder.finished() {
                return Ok(false);
            }
            let step = self.decoder.decode(&self.buffer);
            let step = step.map_err(|_| Failed("the host's answer has a broken body".into()))?;
            let (consumed, got) = (step.consumed, !step.data.is_empty());
            out.extend_from_slice(step.data);
            drop(self.buffer.drain(..consumed));
            if got {
                return Ok(true);
            }
            if consumed > 0 || self.decoder.finished() {
                continue;
            }
            match within(PIECE, receive(&self.stream, &mut self.buffer, CHUNK)).await {
                None => return Err(Failed("the host stopped in the middle of its answer".into())),
                Some(Err(error)) => return Err(error),
                Some(Ok(0)) => {
                    return match self.decoder.eof() {
                        Ok(()) => Ok(false),
                        Err(_) => {
                            Err(Failed("the host hung up in the middle of its answer".into()))
                        }
                    };
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

async fn receive(stream: &Stream, buffer: &mut Vec<u8>, most: usize) -> Result<usize, Failed> {
    let old = buffer.len();
    buffer.resize(old + most, 0);
    let read = stream.read(buffer.get_mut(old..).unwrap_or_default()).await;
    buffer.truncate(old + *read.as_ref().unwrap_or(&0));
    read.map_err(|error| broken(&error))
}

/// Connects, as patiently as asked.
async fn dial(transport: &Transport, address: Address, retry: Retry) -> Result<Socket, Failed> {
    let mut timeouts = 0;
    let mut tries = 0;
    loop {
        tries += 1;
        let error = match within(CONNECT, transport.dial(address)).await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => error,
            None => io::ErrorKind::TimedOut.into(),
        };
        timeouts += u32::from(error.kind() == io::ErrorKind::TimedOut);
        let final_word = match retry {
            // A vsock port without a listener answers with a reset: that is its refusal.
            Retry::Dial => timeouts > 1 || is_refusal(&error),
            Retry::Patient => timeouts > 1,
        };
        if final_word || tries >= TRIES {
            return Err(Failed(format!("cannot reach the host: {error}")));
        }
        sleep(if retry == Retry::Patient { PATIENT_PAUSE } else { PAUSE }).await;
    }
}

fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound
    )
}

fn broken(error: &io::Error) -> Failed {
    Failed(format!("the connection to the host broke: {error}"))
}
