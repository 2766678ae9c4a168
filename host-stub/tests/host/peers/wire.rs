//! What the peers' connections have in common: certificates, and answers of HTTP.

use std::io::Write;
use std::path::Path;

use mote_client::net::http::Message;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) fn accept_websocket(stream: &mut impl Write, request: &Message) -> std::io::Result<()> {
    let key = request.header("sec-websocket-key").unwrap_or_default();
    let key = tungstenite::handshake::derive_accept_key(key.as_bytes());
    let head = format!(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Accept: {key}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.flush()
}

pub(crate) fn certificate(path: &Path) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(path).unwrap()
}

pub(crate) fn key(path: &Path) -> PrivateKeyDer<'static> {
    let text = std::fs::read_to_string(path).unwrap();
    // The form that Go agents read (P§1.2).
    assert!(text.starts_with("-----BEGIN EC PRIVATE KEY-----\n"), "{text}");
    PrivateKeyDer::from_pem_slice(text.as_bytes()).unwrap()
}
