//! A scripted agent: TLS with the certificates of the share, and the part of the API that hosts
//! call. Alternatively, it passes each connection to a test's function.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use super::guest::Guest;
use super::host::{Host, SOON, wait};
use mote_client::Message;
use mote_client::net::http::read_request;
use mote_client::net::tls::{Exactly, Pair, certificate, provider};

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

pub(crate) type Stream = StreamOwned<ServerConnection, UnixStream>;

/// What is sent on a connection before TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preamble {
    None,
    /// vhost-device-vsock's `CONNECT 8443` and `OK`.
    Connect,
}

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
        // The device discards data that arrives with that line: a client that sends before the OK
        // gets no answer.
        stream.set_nonblocking(true)?;
        assert!(stream.read(&mut [0; 1]).is_err(), "sent before OK");
        stream.set_nonblocking(false)?;
        stream.write_all(b"OK 8443\n")?;
    }
    Ok(stream)
}

fn tls(share: &Path) -> Arc<ServerConfig> {
    let pair = Pair::load_or_make(share, "agent").unwrap();
    let host = certificate(&share.join("server.crt")).unwrap();
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(Exactly(Some(host))))
        .with_single_cert(vec![pair.certificate.clone()], pair.key());
    Arc::new(config.unwrap())
}

pub(crate) fn whole(stream: &mut Stream, status: &str, body: &str) -> std::io::Result<()> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// Returns a host whose `vm1` has such an agent, which has already called the host.
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

/// Serves a command whose sockets stay open. `operation` is the answer to queries of its operation.
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
        return hold_websocket(stream, request);
    }
    sync(stream, operation)
}

/// Accepts a websocket, and keeps it open until the host ends it.
pub(crate) fn hold_websocket(stream: &mut Stream, request: &Message) -> std::io::Result<()> {
    accept_websocket(stream, request)?;
    let _gone = stream.read(&mut [0]);
    Ok(())
}

pub(crate) fn started(stream: &mut Stream, fds: &Value) -> std::io::Result<()> {
    let path = format!("/1.0/operations/{ID}");
    let mut started = operation(None);
    started["metadata"] = json!({ "fds": fds });
    let body = json!({"type": "async", "status_code": 100, "operation": path, "error": "",
        "metadata": started});
    whole(stream, &format!("202 Accepted\r\nLocation: {path}"), &body.to_string())
}

pub(crate) fn operation(code: Option<i64>) -> Value {
    let (status, metadata) = match code {
        Some(code) => (200, json!({ "return": code })),
        None => (103, json!({})),
    };
    json!({"id": ID, "class": "websocket", "status_code": status, "err": "", "metadata": metadata})
}

/// Sends an endless head, one byte at a time.
pub(crate) fn drip(stream: &mut Stream, status: &str) -> std::io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nX-Drops: ")?;
    loop {
        stream.write_all(b"x")?;
        stream.flush()?;
        std::thread::sleep(Duration::from_millis(200));
    }
}

pub(crate) fn sync(stream: &mut Stream, metadata: &Value) -> std::io::Result<()> {
    let body = json!({"type": "sync", "status_code": 200, "error": "", "metadata": metadata});
    whole(stream, "200 OK", &body.to_string())
}

pub(crate) fn greet(stream: &mut Stream, server: &str) -> std::io::Result<()> {
    let extensions = ["container_exec_user_group_cwd"];
    sync(stream, &json!({"environment": {"server": server}, "api_extensions": extensions}))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Answers 200.
    Well,
    /// Answers 500 to PUT.
    Refuses,
    /// Answers with a valid but endless head, one byte at a time.
    Drips,
}

#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) message: Message,
    /// The server name in the handshake.
    pub(crate) sni: Option<String>,
}

impl Call {
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.message.method, self.message.target)
    }

    pub(crate) fn json(&self) -> Value {
        self.message.json().unwrap()
    }
}

pub(crate) struct Agent {
    calls: Arc<Mutex<Vec<Call>>>,
    mood: Arc<Mutex<Mood>>,
}

impl Agent {
    pub(crate) fn of(host: &Host, server: &'static str) -> Self {
        let socket = host.path("vm1.p.listen_8443");
        Self::start(&socket, &host.share("vm1"), server)
    }

    /// Starts an agent at `socket` with the files of `share`. `server` is its name in `GET /1.0`.
    pub(crate) fn start(socket: &Path, share: &Path, server: &'static str) -> Self {
        let agent = Self { calls: Arc::default(), mood: Arc::new(Mutex::new(Mood::Well)) };
        let (calls, mood) = (agent.calls.clone(), agent.mood.clone());
        start(socket, share, Preamble::None, move |message, stream| {
            let mood = *mood.lock().unwrap();
            serve(message, stream, mood, server, &calls)
        });
        agent
    }

    pub(crate) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(Call::line).collect()
    }

    /// Waits for the `nth` call that begins with `line`, counted from one.
    pub(crate) fn wait_for(&self, line: &str, nth: usize) -> Call {
        wait(line, SOON, || {
            self.calls().into_iter().filter(|call| call.line().starts_with(line)).nth(nth - 1)
        })
    }
}

fn serve(
    message: &Message,
    mut stream: Stream,
    mood: Mood,
    server: &str,
    calls: &Mutex<Vec<Call>>,
) -> std::io::Result<()> {
    assert!(message.header("content-length").is_some(), "{message:?}");
    let sni = stream.conn.server_name().map(str::to_owned);
    calls.lock().unwrap().push(Call { message: message.clone(), sni });
    if mood == Mood::Drips {
        return drip(&mut stream, "200 OK");
    }
    if message.method == "PUT" && mood == Mood::Refuses {
        let body = r#"{"type":"error","error":"no way back","error_code":500}"#;
        return whole(&mut stream, "500 Internal Server Error", body);
    }
    greet(&mut stream, server)
}
