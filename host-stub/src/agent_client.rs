//! Calls to an agent: vsock (or what stands in for it), TLS with exactly its certificate, one
//! request a connection (P§3.2).

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::verify_tls13_signature;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};

use crate::certs::{Pair, certificate, provider};
use crate::http::{Message, read_answer, write_request};
use crate::instance::{Flavour, Instance, Vsock};

/// For a whole PUT, its preceding GET included (P§3.2).
const DEADLINE: Duration = Duration::from_secs(3);
/// Where agents listen.
const AGENT_PORT: u32 = 8443;

/// Tells the agent where we are.
pub(crate) fn put(root: &Path, instance: &Instance, body: &[u8]) -> Result<()> {
    let end = Instant::now() + DEADLINE;
    if instance.flavour != Flavour::Incus {
        // Incus skips it for PUT (P§3.2).
        let info = request(root, instance, "GET", "/1.0", b"", end)?;
        let server = info.json()?["metadata"]["environment"]["server"].clone();
        if server != "lxd-agent" {
            bail!("the agent calls itself {server}");
        }
    }
    let answer = request(root, instance, "PUT", "/1.0", body, end)?;
    if answer.status != 200 {
        bail!("{}", String::from_utf8_lossy(&answer.body).trim());
    }
    Ok(())
}

/// Posts an event to the agent's listeners.
pub(crate) fn post_event(root: &Path, instance: &Instance, event: &[u8]) -> Result<()> {
    let end = Instant::now() + DEADLINE;
    let answer = request(root, instance, "POST", "/1.0/events", event, end)?;
    if answer.status == 200 { Ok(()) } else { bail!("events: status {}", answer.status) }
}

/// Any request, answered before `end`.
pub(crate) fn request(
    root: &Path,
    instance: &Instance,
    method: &str,
    target: &str,
    body: &[u8],
    end: Instant,
) -> Result<Message> {
    let socket = dial(&instance.vsock, end)?;
    let left = end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left))?;
    socket.set_write_timeout(Some(left))?;
    let directory = Instance::directory(root, &instance.name);
    let pair = Pair::load_or_make(&directory, "agent-client")?;
    let agent = certificate(&directory.join("config/agent.crt"))?;
    let config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Exactly(agent)))
        .with_client_auth_cert(vec![pair.certificate.clone()], pair.key())?;
    let name = ServerName::try_from("unspecified")?;
    let connection = ClientConnection::new(Arc::new(config), name)?;
    let mut stream = StreamOwned::new(connection, socket);
    write_request(&mut stream, method, target, body).context("agent")?;
    read_answer(&mut stream).context("agent")
}

/// Connects to the agent's port. Behind vhost-device-vsock nothing may be sent before its OK.
fn dial(vsock: &Vsock, end: Instant) -> Result<UnixStream> {
    match vsock {
        Vsock::Cid(cid) => {
            let stream = vsock::VsockStream::connect_with_cid_port(*cid, AGENT_PORT)?;
            // Any stream socket will do from here on.
            Ok(UnixStream::from(stream.as_fd().try_clone_to_owned()?))
        }
        Vsock::Plain(prefix) => {
            let mut path = prefix.as_os_str().to_owned();
            path.push(format!(".listen_{AGENT_PORT}"));
            UnixStream::connect(&path).with_context(|| path.display().to_string())
        }
        Vsock::Uds(prefix) => {
            let mut socket = UnixStream::connect(prefix).context("vsock")?;
            let left = end.saturating_duration_since(Instant::now());
            socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            socket.write_all(format!("CONNECT {AGENT_PORT}\n").as_bytes())?;
            let mut answer = Vec::new();
            let mut byte = [0];
            while !answer.ends_with(b"\n") {
                if socket.read(&mut byte).context("vsock")? == 0 || answer.len() > 64 {
                    bail!("vsock: connection refused");
                }
                answer.push(byte[0]);
            }
            if !answer.starts_with(b"OK ") {
                bail!("vsock: {}", String::from_utf8_lossy(&answer).trim());
            }
            Ok(socket)
        }
    }
}

/// Accepts one certificate and no other.
#[derive(Debug)]
struct Exactly(CertificateDer<'static>);

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if *end_entity == self.0 {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(rustls::Error::General("this is not the instance's certificate".into()))
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}
