//! The built-in client, for images without curl: sends requests to the devlxd socket, and prints the
//! agent's own view. `--help` lists the exit codes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use mote_core::devlxd::ready::{ReadyState, write_state};
use mote_core::flavour::Flavour;
use mote_core::hostapi::policy::Capability;
use mote_core::http::body::Decoder;
use mote_core::http::head::{self, Method};
use mote_core::http::reply::{RequestLine, write_request};
use mote_core::json::{Document, Value};
use mote_core::status::State;
use mote_core::status::view::View;
use mote_core::time::Uptime;
use rustix::io::{Errno, read};
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::cli::connect::dial;
use crate::handover::running::{self, Running};
use crate::handover::view;
use crate::options::Options;
use crate::options::command::Ask;
use crate::runtime::now;
use crate::{built, print};

/// Maximum size of a response body, in bytes.
const ANSWER: usize = mote_core::limits::HOST_REPLY + 64 * 1024;
/// Read time limit for a response; the agent itself waits 30 s for the host.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(40);

/// Time limit for the agent to accept the connection.
const ACCEPT: Duration = Duration::from_secs(5);

#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options, ask: &Ask) -> u8 {
    let done = match ask {
        Ask::Set(state) => set(options, *state),
        Ask::Get(key) => value(options, key).and_then(|value| print(&value)),
        Ask::Config => config(options),
        Ask::Show(target) => get(options, target).and_then(|answer| print(&answer)),
        Ask::Events => events(options),
        Ask::Status => status(options),
    };
    match done {
        Ok(()) => 0,
        Err(failure) => failure.report(),
    }
}

fn set(options: &Options, state: ReadyState) -> Result<(), Failure> {
    let body = Document::new(32, |json| write_state(json, state.name()));
    ask(options, "PATCH", "/1.0", Some(body.value().raw().as_bytes())).map(drop)
}

fn value(options: &Options, key: &str) -> Result<Vec<u8>, Failure> {
    get(options, &format!("/1.0/config/{}", encoded(key)))
}

fn get(options: &Options, target: &str) -> Result<Vec<u8>, Failure> {
    ask(options, "GET", target, None)
}

/// Percent-encodes a key as one path segment.
fn encoded(key: &str) -> String {
    let mut out = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn print(bytes: &[u8]) -> Result<(), Failure> {
    let newline: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    print::passed_on(bytes).and_then(|()| print::passed_on(newline)).map_err(unprinted)
}

/// Prints all configuration values, one line `key: value` each.
fn config(options: &Options) -> Result<(), Failure> {
    let list = get(options, "/1.0/config")?;
    // An answer that is not JSON contains no keys.
    for url in Value::parse(&list).unwrap_or(Value::NULL).elements() {
        let Ok(url) = url.string() else { continue };
        // Hosts list keys unencoded, and decode requested keys (P§5.3).
        let key = url.strip_prefix("/1.0/config/").unwrap_or(&url);
        let value = match value(options, key) {
            // LXD lists empty keys, but has no value for them.
            Err(Failure::Refused(why)) if why.ends_with("(404)") => Vec::new(),
            value => value?,
        };
        let mut line = format!("{key}: ").into_bytes();
        line.extend_from_slice(&value);
        print(&line)?;
    }
    Ok(())
}

/// Connects to the devlxd socket of the given flavour, or of any.
fn connect(options: &Options) -> Result<OwnedFd, Failure> {
    let flavours: &[Flavour] = match &options.flavour {
        Some(flavour) => std::slice::from_ref(flavour),
        None => &[Flavour::Incus, Flavour::Lxd],
    };
    let mut errors = Vec::new();
    for flavour in flavours {
        let path = options.root.join(flavour.socket_path().trim_start_matches('/'));
        match connect_within(&path) {
            Ok(stream) => return Ok(stream),
            Err(Errno::TIMEDOUT) => {
                return Err(Failure::NoAgent("the agent does not answer".into()));
            }
            Err(error) => errors.push((flavour, path, error)),
        }
    }
    let view = view::read(&options.root).unwrap_or_default();
    let known = view.flavour.as_deref().and_then(Flavour::parse);
    let mut why = String::new();
    for (flavour, path, error) in errors {
        // Omit the other flavour's socket, which does not exist.
        if known.is_none_or(|known| known.socket_path() == flavour.socket_path()) {
            let between = if why.is_empty() { "" } else { "; " };
            why.extend([between, &format!("{}: {error}", path.display())]);
        }
    }
    Err(Failure::NoAgent(match running::running(&options.root) {
        Running::Yes => unserved(&view, &why),
        Running::Hidden(hidden) => format!("{hidden} ({why})"),
        Running::No => format!("no agent is running ({why})"),
        Running::Unknown(blind) => format!("{why}; {blind} to see if an agent is running"),
    }))
}

/// Returns why a running agent does not serve devlxd, according to its status file.
fn unserved(view: &View<'_>, why: &str) -> String {
    if !built::STATE {
        // The smallest build omits the reason.
        return format!("an agent is running, but does not serve devlxd ({why})");
    }
    let policy = view.policy.as_deref().unwrap_or_default();
    let state = view.state.as_deref().unwrap_or_default();
    let reason = if view.is_waiting() {
        format!("it is still {state}; 'mote-agent --check' shows what is missing")
    } else if view.denies(Capability::GuestApi.name()) {
        format!("the guest's policy denies guestapi ({policy})")
    } else if state == State::Connected.name() {
        format!(
            "the host has disabled devlxd: security.devlxd (Incus: security.guestapi) is false ({why})"
        )
    } else if let Some(last_error) = &view.last_error {
        format!("it cannot reach the host: {last_error}")
    } else {
        format!("the host has not called it yet ({why})")
    };
    format!("an agent is running, but {reason}")
}

/// Connects to a unix socket; `ETIMEDOUT` if its queue is full for [`ACCEPT`].
fn connect_within(path: &Path) -> Result<OwnedFd, Errno> {
    dial(&SocketAddrUnix::new(path)?.into(), ACCEPT)
}

fn send(
    options: &Options,
    method: &str,
    target: &str,
    body: Option<&[u8]>,
) -> Result<OwnedFd, Failure> {
    let stream = connect(options)?;
    set_socket_timeout(&stream, Timeout::Recv, Some(ANSWER_TIMEOUT)).map_err(gone)?;
    let mut out = String::new();
    let length = body.map(|body| u64::try_from(body.len()).unwrap_or(u64::MAX));
    let request =
        RequestLine { method, target, host: "mote", body: length, close: true, extra: &[] };
    write_request(&mut out, &request).map_err(|_| Failure::Refused("not a usable path".into()))?;
    let mut out = out.into_bytes();
    out.extend_from_slice(body.unwrap_or_default());
    print::write_all(stream.as_fd(), &out).map_err(gone)?;
    Ok(stream)
}

fn ask(
    options: &Options,
    method: &str,
    target: &str,
    body: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let stream = send(options, method, target, body)?;
    let mut answer = Answer::default();
    while answer.more(&stream)? {
        if answer.body.len() > ANSWER {
            return Err(Failure::Refused("the answer is too long".into()));
        }
    }
    answer.into_result()
}

fn events(options: &Options) -> Result<(), Failure> {
    let stream = send(options, "GET", "/1.0/events", None)?;
    let mut answer = Answer::default();
    while answer.more(&stream)? {
        // Once the response has begun, it may pause for any time.
        set_socket_timeout(&stream, Timeout::Recv, None).map_err(gone)?;
        if answer.status == 200 {
            print::passed_on(&answer.body).map_err(unprinted)?;
            answer.body.clear();
        }
    }
    answer.into_result().map(drop)
}

#[derive(Default)]
struct Answer {
    raw: Vec<u8>,
    status: u16,
    decoder: Option<Decoder>,
    body: Vec<u8>,
}

impl Answer {
    /// Reads more of the response; returns false at its end.
    fn more(&mut self, stream: &OwnedFd) -> Result<bool, Failure> {
        let mut buffer = [0; 16 * 1024];
        let count = read(stream, &mut buffer).map_err(gone)?;
        self.raw.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let invalid = || Failure::NoAgent("the agent's answer is invalid".into());
        if self.decoder.is_none() {
            let parsed = head::response(&self.raw, Method::Get).map_err(|_| invalid())?;
            let Some((status, framing, length)) =
                parsed.map(|(response, length)| (response.status, response.framing, length))
            else {
                return if count > 0 { Ok(true) } else { Err(invalid()) };
            };
            self.status = status;
            self.decoder = Some(Decoder::new(framing));
            drop(self.raw.drain(..length));
        }
        let Some(decoder) = &mut self.decoder else { return Err(invalid()) };
        loop {
            let step = decoder.decode(&self.raw).map_err(|_| invalid())?;
            self.body.extend_from_slice(step.data);
            let consumed = step.consumed;
            drop(self.raw.drain(..consumed));
            if decoder.finished() {
                return Ok(false);
            }
            if consumed == 0 {
                break;
            }
        }
        if count > 0 {
            return Ok(true);
        }
        decoder.eof().map(|()| false).map_err(|_| invalid())
    }

    fn into_result(self) -> Result<Vec<u8>, Failure> {
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        match self.status {
            200..300 => Ok(self.body),
            500 | 503 => Err(Failure::NoHost(text())),
            status => Err(Failure::Refused(format!("{} ({status})", text().trim_ascii_end()))),
        }
    }
}

/// Why a command failed; each kind has its exit code.
enum Failure {
    /// The host refuses the request, or its result is unusable.
    Refused(String),
    NoAgent(String),
    NoHost(String),
}

fn unprinted(error: io::Error) -> Failure {
    Failure::Refused(error.to_string())
}

fn gone(error: Errno) -> Failure {
    Failure::NoAgent(error.to_string())
}

impl Failure {
    fn report(self) -> u8 {
        let (code, text) = match self {
            Self::Refused(text) => (1, text),
            Self::NoAgent(text) => (3, text),
            Self::NoHost(text) => (4, text),
        };
        print::complain(format_args!("{}", text.trim_ascii_end()));
        code
    }
}

/// Prints the agent's own view; fails if no agent runs, or if the host cannot use it.
fn status(options: &Options) -> Result<(), Failure> {
    let (running, hidden) = match running::running(&options.root) {
        Running::Yes => (true, None),
        Running::Hidden(hidden) => (true, Some(hidden.to_string())),
        Running::No => (false, None),
        Running::Unknown(why) => return Err(Failure::NoAgent(why)),
    };
    // The view could be another agent's.
    let read = hidden.map_or_else(|| view::read(&options.root), Err);
    let unread = read.as_ref().err().filter(|_| running).cloned();
    let mut view = read.unwrap_or_default();
    let mut ended = (None, None);
    if !running {
        // Most of a dead agent's view no longer applies.
        let View { version, flavour, last_error, pid, state, .. } = view;
        ended = (pid, state);
        view = View { version, flavour, last_error, ..View::default() };
    }
    view.running = running;
    view.last_error = unread.map(Into::into).or(view.last_error);
    let printed = if options.json {
        print::passed_on(view.write().as_bytes())
    } else {
        print::out(format_args!("{}", lines(&view)))
    };
    printed.map_err(unprinted)?;
    if view.blocked {
        return Err(Failure::NoHost(view.last_error.unwrap_or_default().into_owned()));
    }
    match ended {
        _ if running => Ok(()),
        (Some(pid), Some(state)) if state != State::Stopped.name() => Err(Failure::NoAgent(
            format!("no agent is running; process {pid} ended unexpectedly in state {state}"),
        )),
        _ => Err(Failure::NoAgent("no agent is running".into())),
    }
}

fn lines(view: &View<'_>) -> String {
    let pid = view.pid.map(|pid| pid.to_string());
    let lasts = view.since_uptime_ms.map(|since| {
        let lasts = now() - Uptime::from_millis(since);
        format!("{}.{:03} s", lasts.as_secs(), lasts.subsec_millis())
    });
    let mut out = String::with_capacity(512);
    for (key, value) in [
        ("running", Some(if view.running { "yes" } else { "no" })),
        ("version", view.version.as_deref()),
        ("program", view.program.as_deref()),
        ("pid", pid.as_deref()),
        ("flavour", view.flavour.as_deref()),
        ("files", view.files.as_deref()),
        ("port", view.port.as_deref()),
        ("state", view.state.as_deref()),
        ("host", view.host.as_deref()),
        ("devlxd", view.devlxd.as_deref()),
        ("ready", view.ready.as_deref()),
        ("policy", view.policy.as_deref()),
        ("called", view.called.then_some("yes")),
        ("last_error", view.last_error.as_deref()),
        ("for", lasts.as_deref()),
    ] {
        if key != "for" || value.is_some() {
            out.extend([key, ": ", value.unwrap_or("-"), "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_why_the_socket_is_missing() {
        let rows = [
            (
                "CONNECTED",
                "denied: exec guestapi; f: line 1",
                "policy denies guestapi (denied: exec guestapi; f: line 1)",
            ),
            (
                "CONNECTED",
                "denied: exec; guestapi",
                "the host has disabled devlxd: security.devlxd",
            ),
            ("STARTED", "", "the host has not called it yet (w)"),
        ];
        for (state, policy, part) in rows {
            let view =
                View { state: Some(state.into()), policy: Some(policy.into()), ..View::default() };
            let text = unserved(&view, "w");
            assert!(text.starts_with("an agent is running, but ") && text.contains(part), "{text}");
        }
    }
}
