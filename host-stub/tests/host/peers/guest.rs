//! A scripted guest, which calls the host's port with the certificates of its share.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mote_client::Message;
use mote_client::net::http::{read_answer, write_request};
use mote_client::net::tls::{self, Exactly, Pair, certificate, provider};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;

use super::host::Host;

pub(crate) type Stream = StreamOwned<ClientConnection, UnixStream>;

pub(crate) struct Guest {
    socket: PathBuf,
    config: Arc<ClientConfig>,
}

impl Guest {
    pub(crate) fn of(host: &Host) -> Self {
        Self::with_share(host, "vm1", Some(&host.share("vm1")))
    }

    /// Returns a caller behind an instance's vsock, with the certificate of `share` if given.
    pub(crate) fn with_share(host: &Host, instance: &str, share: Option<&Path>) -> Self {
        let server = certificate(&host.path("server.crt")).unwrap();
        let config = match share {
            Some(share) => {
                tls::client(&Pair::load_or_make(share, "agent").unwrap(), server).unwrap()
            }
            None => ClientConfig::builder_with_provider(provider())
                .with_protocol_versions(&[&rustls::version::TLS13])
                .unwrap()
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Exactly(Some(server))))
                .with_no_client_auth()
                .into(),
        };
        let socket = host.path(&format!("{instance}.p_{}", host.port()));
        Self { socket, config }
    }

    pub(crate) fn connect(&self) -> Stream {
        let name = ServerName::try_from("unspecified").unwrap();
        let connection = ClientConnection::new(self.config.clone(), name).unwrap();
        StreamOwned::new(connection, self.connect_raw())
    }

    pub(crate) fn connect_raw(&self) -> UnixStream {
        let socket = UnixStream::connect(&self.socket).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        socket
    }

    pub(crate) fn try_ask(&self, method: &str, path: &str, body: &str) -> anyhow::Result<Message> {
        let mut stream = self.connect();
        write_request(&mut stream, method, path, body.as_bytes())?;
        read_answer(&mut stream, usize::MAX)
    }

    /// Sends a request. Returns the status, and the metadata or the error's text.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let answer = self.try_ask(method, path, body).unwrap();
        let (status, envelope) = (answer.status, answer.json().unwrap());
        if status == 200 {
            assert_eq!(envelope["type"], "sync");
            (status, envelope["metadata"].clone())
        } else {
            assert_eq!(envelope["error_code"], status);
            (status, envelope["error"].clone())
        }
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.ask("GET", path, "")
    }
}

/// Reads until the connection ends or fails, and returns all data.
pub(crate) fn drain(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _cut = stream.read_to_end(&mut bytes);
    bytes
}
