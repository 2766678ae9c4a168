//! Calls to an agent as its host makes them: the host's files, and reuse of connections.

use std::ops::Deref;
use std::sync::{MutexGuard, PoisonError};

use mote_client::agent::client::{AGENT_PORT, dial};
use mote_client::instance::{Instance, store};
use mote_client::net::stream::{Limit, Timed};
use mote_client::net::tls::{self, Exactly, Pair, certificate, provider};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection};

use super::wire::{Answer, TIMEOUT, Wire};
use super::{Claim, Miss};
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    Host,
    Untrusted,
    Nobody,
}

pub struct Client {
    instance: Instance,
    share: PathBuf,
    agent: CertificateDer<'static>,
    host_tls: Arc<ClientConfig>,
    idle: Mutex<Vec<Wire>>,
}

impl Client {
    pub fn new(host: &Host) -> Self {
        let agent = certificate(&host.share.join("agent.crt")).expect("the agent's certificate");
        let pair = Pair::load_or_make(&store::directory(&host.directory, NAME), "agent-client");
        let host_tls = tls::client(&pair.expect("the host's pair"), agent.clone());
        Self {
            instance: host.instance(),
            share: host.share.clone(),
            agent,
            host_tls: host_tls.expect("TLS 1.3"),
            idle: Mutex::default(),
        }
    }

    pub fn dial(&self) -> Try<Timed> {
        let limit = Limit::Until(Instant::now() + patient(TIMEOUT));
        dial(&self.instance, AGENT_PORT, limit).map_err(|error| format!("{error:#}"))
    }

    pub fn connect(&self) -> Try<Wire> {
        self.connect_as(Caller::Host)
    }

    pub fn connect_as(&self, caller: Caller) -> Try<Wire> {
        Wire::new(self.begin(caller)?, self.dial()?)
    }

    /// Returns a TLS client that has not sent its first message yet.
    pub fn begin(&self, caller: Caller) -> Try<ClientConnection> {
        let config = self.tls(caller).map_err(|error| format!("{error:#}"))?;
        let name = ServerName::try_from("unspecified").map_err(|error| error.to_string())?;
        ClientConnection::new(config, name).map_err(|error| error.to_string())
    }

    fn tls(&self, caller: Caller) -> anyhow::Result<Arc<ClientConfig>> {
        match caller {
            Caller::Host => Ok(self.host_tls.clone()),
            // The agent's own certificate is not the host's.
            Caller::Untrusted => {
                tls::client(&Pair::load_or_make(&self.share, "agent")?, self.agent.clone())
            }
            Caller::Nobody => {
                let builder = ClientConfig::builder_with_provider(provider())
                    .with_protocol_versions(&[&rustls::version::TLS13])?;
                let agent = Arc::new(Exactly(Some(self.agent.clone())));
                let builder = builder.dangerous().with_custom_certificate_verifier(agent);
                Ok(Arc::new(builder.with_no_client_auth()))
            }
        }
    }

    /// Sends a request and reads the answer, on an idle connection if there is one.
    pub fn ask(&self, method: &str, target: &str, body: &str) -> Try<Answer> {
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

    pub fn get(&self, target: &str) -> Try<Value> {
        let answer = self.ask("GET", target, "")?;
        if answer.status == 200 { Ok(answer.metadata()) } else { Err(answer.short()) }
    }

    /// Listens to events as lines, or returns the head of the refusal.
    pub fn listen(&self) -> Try<Wire> {
        let mut wire = self.connect()?;
        wire.send(b"GET /1.0/events HTTP/1.1\r\nHost: x\r\n\r\n")?;
        let head = wire.within(6 * TIMEOUT).until(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&head).into_owned();
        if head.starts_with("HTTP/1.1 200") { Ok(wire) } else { Err(head) }
    }

    /// Tells the agent the host's address, as a new host does.
    pub fn announce(&self) {
        let told = self.host_info().expect("the host's address").to_string();
        assert_eq!(self.ask("PUT", "/1.0", &told).map(|answer| answer.status), Ok(200));
    }

    /// The host's connection information in the share: `agent.conf`.
    pub fn host_info(&self) -> Try<Value> {
        let text = fs::read(self.share.join("agent.conf")).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| error.to_string())
    }
}

pub struct Agent {
    pub column: Column,
    pub host: Mutex<Host>,
    client: Client,
    guest: Mutex<Guest>,
    pub vm: Mutex<Vm>,
}

impl Deref for Agent {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Agent {
    pub fn new(column: Column, host: Host, mut vm: Vm) -> Self {
        let client = Client::new(&host);
        let guest = Mutex::new(vm.guest());
        Self { column, client, host: Mutex::new(host), guest, vm: Mutex::new(vm) }
    }

    /// Runs a command in the guest without the agent; returns exit code and output.
    pub fn sh(&self, command: &str) -> (i32, String) {
        locked(&self.guest).sh(command)
    }

    /// The output of a command in the guest that must succeed, without its last newline.
    pub fn guest(&self, command: &str) -> Try<String> {
        let (code, output) = self.sh(command);
        if code == 0 {
            Ok(output.trim_end().to_owned())
        } else {
            Err(format!("{command}: {output}"))
        }
    }

    pub fn socket(&self) -> &'static str {
        self.column.socket()
    }

    /// Sends bytes to devlxd in the guest and returns all that it sends until it closes. The bytes
    /// must not include `%` or `'`.
    pub fn devlxd_raw(&self, bytes: &str) -> Try<String> {
        let bytes = bytes.replace('\\', "\\\\").replace('\r', "\\r").replace('\n', "\\n");
        let (code, output) =
            self.sh(&format!("printf '{bytes}' | timeout 12 /opt/relay {}", self.socket()));
        match code {
            0 => Ok(output),
            124 | 143 => Err(format!("devlxd does not hang up after {output:?}")),
            _ => Err(output.trim().to_owned()),
        }
    }

    pub fn devlxd(&self, method: &str, target: &str, body: &str) -> Try<Answer> {
        let length = match (method, body) {
            ("GET", "") => String::new(),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let text = self.devlxd_raw(&format!(
            "{method} {target} HTTP/1.1\r\nHost: any\r\nConnection: close\r\n{length}\r\n{body}"
        ))?;
        Answer::parse(&text)
    }

    pub fn host(&self, args: &[&str]) -> Try<String> {
        locked(&self.host).try_run(args)
    }

    pub fn command(&self, args: &[&str]) -> Command {
        locked(&self.host).command(args)
    }

    pub fn seen_by_host(&self) -> Value {
        locked(&self.host).state()
    }

    pub fn wait(&self, what: &str, limit: Duration, look: impl Fn(&Self) -> bool) -> Claim {
        let seen = found(limit, || look(self).then_some(()));
        seen.ok_or_else(|| Miss::No(format!("{what}: not within {} s", limit.as_secs())))
    }
}

/// Locks a mutex even after a check has panicked, because the value is still consistent.
pub fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
