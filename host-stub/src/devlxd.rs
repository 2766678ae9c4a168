//! The devlxd API over vsock: guests identified by the socket they come through and by their
//! certificate (P§3.5), answered in the envelope (P§5.4).

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    DigitallySignedStruct, DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
    StreamOwned, client::danger::HandshakeSignatureValid, crypto::verify_tls13_signature,
};
use serde_json::json;

use crate::api::{self, Answer};
use crate::certs::{Pair, certificate, provider};
use crate::daemon::Daemon;
use crate::http::{Message, read_request, reason, write_answer};
use crate::instance::{Flavour, Instance, Vsock};

/// For head and body (P§3.5).
const READ: Duration = Duration::from_secs(3);

type Stream = StreamOwned<ServerConnection, UnixStream>;

/// An instance's guests, as they are received.
struct Door {
    name: String,
    right: Arc<ServerConfig>,
    wrong: Arc<ServerConfig>,
    agent: CertificateDer<'static>,
}

impl Door {
    fn new(daemon: &Daemon, instance: &Instance) -> Result<Self> {
        let directory = Instance::directory(&daemon.root, &instance.name);
        Ok(Self {
            name: instance.name.clone(),
            right: tls(&daemon.pair)?,
            wrong: tls(&Pair::load_or_make(&directory, "wrong")?)?,
            agent: certificate(&directory.join("config/agent.crt"))?,
        })
    }

    /// Serves one connection, in a thread.
    fn receive(&self, daemon: &Arc<Daemon>, socket: UnixStream) {
        let (daemon, name, agent) = (daemon.clone(), self.name.clone(), self.agent.clone());
        let fault = daemon.with(&name, |live| {
            live.connections += 1;
            live.fault.clone()
        });
        let fault = fault.unwrap_or_default();
        let config = if fault.0 == "wrong-cert" { &self.wrong } else { &self.right }.clone();
        std::thread::spawn(move || {
            if let Err(error) = guest(&daemon, &name, &agent, socket, config, &fault) {
                daemon.log(&format!("{name}: guest connection: {error:#}"));
            }
        });
    }
}

/// Listens for the guests of all instances, in threads.
pub(crate) fn listen(daemon: &Arc<Daemon>, instances: &[Instance]) -> Result<()> {
    let mut by_cid = BTreeMap::new();
    for instance in instances {
        let door = Door::new(daemon, instance)?;
        match (&instance.vsock, instance.vsock.listener(daemon.port)) {
            (Vsock::Uds(_) | Vsock::Plain(_), Some(path)) => listen_unix(daemon, &path, door)?,
            (Vsock::Cid(cid), _) => drop(by_cid.insert(*cid, door)),
            (Vsock::Uds(_) | Vsock::Plain(_), None) => {}
        }
    }
    if by_cid.is_empty() { Ok(()) } else { listen_vsock(daemon, by_cid) }
}

fn listen_unix(daemon: &Arc<Daemon>, path: &Path, door: Door) -> Result<()> {
    let _stale = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    let daemon = daemon.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            door.receive(&daemon, socket);
        }
    });
    Ok(())
}

/// One listener for all: the guest is known by its context id (P§3.5).
fn listen_vsock(daemon: &Arc<Daemon>, doors: BTreeMap<u32, Door>) -> Result<()> {
    let listener = vsock::VsockListener::bind_with_cid_port(vsock::VMADDR_CID_ANY, daemon.port)
        .context("vsock")?;
    let daemon = daemon.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let door = socket.peer_addr().ok().and_then(|peer| doors.get(&peer.cid()));
            // Any stream socket will do from here on.
            if let (Some(door), Ok(fd)) = (door, socket.as_fd().try_clone_to_owned()) {
                door.receive(&daemon, UnixStream::from(fd));
            }
        }
    });
    Ok(())
}

fn tls(pair: &Pair) -> Result<Arc<ServerConfig>> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(Anybody))
        .with_single_cert(vec![pair.certificate.clone()], pair.key())?;
    Ok(Arc::new(config))
}

fn guest(
    daemon: &Arc<Daemon>,
    name: &str,
    agent: &CertificateDer<'static>,
    socket: UnixStream,
    config: Arc<ServerConfig>,
    fault: &(String, u64),
) -> Result<()> {
    socket.set_read_timeout(Some(READ))?;
    socket.set_write_timeout(Some(Duration::from_secs(30)))?;
    let mut stream = StreamOwned::new(ServerConnection::new(config)?, socket);
    let (kind, number) = (fault.0.as_str(), fault.1);
    if kind == "stall" {
        std::thread::sleep(Duration::from_secs(number.clamp(1, 600)));
        return Ok(());
    }
    let Some(request) = read_request(&mut stream)? else { return Ok(()) };
    let resumed = stream.conn.handshake_kind() == Some(rustls::HandshakeKind::Resumed);
    daemon.with(name, |live| {
        live.resumed += u64::from(resumed);
        live.last_request = format!("{} {}", request.method, request.target);
    })?;
    match kind {
        "reset" => return Ok(()),
        "slow" => std::thread::sleep(Duration::from_millis(number.min(600_000))),
        "garbage" => return Ok(stream.write_all(b"\x16\x03 this is not HTTP\r\n\r\n")?),
        "huge" => return huge(&mut stream),
        _ => {}
    }
    let known = stream.conn.peer_certificates().and_then(|all| all.first()) == Some(agent);
    let answer = if !known {
        Answer::Error(401, "Unauthorized".into())
    } else if kind == "forbidden" {
        Answer::Error(403, "Forbidden".into())
    } else {
        api::answer(daemon, name, &request)?
    };
    let flavour = daemon.with(name, |live| live.instance.flavour)?;
    let status = write(&mut stream, flavour, &request, answer)?;
    stream.conn.send_close_notify();
    let _gone = stream.flush();
    daemon.log(&format!(
        "{name}: {} {} {status}{}",
        request.method,
        request.target,
        if resumed { " (resumed)" } else { "" }
    ));
    Ok(())
}

fn write(stream: &mut Stream, flavour: Flavour, request: &Message, answer: Answer) -> Result<u16> {
    let envelope = |code: u16, kind: &str, error: &str, metadata| {
        let status = if code == 200 { "Success" } else { "" };
        let body = json!({"type": kind, "status": status, "status_code": if code == 200 { 200 } else { 0 },
            "operation": "", "error_code": if code == 200 { 0 } else { code }, "error": error,
            "metadata": metadata});
        format!("{body}\n").into_bytes()
    };
    match answer {
        Answer::Data(value, etag) => {
            let quoted = etag.map(|etag| format!("\"{etag}\""));
            let extra: Vec<_> = quoted.iter().map(|etag| ("ETag", etag.as_str())).collect();
            let body = envelope(200, "sync", "", value);
            write_answer(stream, 200, "application/json", &extra, &body)?;
            Ok(200)
        }
        // Incus refuses strangers in plain text (P§5.4).
        Answer::Error(code, text) if code == 401 && flavour == Flavour::Incus => {
            write_answer(stream, code, "text/plain", &[], format!("{text}\n").as_bytes())?;
            Ok(code)
        }
        Answer::Error(code, text) => {
            let text = if text.is_empty() { reason(code).to_owned() } else { text };
            let body = envelope(code, "error", &text, serde_json::Value::Null);
            write_answer(stream, code, "application/json", &[], &body)?;
            Ok(code)
        }
        Answer::Image(size) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
                 Content-Disposition: inline;filename=image.bin\r\nX-Path: {}\r\n\
                 Content-Length: {size}\r\nConnection: close\r\n\r\n",
                request.path()
            );
            stream.write_all(head.as_bytes())?;
            let mut left = size;
            let mut word = 1u32;
            let mut piece = vec![0; 64 * 1024];
            while left > 0 {
                for byte in &mut piece {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *byte = word.to_be_bytes()[0];
                }
                let count = usize::try_from(left).unwrap_or(usize::MAX).min(piece.len());
                stream.write_all(&piece[..count])?;
                left -= u64::try_from(count)?;
            }
            Ok(200)
        }
    }
}

/// An answer without end; the agent must give up by itself.
fn huge(stream: &mut Stream) -> Result<()> {
    stream
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"metadata\":\"")?;
    let piece = [b'x'; 64 * 1024];
    for _ in 0..10_000 {
        stream.write_all(&piece)?;
    }
    Ok(())
}

/// Asks for a certificate and takes any whose key the guest has: which one it is, is looked at when
/// answering (P§3.5).
#[derive(Debug)]
struct Anybody;

impl ClientCertVerifier for Anybody {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
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
