//! Calls to an agent over vsock or its substitute, with TLS that accepts exactly the agent's
//! certificate, and one request per connection (P§3.2). After an upgrade a connection changes its
//! protocol: sftp, port-forward (P§4.4, P§4.7).

use std::io::{BufRead, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;
use vsock::VsockStream;

use super::call_failure::{CallFailure, FailedCall};
use crate::instance::vsock_device;
use crate::net::http::{read_answer, write, write_request};
use crate::net::pump;
use crate::net::tls::{self, Pair, certificate};
use crate::{Instance, Limit, Message, Timed, Vsock, limits, store};

/// Limit for connecting, TLS and an upgrade together (P§3.2).
const CONNECT: Duration = Duration::from_secs(10);
/// Limit for a PUT or an event, including the preceding GET (P§3.2).
const DEADLINE: Duration = Duration::from_secs(3);
/// Port on which agents listen.
pub const AGENT_PORT: u32 = 8443;
/// Maximum length of an agent's error message that is shown, in characters.
const COMPLAINT: usize = 1000;
/// Maximum size of vhost-device-vsock's answer, in bytes: `OK <port>`.
const ANSWER: usize = 64;
/// Limit for that OK, which waits for the guest's kernel. The kernel's own vsock waits 2 s.
const ACCEPTED: Duration = Duration::from_secs(20);

pub type Stream = StreamOwned<ClientConnection, Timed>;

/// An instance's agent, and the directory with the certificates for calls to it.
#[derive(Clone, Debug)]
pub struct Agent {
    pub root: PathBuf,
    pub instance: Instance,
}

impl Agent {
    pub fn of(root: &Path, instance: &Instance) -> Self {
        Self { root: root.to_owned(), instance: instance.clone() }
    }

    pub fn tell(&self, method: &str, path: &str, body: &[u8]) -> Result<()> {
        let limit = Limit::Until(Instant::now() + DEADLINE);
        if self.instance.flavour.server().greets {
            self.greet(limit)?;
        }
        success(method, &self.request(method, path, body, limit)?)
    }

    /// Sends the first request of every client, and returns the agent's API extensions (P§3.4).
    pub fn greet(&self, limit: Limit) -> Result<Vec<String>> {
        let info = self.metadata("GET", "/1.0", limit)?;
        let server = &info["environment"]["server"];
        let expected = self.instance.flavour.server().agent;
        if server != expected {
            bail!(
                "the agent identifies itself as {server}, not {expected}: does the status port have the \
                 name of another server?"
            );
        }
        let extensions: Option<Vec<String>> =
            serde_json::from_value(info["api_extensions"].clone()).context("api_extensions")?;
        Ok(extensions.unwrap_or_default())
    }

    /// Returns the `metadata` of a sync answer. Any other answer is an error.
    pub fn metadata(&self, method: &str, target: &str, limit: Limit) -> Result<Value> {
        let answer = self.request(method, target, b"", limit)?;
        success(method, &answer)?;
        let mut envelope = answer.json()?;
        if envelope["type"] != "sync" {
            bail!("{method} {target}: not a sync answer: {envelope}");
        }
        Ok(envelope["metadata"].take())
    }

    pub fn request(
        &self,
        method: &str,
        target: &str,
        body: &[u8],
        limit: Limit,
    ) -> Result<Message> {
        let mut stream = self.open(limit)?;
        let mut call = || {
            write_request(&mut stream, method, target, body)?;
            read_answer(&mut stream, limits::ANSWER)
        };
        let answer = call();
        answer.map_err(|error| self.explained(error, &mut stream))
    }

    /// Asks for `protocol`, and returns the connection after the 101.
    pub fn upgrade(
        &self,
        request: (&str, &str),
        protocol: &str,
        body: &[u8],
        limit: Limit,
    ) -> Result<UnixStream> {
        let mut stream = self.open(limit)?;
        match upgraded(&mut stream, request, protocol, body) {
            Ok(()) => Ok(pump::plain(stream)?),
            Err(error) => Err(self.explained(error, &mut stream)),
        }
    }

    /// Opens a connection that outlives one request, and returns it as a socket without TLS or a
    /// limit.
    pub(super) fn plain(&self, limit: Limit) -> Result<UnixStream> {
        let mut stream = self.open(limit)?;
        // The limit applies to the handshake only.
        let handshake = stream.conn.complete_io(&mut stream.sock).context("agent");
        handshake.map_err(|error| FailedCall::explained(error, &self.instance))?;
        Ok(pump::plain(stream)?)
    }

    /// Connects and prepares TLS. The first read or write does the handshake.
    fn open(&self, limit: Limit) -> Result<Stream> {
        let socket = dial(&self.instance, AGENT_PORT, limit)?;
        let (root, name) = (&self.root, &self.instance.name);
        let pair = Pair::load_or_make(&store::directory(root, name), "agent-client")?;
        let agent = certificate(&store::share(root, name).join("agent.crt"))?;
        let config = tls::client(&pair, agent)?;
        let connection = ClientConnection::new(config, ServerName::try_from("unspecified")?)?;
        Ok(StreamOwned::new(connection, socket))
    }

    /// Adds the cause to the error of a failed call. An agent that refuses the host sends an alert
    /// and closes: a write then fails with a broken pipe, but the reason can still be read.
    fn explained(&self, error: anyhow::Error, stream: &mut Stream) -> anyhow::Error {
        let is_cut = error.downcast_ref().is_some_and(|error: &std::io::Error| {
            matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset)
        });
        let reason = is_cut.then(|| refusal(stream)).flatten();
        FailedCall::explained(reason.unwrap_or(error).context("agent"), &self.instance)
    }
}

/// Returns the usual limit for a connection that outlives a request.
pub fn connecting() -> Limit {
    Limit::within(CONNECT)
}

fn success(method: &str, answer: &Message) -> Result<()> {
    if answer.status == 200 {
        return Ok(());
    }
    bail!("{method}: status {}: {}", answer.status, complaint(&answer.body))
}

/// Returns an agent's error message, shortened: the envelope's `error`, or the text itself.
pub fn complaint(body: &[u8]) -> String {
    let envelope = limits::json(body).ok();
    let error = envelope.and_then(|body| body["error"].as_str().map(str::to_owned));
    let error = error.unwrap_or_else(|| String::from_utf8_lossy(body).trim().to_owned());
    error.chars().take(COMPLAINT).collect()
}

/// Reads the reason that the agent sent before it closed.
fn refusal(stream: &mut Stream) -> Option<anyhow::Error> {
    let mut read = || {
        stream.conn.read_tls(&mut stream.sock).ok().filter(|count| *count > 0)?;
        let reason = stream.conn.process_new_packets().err()?;
        Some(std::io::Error::new(ErrorKind::InvalidData, reason).into())
    };
    // The first read may return only the error of the broken pipe.
    read().or_else(read)
}

fn upgraded(
    stream: &mut Stream,
    (method, target): (&str, &str),
    protocol: &str,
    body: &[u8],
) -> Result<()> {
    let out = format!(
        "{method} {target} HTTP/1.1\r\nHost: custom.socket\r\nUpgrade: {protocol}\r\n\
         Connection: Upgrade\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    write(stream, out, body)?;
    let answer = read_answer(&mut Records(stream), limits::ANSWER)?;
    if answer.status != 101 {
        bail!("status {}: {}", answer.status, complaint(&answer.body));
    }
    if answer.header("upgrade") != Some(protocol) {
        bail!("Missing or unexpected Upgrade header in response");
    }
    let lost = answer.body.len();
    if lost > 0 {
        // Real hosts throw away whatever else is in the buffer they read the head into (P§4.4).
        bail!("{lost} bytes came in the same TLS record as the head: real hosts lose them");
    }
    Ok(())
}

/// Returns at most one TLS record per read, so that later records stay in the stream.
struct Records<'a>(&'a mut Stream);

impl Read for Records<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.0.fill_buf()?.read(buffer)?;
        self.0.consume(count);
        Ok(count)
    }
}

/// Connects to a port of the guest, without TLS.
pub fn dial(instance: &Instance, port: u32, limit: Limit) -> Result<Timed> {
    let failed = |error: anyhow::Error, failure| FailedCall::of_failure(error, instance, failure);
    // Connects to a socket that replaces vsock.
    let connect = |path: &Path, failure| {
        let connected = Timed::connect(path, limit).with_context(|| path.display().to_string());
        connected.map_err(|error| {
            let is_late = FailedCall::is_late(&error);
            failed(error, if is_late { CallFailure::NoAnswer } else { failure })
        })
    };
    match &instance.vsock {
        Vsock::Cid(cid) => {
            // The kernel gives up after 2 s.
            let stream = VsockStream::connect_with_cid_port(*cid, port);
            let stream = stream.map_err(|error| {
                let failure = by_the_kernel(&error);
                let error = anyhow::Error::from(error).context("vsock");
                match failure {
                    Some(failure) => failed(error, failure),
                    None => error,
                }
            })?;
            // A vsock stream is used like any other stream socket from here on.
            Ok(Timed::new(OwnedFd::from(stream).into(), limit))
        }
        Vsock::Plain(prefix) => {
            let mut path = prefix.as_os_str().to_owned();
            path.push(format!(".listen_{port}"));
            connect(&PathBuf::from(path), CallFailure::Refused)
        }
        Vsock::Uds(path) => {
            let mut stream = connect(path, CallFailure::Unreachable)?;
            let peer = socket_peercred(&stream.socket).ok();
            if let Some(why) = peer.and_then(|peer| vsock_device::stopped(peer.pid)) {
                return Err(failed(anyhow!(why), CallFailure::DeviceStopped));
            }
            stream.limit(limit.at_most(ACCEPTED));
            if let Err(error) = say_connect(&mut stream, port).context("vsock") {
                if !FailedCall::is_late(&error) {
                    return Err(failed(error, CallFailure::Refused));
                }
                vsock_device::abandon(stream.socket);
                return Err(failed(error, CallFailure::NoAnswer));
            }
            stream.limit(limit);
            Ok(stream)
        }
    }
}

fn by_the_kernel(error: &std::io::Error) -> Option<CallFailure> {
    let kind = error.kind();
    if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) {
        return Some(CallFailure::NoGuest);
    }
    if matches!(kind, ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused) {
        return Some(CallFailure::Refused);
    }
    (kind == ErrorKind::TimedOut).then_some(CallFailure::NoAnswer)
}

/// Sends vhost-device-vsock's preamble and reads its OK. Data sent before the OK would be lost.
fn say_connect(socket: &mut Timed, port: u32) -> Result<()> {
    socket.write_all(format!("CONNECT {port}\n").as_bytes())?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\n") {
        // Read byte by byte, because what follows the line belongs to TLS.
        let mut byte = [0];
        if socket.read(&mut byte)? == 0 || answer.len() == ANSWER {
            bail!("connection refused");
        }
        answer.push(byte[0]);
    }
    if !answer.starts_with(b"OK ") {
        bail!("{}", String::from_utf8_lossy(&answer).trim());
    }
    Ok(())
}
