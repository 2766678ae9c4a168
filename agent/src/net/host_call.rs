//! Calls the host: one short-lived vsock and TLS connection per call (P§3.5), with the dial policy
//! of P§3.2. Later calls to the same host resume the TLS session.

use std::io;
use std::time::Duration;

use mote_core::dial::{Call, Failure, Reply, Retry, Tries, find};
use mote_core::host_address::HostAddress;
use mote_core::http::body::Decoder;
use mote_core::http::head::{self, Framing, Method};
use mote_core::http::reply::{RequestLine, write_request};
use mote_core::limits;
use mote_core::status::Host;
use rustix::io::Errno;
use smol::future::zip;

use crate::net::stream::Stream;
use crate::net::tls;
use crate::runtime::{sleep, within};
use crate::transport::{Socket, Transport, is_shortage};

/// Time limit for one connect: Linux's own for vsock.
const CONNECT: Duration = Duration::from_secs(2);
/// Time limit for the TLS handshake (P§3.2).
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time limit for the next piece of a body.
const BODY_PIECE_TIMEOUT: Duration = Duration::from_secs(30);
/// Read size for a head, in bytes. Most complete answers fit into it.
const SHORT: usize = 2 * 1024;
/// Read size for the rest of a body, in bytes: one TLS record.
const CHUNK: usize = 16 * 1024;
/// `Host` header; the host ignores it (P§3.5).
const HOST: &str = "custom.socket";

pub(crate) struct Link {
    pub(crate) transport: Transport,
    /// The host; [`Status`](mote_core::status::Status) decides which one.
    pub(crate) host: Host,
    /// TLS configuration for its certificate, with the session tickets of earlier calls.
    pub(crate) tls: tls::Client,
}

/// Why a call failed; the guest gets 500 (P§5.4). Boxed, because many results contain it.
pub(crate) struct CallError(Box<Why>);

struct Why {
    text: String,
    ours: bool,
}

impl CallError {
    fn by(error: &io::Error, text: String) -> Self {
        Self(Box::new(Why { text, ours: is_shortage(error) }))
    }

    pub(crate) fn why(&self) -> &str {
        &self.0.text
    }

    pub(crate) fn into_why(self) -> String {
        self.0.text
    }

    /// Returns whether descriptors or memory ran out, which says nothing about the host.
    pub(crate) fn is_local_shortage(&self) -> bool {
        self.0.ours
    }
}

impl From<String> for CallError {
    fn from(text: String) -> Self {
        Self(Box::new(Why { text, ours: false }))
    }
}

impl From<&str> for CallError {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<io::Error> for CallError {
    fn from(error: io::Error) -> Self {
        Self::by(&error, error.to_string())
    }
}

pub(crate) struct Incoming {
    stream: Stream,
    buffer: Vec<u8>,
    decoder: Decoder,
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
}

/// Makes the call and reads the whole answer. Its body is limited to [`limits::SHORT_REPLY`]
/// bytes, or to [`limits::HOST_REPLY`] if `longer` permits that.
/// Errors: as for [`open`]; also if the body is incomplete.
pub(crate) async fn call(
    link: &Link,
    call: &Call<'_>,
    longer: &dyn Fn() -> bool,
) -> Result<Reply, CallError> {
    let mut incoming = open(link, call).await?;
    let (mut body, mut is_whole, mut most) = (Vec::new(), true, limits::SHORT_REPLY);
    while is_whole && incoming.more(&mut body).await? {
        if body.len() > most && most < limits::HOST_REPLY && longer() {
            most = limits::HOST_REPLY;
        }
        is_whole = body.len() <= most;
    }
    if !is_whole {
        body = Vec::new();
    }
    let etag = find(&incoming.headers, "etag").map(str::to_owned);
    Ok(Reply { status: incoming.status, etag, body, is_whole })
}

/// Makes the call and reads the answer's head. Errors: [`CallError`] if the host cannot be reached,
/// fails the handshake, or sends no valid head in time.
pub(crate) async fn open(link: &Link, call: &Call<'_>) -> Result<Incoming, CallError> {
    let handshake_permit = link.tls.tickets.admit().await;
    // Generates the TLS keys during the connect.
    let (socket, begun) = zip(dial(link, call.retry), async { link.tls.begin() }).await;
    let begun = begun.map_err(|why| CallError::from(format!("TLS with the host: {why}")))?;
    let stream = match within(HANDSHAKE, Stream::connect(socket?, begun)).await {
        Some(Ok(stream)) => stream,
        Some(Err(error)) => {
            return Err(CallError::by(&error, format!("TLS with the host failed: {error}")));
        }
        None => return Err("TLS with the host timed out".into()),
    };
    crate::runtime::log::debug(format_args!(
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
    .map_err(|_| CallError::from("a header cannot be sent"))?;
    // Write head and body together: the host allows 3 s for both (P§3.5).
    let mut out = out.into_bytes();
    out.extend_from_slice(call.body.unwrap_or_default());
    stream.write_all(&out).await.map_err(|error| broken(&error))?;
    let method = if call.method == "HEAD" { Method::Head } else { Method::Get };
    let Some(incoming) = within(call.timeout, read_head(stream, method)).await else {
        return Err("the host took too long to answer".into());
    };
    if let (Ok(_), Some(handshake_permit)) = (&incoming, handshake_permit) {
        handshake_permit.answered();
    }
    incoming
}

async fn read_head(stream: Stream, method: Method) -> Result<Incoming, CallError> {
    let mut buffer = Vec::new();
    loop {
        let Some((status, framing, headers, length)) = parse_head(&buffer, method)? else {
            if receive(&stream, &mut buffer, SHORT).await? == 0 {
                return Err("the host closed the connection without an answer".into());
            }
            continue;
        };
        drop(buffer.drain(..length));
        // An interim answer (1xx) precedes the final one.
        if status >= 200 || status == 101 {
            return Ok(Incoming {
                stream,
                buffer,
                decoder: Decoder::new(framing),
                status,
                headers,
            });
        }
    }
}

/// Status, framing, headers, and length in bytes.
type OwnedHead = (u16, Framing, Vec<(String, String)>, usize);

fn parse_head(bytes: &[u8], method: Method) -> Result<Option<OwnedHead>, CallError> {
    let parsed = head::response(bytes, method)
        .map_err(|error| CallError::from(format!("the host's answer: {}", error.reply().1)))?;
    Ok(parsed.map(|(response, length)| {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = response.headers.iter().map(|(name, value)| (name.to_owned(), text(value)));
        (response.status, response.framing, headers.collect(), length)
    }))
}

impl Incoming {
    /// Appends the next piece of the body; returns false at its end. Errors: [`CallError`] if the
    /// body is invalid, ends early, or stops for [`BODY_PIECE_TIMEOUT`].
    pub(crate) async fn more(&mut self, out: &mut Vec<u8>) -> Result<bool, CallError> {
        loop {
            if self.decoder.finished() {
                return Ok(false);
            }
            let step = self.decoder.decode(&self.buffer);
            let step = step.map_err(|_| CallError::from("the host's answer: invalid body"))?;
            let (consumed, got) = (step.consumed, !step.data.is_empty());
            out.extend_from_slice(step.data);
            drop(self.buffer.drain(..consumed));
            if got {
                return Ok(true);
            }
            if consumed > 0 || self.decoder.finished() {
                continue;
            }
            match within(BODY_PIECE_TIMEOUT, receive(&self.stream, &mut self.buffer, CHUNK)).await {
                None => return Err("the host stopped in the middle of its answer".into()),
                Some(Err(error)) => return Err(error),
                Some(Ok(0)) => {
                    return match self.decoder.eof() {
                        Ok(()) => Ok(false),
                        Err(_) => {
                            Err("the host closed the connection in the middle of its answer".into())
                        }
                    };
                }
                Some(Ok(_)) => {}
            }
        }
    }
}

async fn receive(stream: &Stream, buffer: &mut Vec<u8>, most: usize) -> Result<usize, CallError> {
    let old = buffer.len();
    buffer.resize(old + most, 0);
    let read = stream.read(buffer.get_mut(old..).unwrap_or_default()).await;
    buffer.truncate(old + *read.as_ref().unwrap_or(&0));
    read.map_err(|error| broken(&error))
}

async fn dial(link: &Link, retry: Retry) -> Result<Socket, CallError> {
    let mut tries = Tries::new(retry);
    loop {
        let error = match within(CONNECT, link.transport.dial(link.host.address)).await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => error,
            None => io::ErrorKind::TimedOut.into(),
        };
        match tries.failed(failure(&error)) {
            Some(pause) => sleep(pause).await,
            None => return Err(CallError::by(&error, unreachable(link.host.address, &error))),
        }
    }
}

/// Returns the message for a failed connect; for `ENODEV` with its likely cause.
fn unreachable(address: HostAddress, error: &io::Error) -> String {
    // vsock(7): no transport, or none for that context ID.
    let no_device = error.raw_os_error() == Some(Errno::NODEV.raw_os_error());
    if is_shortage(error) {
        format!("this agent cannot call the host now: {error}")
    } else if no_device {
        format!("cannot reach host {address}: does this VM have a vsock device?")
    } else {
        format!("cannot reach host {address}: {error}")
    }
}

fn failure(error: &io::Error) -> Failure {
    if matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset | io::ErrorKind::NotFound
    ) {
        return Failure::Refused;
    }
    if error.kind() == io::ErrorKind::TimedOut { Failure::TimedOut } else { Failure::Other }
}

fn broken(error: &io::Error) -> CallError {
    CallError::by(error, format!("the connection to the host broke: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unreachable_host_is_reported_with_the_likely_cause() {
        let address = HostAddress { cid: 2, port: 6697 };
        let text = |errno: Errno| unreachable(address, &io::Error::from(errno));
        assert_eq!(
            text(Errno::NODEV),
            "cannot reach host 2:6697: does this VM have a vsock device?"
        );
        assert!(text(Errno::MFILE).starts_with("this agent cannot call the host now: "));
        assert!(text(Errno::CONNRESET).starts_with("cannot reach host 2:6697: Connection reset"));
    }
}
