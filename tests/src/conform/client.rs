//! Calls to an agent as its host makes them: its port, the certificates, and reuse of connections.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use mote_client::net::tls::Exactly;
use mote_client::net::tls::provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection};
use serde_json::Value;

use super::wire::{Answer, TIMEOUT, Wire};
use crate::{Host, NAME, patient};

/// Port on which agents listen.
const PORT: u32 = 8443;

/// The caller, by its certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Host,
    /// A client with a certificate that is not the host's.
    Stranger,
    /// A client without a certificate.
    Nobody,
}

/// Transport to an agent's port.
#[derive(Clone, Debug)]
pub enum Way {
    /// A VM's vsock device, behind a socket that takes the port in a line first.
    Device(PathBuf),
    /// A unix socket instead of the port.
    Socket(PathBuf),
}

impl Way {
    /// Connects to `port`, which a [`Way::Socket`] ignores.
    pub fn dial(&self, port: u32) -> Result<UnixStream, String> {
        let text = |error: std::io::Error| error.to_string();
        let (path, asks) = match self {
            Self::Device(path) => (path, true),
            Self::Socket(path) => (path, false),
        };
        let mut socket = UnixStream::connect(path).map_err(text)?;
        socket.set_read_timeout(Some(patient(TIMEOUT))).map_err(text)?;
        if !asks {
            return Ok(socket);
        }
        socket.write_all(format!("CONNECT {port}\n").as_bytes()).map_err(text)?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            if let Err(error) = socket.read_exact(&mut byte) {
                if error.kind() == ErrorKind::WouldBlock {
                    // The device panics if it cannot write its answer
                    // (docs/how-to/troubleshoot.md).
                    std::mem::forget(socket);
                    return Err("the guest did not accept the connection in time".into());
                }
                return Err("connection refused".into());
            }
            line.push(byte[0]);
        }
        if line.starts_with(b"OK ") { Ok(socket) } else { Err("connection refused".into()) }
    }
}

/// A host that calls an agent.
#[derive(Debug)]
pub struct Client {
    way: Way,
    share: PathBuf,
    host_tls: Arc<ClientConfig>,
    idle: Mutex<Vec<Wire>>,
}

impl Client {
    pub fn new(way: Way, host: &Host) -> Self {
        let pair = |name: &str| {
            let file = host.directory.join("instances").join(NAME).join(name);
            (file.with_extension("crt"), file.with_extension("key"))
        };
        let host_tls = tls(&host.share, Some(pair("agent-client")));
        Self { way, share: host.share.clone(), host_tls, idle: Mutex::default() }
    }

    /// Connects to the agent's port, without TLS.
    pub fn dial(&self) -> Result<UnixStream, String> {
        self.way.dial(PORT)
    }

    /// Connects as the host, with TLS.
    pub fn connect(&self) -> Result<Wire, String> {
        self.connect_with(self.host_tls.clone())
    }

    /// Connects as this caller, with TLS.
    pub fn connect_as(&self, caller: Caller) -> Result<Wire, String> {
        self.connect_with(match caller {
            Caller::Host => self.host_tls.clone(),
            // The agent's own certificate is not the host's.
            Caller::Stranger => {
                tls(&self.share, Some((self.share.join("agent.crt"), self.share.join("agent.key"))))
            }
            Caller::Nobody => tls(&self.share, None),
        })
    }

    fn connect_with(&self, config: Arc<ClientConfig>) -> Result<Wire, String> {
        let name = ServerName::try_from("unspecified").map_err(|error| error.to_string())?;
        let connection = ClientConnection::new(config, name).map_err(|error| error.to_string())?;
        Wire::new(connection, self.dial()?)
    }

    /// Sends a request and reads the answer, on an idle connection if there is one.
    pub fn ask(&self, method: &str, target: &str, body: &str) -> Result<Answer, String> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut wire) = kept
            && let Ok(answer) = wire.within(TIMEOUT).ask(method, target, "", body.as_bytes())
        {
            self.keep(wire, &answer);
            return Ok(answer);
        }
        let mut wire = self.connect()?;
        let answer = wire.ask(method, target, "", body.as_bytes())?;
        self.keep(wire, &answer);
        Ok(answer)
    }

    fn keep(&self, wire: Wire, answer: &Answer) {
        if answer.field("connection") != "close" {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(wire);
        }
    }

    /// Drops the idle connections, which a restart of the agent has ended.
    pub fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The metadata of the answer to `GET target`.
    pub fn get(&self, target: &str) -> Result<Value, String> {
        let answer = self.ask("GET", target, "")?;
        if answer.status == 200 { Ok(answer.metadata()) } else { Err(answer.short()) }
    }

    /// The host's connection information in the share: `agent.conf`.
    pub fn host_info(&self) -> Result<Value, String> {
        let text =
            std::fs::read(self.share.join("agent.conf")).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

fn tls(share: &Path, pair: Option<(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
    let read = |path: &Path| CertificateDer::from_pem_file(path).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Exactly(Some(read(&share.join("agent.crt"))))));
    Arc::new(match pair {
        Some((crt, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(vec![read(&crt)], key).expect("a pair")
        }
        None => builder.with_no_client_auth(),
    })
}
