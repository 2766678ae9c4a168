//! An agent under test, as the host sees it: where it listens, by which certificates it knows us,
//! and the guest it lives in.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use serde_json::Value;

use super::wire::{Answer, PATIENCE, Wire};
use super::{Column, Miss};
use crate::guest::Guest;
use crate::host::{Host, NAME};

/// Where agents listen.
const PORT: u32 = 8443;

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// The instance's host.
    Host,
    /// Somebody with a certificate of his own.
    Stranger,
    /// Somebody without one.
    Nobody,
}

/// An agent in a VM.
#[derive(Debug)]
pub struct Agent {
    /// Which one.
    pub column: Column,
    /// The host it is connected to.
    pub host: Mutex<Host>,
    vsock: PathBuf,
    share: PathBuf,
    host_tls: Arc<ClientConfig>,
    guest: Mutex<Guest>,
    idle: Mutex<Vec<Wire>>,
}

impl Agent {
    /// Takes a VM whose agent is connected.
    ///
    /// # Panics
    /// If the host's certificates cannot be read.
    #[must_use]
    pub fn new(column: Column, vsock: PathBuf, host: Host, guest: Guest) -> Self {
        let pair = |name: &str| {
            let file = host.directory.join("instances").join(NAME).join(name);
            (file.with_extension("crt"), file.with_extension("key"))
        };
        let host_tls = tls(&host.share, Some(pair("agent-client")));
        let share = host.share.clone();
        let (host, guest) = (Mutex::new(host), Mutex::new(guest));
        Self { column, host, vsock, share, host_tls, guest, idle: Mutex::default() }
    }

    /// A connection to the agent's port, before TLS.
    ///
    /// # Errors
    /// If there is none.
    pub fn dial(&self) -> Result<UnixStream, String> {
        let text = |error: std::io::Error| error.to_string();
        let mut socket = UnixStream::connect(&self.vsock).map_err(text)?;
        socket.set_read_timeout(Some(PATIENCE)).map_err(text)?;
        socket.write_all(format!("CONNECT {PORT}\n").as_bytes()).map_err(text)?;
        let (mut line, mut byte) = (Vec::new(), [0]);
        while byte != *b"\n" {
            socket.read_exact(&mut byte).map_err(|_| "connection refused".to_owned())?;
            line.push(byte[0]);
        }
        if line.starts_with(b"OK ") { Ok(socket) } else { Err("connection refused".into()) }
    }

    /// A connection as the host.
    ///
    /// # Errors
    /// If there is none.
    pub fn connect(&self) -> Result<Wire, String> {
        self.connect_with(self.host_tls.clone())
    }

    /// A connection as somebody else.
    ///
    /// # Errors
    /// If there is none.
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

    /// A request, on a connection that may have been used before.
    ///
    /// # Errors
    /// If there is no answer in time.
    pub fn ask(&self, method: &str, target: &str, body: &str) -> Result<Answer, String> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(mut wire) = kept
            && let Ok(answer) = wire.within(PATIENCE).ask(method, target, "", body.as_bytes())
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

    /// Forgets connections that a restart of the agent has ended.
    pub fn forget(&self) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// What `GET` gives, which must succeed.
    ///
    /// # Errors
    /// If it does not.
    pub fn get(&self, target: &str) -> Result<Value, String> {
        let answer = self.ask("GET", target, "")?;
        if answer.status == 200 { Ok(answer.metadata()) } else { Err(answer.short()) }
    }

    /// Runs a command in the guest, past the agent.
    #[must_use]
    pub fn sh(&self, command: &str) -> (i32, String) {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner).sh(command)
    }

    /// The output of a command in the guest that must succeed, without its last newline.
    ///
    /// # Errors
    /// If it fails.
    pub fn guest(&self, command: &str) -> Result<String, String> {
        let (code, output) = self.sh(command);
        if code == 0 {
            Ok(output.trim_end().to_owned())
        } else {
            Err(format!("{command}: {output}"))
        }
    }

    /// Where guests find devlxd.
    #[must_use]
    pub fn socket(&self) -> &'static str {
        self.column.socket()
    }

    /// Says bytes to devlxd in the guest, and gives what comes back until it hangs up. `%` and `'`
    /// cannot be said.
    ///
    /// # Errors
    /// If it does not hang up in time.
    pub fn devlxd_raw(&self, bytes: &str) -> Result<String, String> {
        let bytes = bytes.replace('\\', "\\\\").replace('\r', "\\r").replace('\n', "\\n");
        let (code, output) =
            self.sh(&format!("printf '{bytes}' | timeout 12 /opt/relay {}", self.socket()));
        match code {
            0 => Ok(output),
            124 | 143 => Err(format!("devlxd does not hang up after {output:?}")),
            _ => Err(output.trim().to_owned()),
        }
    }

    /// A request to devlxd.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn devlxd(&self, method: &str, target: &str, body: &str) -> Result<Answer, String> {
        let length = match (method, body) {
            ("GET", "") => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let text = self.devlxd_raw(&format!(
            "{method} {target} HTTP/1.1\r\nHost: any\r\nConnection: close\r\n{length}\r\n{body}"
        ))?;
        Answer::parse(&text)
    }

    /// Runs a command of the host.
    ///
    /// # Errors
    /// If it fails.
    pub fn host(&self, args: &[&str]) -> Result<String, String> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).try_run(args)
    }

    /// Where the host writes what happens.
    #[must_use]
    pub fn host_log(&self) -> PathBuf {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).log_path()
    }

    /// What the host knows of the agent.
    #[must_use]
    pub fn seen_by_host(&self) -> Value {
        self.host.lock().unwrap_or_else(PoisonError::into_inner).state()
    }

    /// Looks until it is so.
    ///
    /// # Errors
    /// If it is not in time.
    pub fn wait(
        &self,
        what: &str,
        limit: Duration,
        look: impl Fn(&Self) -> bool,
    ) -> Result<(), Miss> {
        let begun = std::time::Instant::now();
        while !look(self) {
            if begun.elapsed() > limit {
                return Err(Miss::No(format!("{what}: not within {} s", limit.as_secs())));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(())
    }

    /// The document that tells the agent where the host is, as the share has it.
    ///
    /// # Errors
    /// If there is none.
    pub fn told(&self) -> Result<Value, String> {
        let text =
            std::fs::read(self.share.join("agent.conf")).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

fn tls(share: &Path, pair: Option<(PathBuf, PathBuf)>) -> Arc<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let read = |path: &Path| CertificateDer::from_pem_file(path).expect("a certificate");
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("TLS 1.3")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Exactly(read(&share.join("agent.crt")))));
    Arc::new(match pair {
        Some((crt, key)) => {
            let key = PrivateKeyDer::from_pem_file(key).expect("a key");
            builder.with_client_auth_cert(vec![read(&crt)], key).expect("a pair")
        }
        None => builder.with_no_client_auth(),
    })
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
    ) -> Result<ServerCertVerified, Error> {
        if *end_entity == self.0 {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General("this is not the instance's certificate".into()))
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("only TLS 1.3".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, &known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        let known = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        known.supported_schemes()
    }
}
