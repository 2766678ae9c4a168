//! An agent that passes each connection to a test's function.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use mote_client::net::certs::provider;
use mote_client::net::tls::Exactly;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::guest::Guest;
use super::host::Host;
use super::wire::{Message, certificate, key, read_request};

pub(crate) type Stream = StreamOwned<ServerConnection, UnixStream>;

/// What precedes TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preamble {
    None,
    /// vhost-device-vsock's `CONNECT 8443` and `OK`.
    Connect,
}

/// Serves requests until the test ends, with the files of `share`.
pub(crate) fn start(
    socket: &Path,
    share: &Path,
    preamble: Preamble,
    act: impl Fn(&Message, Stream) -> std::io::Result<()> + Send + Sync + 'static,
) {
    let (config, listener) = (tls(share), UnixListener::bind(socket).unwrap());
    let act = Arc::new(act);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (config, act) = (config.clone(), act.clone());
            std::thread::spawn(move || {
                let stream = after(preamble, stream)?;
                let tls = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(tls, stream);
                let request = read_request(&mut stream)?;
                act(&request, stream)
            });
        }
    });
}

fn after(preamble: Preamble, mut stream: UnixStream) -> std::io::Result<UnixStream> {
    if preamble == Preamble::Connect {
        let mut line = [0; 13];
        stream.read_exact(&mut line)?;
        assert_eq!(&line, b"CONNECT 8443\n");
        // The device discards data that arrives with it: a client that sends before the OK gets no
        // answer.
        stream.set_nonblocking(true)?;
        assert!(stream.read(&mut [0; 1]).is_err(), "sent before OK");
        stream.set_nonblocking(false)?;
        stream.write_all(b"OK 8443\n")?;
    }
    Ok(stream)
}

fn tls(share: &Path) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(Exactly(Some(certificate(&share.join("server.crt"))))))
        .with_single_cert(
            vec![certificate(&share.join("agent.crt"))],
            key(&share.join("agent.key")),
        )
        .unwrap();
    Arc::new(config)
}

/// Answers, and hangs up.
pub(crate) fn whole(stream: &mut Stream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// A host whose `vm1` has such an agent, which has called it.
pub(crate) fn host(
    act: impl Fn(&Message, Stream) -> std::io::Result<()> + Send + Sync + 'static,
) -> Host {
    let mut host = Host::with_instance("lxd", &[]);
    start(&host.path("vm1.p.listen_8443"), &host.share("vm1"), Preamble::None, act);
    host.start();
    assert_eq!(Guest::of(&host).get("/1.0").0, 200);
    host
}
