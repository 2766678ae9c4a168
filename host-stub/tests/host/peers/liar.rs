//! An agent that passes each connection to a test's function.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use mote_client::net::http::{Message, read_request};
use mote_client::net::tls::{Exactly, provider};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::guest::Guest;
use super::host::Host;
use super::wire::{accept_websocket, certificate, key};

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
                let Ok(Some(request)) = read_request(&mut stream, usize::MAX) else {
                    return Ok(());
                };
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

pub(crate) const ID: &str = "5c0ffee0-0000-4000-8000-000000000001";

/// Serves a command whose sockets stay open. `operation` is the answer to a query of it.
pub(crate) fn open_command(
    request: &Message,
    stream: &mut Stream,
    operation: &Value,
) -> std::io::Result<()> {
    if request.target == "/1.0/exec" {
        let fds = json!({"control": "control", "0": "0", "1": "1", "2": "2"});
        return started(stream, &fds);
    }
    if request.target.contains("/websocket") || request.target == "/1.0/events" {
        accept_websocket(stream, request)?;
        let _gone = stream.read(&mut [0]);
        return Ok(());
    }
    sync(stream, operation)
}

/// Answers that a command was started.
pub(crate) fn started(stream: &mut Stream, fds: &Value) -> std::io::Result<()> {
    let path = format!("/1.0/operations/{ID}");
    let mut started = operation(None);
    started["metadata"] = json!({ "fds": fds });
    let body = json!({"type": "async", "status_code": 100, "operation": path, "error": "",
        "metadata": started});
    whole(stream, &format!("202 Accepted\r\nLocation: {path}"), &body.to_string())
}

/// Returns a command's operation. It has ended if there is a code.
pub(crate) fn operation(code: Option<i64>) -> Value {
    let (status, metadata) = match code {
        Some(code) => (200, json!({ "return": code })),
        None => (103, json!({})),
    };
    json!({"id": ID, "class": "websocket", "status_code": status, "err": "", "metadata": metadata})
}

pub(crate) fn sync(stream: &mut Stream, metadata: &Value) -> std::io::Result<()> {
    let body = json!({"type": "sync", "status_code": 200, "error": "", "metadata": metadata});
    whole(stream, "200 OK", &body.to_string())
}

/// Answers `GET /1.0`.
pub(crate) fn greet(stream: &mut Stream, server: &str) -> std::io::Result<()> {
    let extensions = ["container_exec_user_group_cwd"];
    sync(stream, &json!({"environment": {"server": server}, "api_extensions": extensions}))
}
