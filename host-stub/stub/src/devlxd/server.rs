//! The devlxd API over vsock. Guests are identified by their socket or context id and must prove it
//! with their certificate (P§3.5). Answers are in the envelope (P§5.4). One request per connection.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::pki_types::CertificateDer;
use rustls::{HandshakeKind, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};
use vsock::{VMADDR_CID_ANY, VsockListener};

use super::Answer;
use crate::daemon::fault::{Fault, Kind};
use crate::daemon::{Daemon, Life, has_ended};
use mote_client::net::http::{read_request, reason, write_answer};
use mote_client::net::slots::{AT_ONCE, Slots, accepted};
use mote_client::net::tls::{self, Pair, certificate};
use mote_client::{CallFailure, Flavour, Instance, Limit, Message, Timed, Vsock, limits, store};

/// Limit for the handshake, head and body together (P§3.5).
const READ: Duration = Duration::from_secs(3);
/// Requests of one guest that are read and answered at the same time, as many as an agent makes.
/// Each can occupy 330 KB, most of it before its certificate is checked.
const READING: usize = 32;
/// Limit for a guest to accept a part of an answer.
const WRITE: Duration = Duration::from_secs(30);
/// Limit for an endless answer.
const HUGE: Duration = Duration::from_secs(600);
/// Bytes per write of an image.
const PIECE: usize = 64 * 1024;

type Stream = StreamOwned<ServerConnection, Timed>;

struct Door {
    daemon: Arc<Daemon>,
    name: String,
    flavour: Flavour,
    agent: CertificateDer<'static>,
    right: Arc<ServerConfig>,
    wrong: Arc<ServerConfig>,
    slots: Arc<Slots>,
    reading: Arc<Slots>,
    life: Life,
}

/// The listeners for guests. Those with a context id share one listener for each port, which
/// outlives the instances.
#[derive(Default)]
pub struct Doors(Mutex<VsockDoors>);

#[derive(Default)]
struct VsockDoors {
    by_context_id: BTreeMap<u32, Arc<Door>>,
    /// Ports that have a listener.
    ports: Vec<u32>,
}

impl Doors {
    /// Starts a thread that listens for one instance's guest until the instance is deleted.
    pub fn open(
        self: &Arc<Self>,
        daemon: &Arc<Daemon>,
        instance: &Instance,
        life: &Life,
    ) -> Result<()> {
        let door = Arc::new(Door::new(daemon, instance, life)?);
        if let Vsock::Cid(cid) = instance.vsock {
            let mut doors = self.lock();
            let port = instance.host_port(daemon.port);
            if !doors.ports.contains(&port) {
                self.listen_vsock(port)?;
                doors.ports.push(port);
            }
            doors.by_context_id.insert(cid, door);
        } else if let Some(path) = instance.vsock.host_socket(instance.host_port(daemon.port)) {
            listen_unix(daemon, &path, door)?;
        }
        Ok(())
    }

    pub fn close(&self, daemon: &Daemon, instance: &Instance) {
        if let Vsock::Cid(cid) = instance.vsock {
            self.lock().by_context_id.remove(&cid);
        } else if let Some(path) = instance.vsock.host_socket(instance.host_port(daemon.port)) {
            // Wakes the thread in accept(2), so that it notices that the instance was deleted.
            let _gone = UnixStream::connect(&path);
            let _gone = std::fs::remove_file(&path);
        }
    }

    fn lock(&self) -> MutexGuard<'_, VsockDoors> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context id identifies the guest (P§3.5). Guests share this listener, so a guest that
    /// uses all its threads delays the others.
    fn listen_vsock(self: &Arc<Self>, port: u32) -> Result<()> {
        let listener = VsockListener::bind_with_cid_port(VMADDR_CID_ANY, port).context("vsock")?;
        let doors = self.clone();
        std::thread::spawn(move || {
            for socket in accepted(listener.incoming()) {
                let peer = socket.peer_addr().ok();
                let door =
                    peer.and_then(|peer| doors.lock().by_context_id.get(&peer.cid()).cloned());
                // A vsock stream is used like any other stream socket from here on.
                if let Some(door) = door {
                    door.receive(OwnedFd::from(socket).into());
                }
            }
        });
        Ok(())
    }
}

fn listen_unix(daemon: &Daemon, path: &Path, door: Arc<Door>) -> Result<()> {
    let _stale = std::fs::remove_file(path);
    let listener = UnixListener::bind(path).with_context(|| path.display().to_string())?;
    daemon.bound(path);
    std::thread::spawn(move || {
        for socket in accepted(listener.incoming()) {
            if has_ended(&door.life) {
                return;
            }
            door.receive(socket);
        }
    });
    Ok(())
}

impl Door {
    fn new(daemon: &Arc<Daemon>, instance: &Instance, life: &Life) -> Result<Self> {
        let directory = store::directory(&daemon.root, &instance.name);
        Ok(Self {
            daemon: daemon.clone(),
            name: instance.name.clone(),
            flavour: instance.flavour,
            agent: certificate(&store::share(&daemon.root, &instance.name).join("agent.crt"))?,
            right: tls::server(&daemon.pair)?,
            wrong: tls::server(&Pair::load_or_make(&directory, "wrong")?)?,
            slots: Slots::new(AT_ONCE),
            reading: Slots::new(READING),
            life: life.clone(),
        })
    }

    /// Serves a connection in a thread, as soon as one is free.
    fn receive(self: &Arc<Self>, socket: UnixStream) {
        let door = self.clone();
        self.slots.serve(move || door.let_in(socket));
    }

    fn let_in(&self, socket: UnixStream) {
        let fault = self.daemon.with(&self.name, |live| {
            live.agent.connections += 1;
            live.fault
        });
        let Ok(fault) = fault else { return };
        if let Err(error) = self.serve(Timed::new(socket, Limit::Never), fault) {
            let failure = error.downcast_ref().and_then(CallFailure::meant);
            // A slow guest proves nothing.
            let failure = failure.filter(|failure| *failure == CallFailure::HostsCertificate);
            self.daemon.failed(&self.name, &format!("guest connection: {error:#}"), failure);
        }
    }

    fn serve(&self, mut socket: Timed, fault: Fault) -> Result<()> {
        if fault.kind == Kind::Stall {
            socket.limit(Limit::within(fault.time));
            let _over = std::io::copy(&mut socket, &mut std::io::sink());
            return Ok(());
        }
        let config = if fault.kind == Kind::WrongCert { &self.wrong } else { &self.right };
        let mut slot = Some(self.reading.take());
        socket.limit(Limit::within(READ));
        let mut stream = StreamOwned::new(ServerConnection::new(config.clone())?, socket);
        let Some(mut request) = read_request(&mut stream, limits::REQUEST)? else { return Ok(()) };
        let resumed = stream.conn.handshake_kind() == Some(HandshakeKind::Resumed);
        let line = format!("{} {}", request.method, request.target);
        self.daemon.with(&self.name, |live| {
            live.agent.resumed += u64::from(resumed);
            live.agent.last_request.clone_from(&line);
        })?;
        // A response may take long, but not one of its parts.
        stream.sock.limit(Limit::Each(WRITE));
        if fault.kind == Kind::Reset {
            self.daemon.log(&format!("{}: {line} reset", self.name));
            return Ok(());
        }
        if fault.kind == Kind::Garbage {
            return Ok(stream.write_all(b"\x16\x03 this is not HTTP\r\n\r\n")?);
        }
        if fault.kind == Kind::Huge {
            return huge(&mut stream);
        }
        if fault.kind == Kind::Slow {
            // For Go the ticket is part of the handshake, so it is sent before the answer.
            stream.flush()?;
            drop(slot.take());
            std::thread::sleep(fault.time);
        }
        let answer = self.answer(&stream, &request, fault)?;
        // Free the body, because the guest may take long to read the answer.
        request.body = Vec::new();
        drop(slot.take());
        let status = self.write(&mut stream, &request, answer)?;
        if status == 200 {
            self.daemon.with(&self.name, |live| live.agent.called())?;
        }
        stream.conn.send_close_notify();
        let _gone = stream.flush();
        let how = if resumed { " (resumed)" } else { "" };
        self.daemon.log(&format!("{}: {line} {status}{how}", self.name));
        Ok(())
    }

    fn answer(&self, stream: &Stream, request: &Message, fault: Fault) -> Result<Answer> {
        let shown = stream.conn.peer_certificates().and_then(|all| all.first());
        if shown != Some(&self.agent) {
            let text = "guest connection: it shows another instance's certificate";
            self.daemon.with(&self.name, |live| {
                live.agent.failed(text, Some(CallFailure::AgentsCertificate));
            })?;
            return Ok(Answer::Error(401, "Unauthorized".into()));
        }
        self.daemon.with(&self.name, |live| live.called = true)?;
        if fault.kind == Kind::Forbidden {
            return Ok(Answer::Error(403, "Forbidden".into()));
        }
        // The guest gets the host's error.
        super::answer(&self.daemon, &self.name, request)
            .or_else(|why| Ok(Answer::Error(500, format!("{why:#}"))))
    }

    fn write(&self, stream: &mut Stream, request: &Message, answer: Answer) -> Result<u16> {
        let (code, etag, kind, body) = match answer {
            Answer::Image(size) => return image(stream, request, size).map(|()| 200),
            Answer::Data(value, etag) => (200, etag, "application/json", envelope(200, "", value)),
            Answer::Error(code, text) => {
                let text = if text.is_empty() { reason(code).to_owned() } else { text };
                // Incus and old LXD refuse unknown certificates in plain text (P§5.4).
                if code == 401 && !self.flavour.is_lxd() {
                    (code, None, "text/plain", format!("{text}\n").into_bytes())
                } else {
                    (code, None, "application/json", envelope(code, &text, Value::Null))
                }
            }
        };
        let extra: Vec<_> = etag.map(|etag| ("ETag", etag)).into_iter().collect();
        write_answer(stream, code, kind, &extra, &body)?;
        Ok(code)
    }
}

fn envelope(code: u16, error: &str, metadata: Value) -> Vec<u8> {
    let ok = code == 200;
    let body = json!({"type": if ok { "sync" } else { "error" },
        "status": if ok { "Success" } else { "" }, "status_code": if ok { 200 } else { 0 },
        "operation": "", "error_code": if ok { 0 } else { code }, "error": error,
        "metadata": metadata});
    format!("{body}\n").into_bytes()
}

/// Writes an image: the same noise each time, so that it can be compared.
fn image(stream: &mut Stream, request: &Message, size: u64) -> Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
         Content-Disposition: inline;filename=image.bin\r\nX-Path: {}\r\n\
         Content-Length: {size}\r\nConnection: close\r\n\r\n",
        request.path()
    );
    stream.write_all(head.as_bytes())?;
    let (mut word, mut piece) = (1u32, [0; PIECE]);
    for begin in (0..size).step_by(PIECE) {
        for byte in &mut piece {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = word.to_be_bytes()[0];
        }
        let left = usize::try_from(size - begin).unwrap_or(PIECE);
        stream.write_all(&piece[..left.min(PIECE)])?;
    }
    Ok(stream.flush()?)
}

/// Writes an endless answer; the agent must stop reading.
fn huge(stream: &mut Stream) -> Result<()> {
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"metadata\":\"";
    stream.sock.limit(Limit::within(HUGE));
    stream.write_all(head)?;
    std::io::copy(&mut std::io::repeat(b'x'), stream)?;
    Ok(())
}
