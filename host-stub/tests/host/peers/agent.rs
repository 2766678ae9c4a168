//! An agent: TLS with the certificates of the share, and the part of its API that hosts call.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::Value;

use super::host::{SOON, wait};
use super::wire::{Message, Pinned, certificate, key, provider, read};

/// Behaviour of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    /// Answers 200.
    Well,
    /// Answers 500 to PUT.
    Refuses,
    /// Answers correctly, but one byte at a time and without end.
    Drips,
}

/// One call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) message: Message,
    /// The server name in the handshake.
    pub(crate) sni: Option<String>,
}

impl Call {
    pub(crate) fn line(&self) -> &str {
        self.message.first_line()
    }

    pub(crate) fn json(&self) -> Value {
        self.message.json()
    }
}

pub(crate) struct Agent {
    calls: Arc<Mutex<Vec<Call>>>,
    mood: Arc<Mutex<Mood>>,
}

/// What precedes TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preamble {
    None,
    /// vhost-device-vsock's `CONNECT 8443` and `OK`.
    Connect,
}

impl Agent {
    /// Starts an agent at `socket` with the files of `share`. `server` is its name in `GET /1.0`.
    pub(crate) fn start(
        socket: &Path,
        share: &Path,
        server: &'static str,
        preamble: Preamble,
    ) -> Self {
        let config = tls(share);
        let listener = UnixListener::bind(socket).unwrap();
        let agent = Self { calls: Arc::default(), mood: Arc::new(Mutex::new(Mood::Well)) };
        let (calls, mood) = (agent.calls.clone(), agent.mood.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (calls, mood, config) = (calls.clone(), *mood.lock().unwrap(), config.clone());
                std::thread::spawn(move || {
                    let _cut = serve(stream, config, preamble, mood, server, &calls);
                });
            }
        });
        agent
    }

    pub(crate) fn mood(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Returns the request lines of all calls.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.calls().iter().map(|call| call.line().to_owned()).collect()
    }

    /// Waits for the `nth` call that begins with `line`, counted from one.
    pub(crate) fn wait_for(&self, line: &str, nth: usize) -> Call {
        wait(line, SOON, || {
            self.calls().into_iter().filter(|call| call.line().starts_with(line)).nth(nth - 1)
        })
    }
}

/// Returns the configuration for the certificates of a share.
pub(crate) fn tls(share: &Path) -> Arc<ServerConfig> {
    let config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_client_cert_verifier(Arc::new(Pinned(certificate(&share.join("server.crt")))))
        .with_single_cert(
            vec![certificate(&share.join("agent.crt"))],
            key(&share.join("agent.key")),
        )
        .unwrap();
    Arc::new(config)
}

fn serve(
    mut stream: UnixStream,
    config: Arc<ServerConfig>,
    preamble: Preamble,
    mood: Mood,
    server: &str,
    calls: &Mutex<Vec<Call>>,
) -> std::io::Result<()> {
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
    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), stream);
    let message = read_request(&mut stream)?;
    let sni = stream.conn.server_name().map(str::to_owned);
    let is_put = message.first_line().starts_with("PUT ");
    calls.lock().unwrap().push(Call { message, sni });
    if mood == Mood::Drips {
        stream.write_all(b"HTTP/1.1 200 OK\r\nX-Drops: ")?;
        loop {
            stream.write_all(b"x")?;
            stream.flush()?;
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    let (status, body) = if is_put && mood == Mood::Refuses {
        (
            "500 Internal Server Error",
            r#"{"type":"error","error":"no way back","error_code":500}"#.into(),
        )
    } else {
        let metadata = format!(r#"{{"environment":{{"server":"{server}"}}}}"#);
        ("200 OK", format!(r#"{{"type":"sync","status_code":200,"metadata":{metadata}}}"#))
    };
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all((head + &body).as_bytes())?;
    stream.conn.send_close_notify();
    stream.flush()
}

fn read_request(stream: &mut impl Read) -> std::io::Result<Message> {
    let message = read(stream)?;
    assert!(message.header("Content-Length").is_some(), "{}", message.head);
    Ok(message)
}
