//! The built-in client, for images without curl: one request on the devlxd socket, or the status
//! file. Exit codes are in `--help`.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mote_agent::flavour::Flavour;
use mote_agent::http::body::Decoder;
use mote_agent::http::head::{self, Method};
use mote_agent::http::reply::{RequestLine, write_request};
use mote_agent::json;
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::agent::json_text;
use crate::options::{Command, Options};
use crate::{iso, lock, print, report};

/// Longest answer we hold, bytes.
const ANSWER: usize = mote_agent::limits::HOST_REPLY + 64 * 1024;
/// For one answer; the agent itself waits 30 s for the host.
const PATIENCE: Duration = Duration::from_secs(40);

/// For a place in its queue.
const ACCEPT: Duration = Duration::from_secs(5);

/// Why there is no answer; the exit code.
enum Failure {
    Refused(String),
    NoAgent(String),
    NoHost(String),
}

impl Failure {
    fn tell(self) -> ExitCode {
        let (code, text) = match self {
            Self::Refused(text) => (1, text),
            Self::NoAgent(text) => (3, text),
            Self::NoHost(text) => (4, text),
        };
        print::complain(format_args!("{}", text.trim_end()));
        ExitCode::from(code)
    }
}

/// Runs the command.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> ExitCode {
    match answer(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(),
    }
}

fn answer(options: &Options) -> Result<(), Failure> {
    match &options.command {
        Command::Ready => set(options, "Ready"),
        Command::Started => set(options, "Started"),
        Command::Get(key) => print(&get(options, &format!("/1.0/config/{}", encoded(key)))?),
        Command::Config => config(options),
        Command::Metadata => print(&get(options, "/1.0/meta-data")?),
        Command::Devices => print(&get(options, "/1.0/devices")?),
        Command::Events => events(options),
        Command::Status => status(options),
        Command::MountWorker(_)
        | Command::Run
        | Command::Check
        | Command::Report(_)
        | Command::Version
        | Command::Help
        | Command::SftpServer(_) => Ok(()),
    }
}

fn set(options: &Options, state: &str) -> Result<(), Failure> {
    let body = format!("{{\"state\":\"{state}\"}}");
    ask(options, "PATCH", "/1.0", Some(body.as_bytes())).map(drop)
}

fn get(options: &Options, target: &str) -> Result<Vec<u8>, Failure> {
    ask(options, "GET", target, None)
}

/// A key as a path segment.
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

/// Prints, and ends with a newline whatever the value ends with.
fn print(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let newline: &[u8] = if bytes.ends_with(b"\n") { b"" } else { b"\n" };
    let written = out.write_all(bytes).and_then(|()| out.write_all(newline));
    written.map_err(|error| Failure::Refused(error.to_string()))
}

/// `key: value` a line.
fn config(options: &Options) -> Result<(), Failure> {
    let list = get(options, "/1.0/config")?;
    for raw in json::elements(&list) {
        let Some(url) = json_text(raw) else { continue };
        let value = get(options, &url)?;
        let key = url.strip_prefix("/1.0/config/").unwrap_or(&url);
        let mut line = format!("{key}: ").into_bytes();
        line.extend_from_slice(&value);
        print(&line)?;
    }
    Ok(())
}

fn connect(options: &Options) -> Result<UnixStream, Failure> {
    let flavours: &[Flavour] = match &options.flavour {
        Some(flavour) => std::slice::from_ref(flavour),
        None => &[Flavour::Incus, Flavour::Lxd],
    };
    let mut why = String::new();
    for flavour in flavours {
        let path = options.root.join(flavour.socket_path().trim_start_matches('/'));
        match connect_within(&path) {
            Ok(stream) => return Ok(stream),
            Err(Errno::AGAIN) => return Err(Failure::NoAgent("the agent does not answer".into())),
            Err(error) => why = format!("{}: {}", path.display(), io::Error::from(error)),
        }
    }
    Err(Failure::NoAgent(if lock::is_held(&options.root) {
        format!(
            "an agent is running, but it serves no guests: the host has not allowed devlxd, or this \
             guest's policy denies guestapi ({why})"
        )
    } else {
        format!("no agent is running, or it is not ours to ask ({why})")
    }))
}

/// Connects; waits for an agent that does not accept, but not for ever.
fn connect_within(path: &Path) -> Result<UnixStream, Errno> {
    let address = SocketAddrUnix::new(path)?;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_timeout(&socket, Timeout::Send, Some(ACCEPT))?;
    rustix::net::connect(&socket, &address)?;
    Ok(socket.into())
}

fn send(
    options: &Options,
    method: &str,
    target: &str,
    body: Option<&[u8]>,
) -> Result<UnixStream, Failure> {
    let mut stream = connect(options)?;
    let gone = |error: io::Error| Failure::NoAgent(error.to_string());
    stream.set_read_timeout(Some(PATIENCE)).map_err(gone)?;
    let mut out = String::new();
    let length = body.map(|body| u64::try_from(body.len()).unwrap_or(u64::MAX));
    let request =
        RequestLine { method, target, host: "mote", body: length, close: true, extra: &[] };
    write_request(&mut out, &request).map_err(|_| Failure::Refused("not a usable path".into()))?;
    let mut out = out.into_bytes();
    out.extend_from_slice(body.unwrap_or_default());
    stream.write_all(&out).map_err(gone)?;
    Ok(stream)
}

/// Asks, and gives the body of a good answer.
fn ask(
    options: &Options,
    method: &str,
    target: &str,
    body: Option<&[u8]>,
) -> Result<Vec<u8>, Failure> {
    let mut stream = send(options, method, target, body)?;
    let mut answer = Answer::default();
    while answer.more(&mut stream)? {
        if answer.body.len() > ANSWER {
            return Err(Failure::Refused("the answer is too long".into()));
        }
    }
    answer.judged()
}

/// Follows the event stream until it ends.
fn events(options: &Options) -> Result<(), Failure> {
    let mut stream = send(options, "GET", "/1.0/events", None)?;
    let mut answer = Answer::default();
    while answer.more(&mut stream)? {
        // The head is there: from now on silence is normal.
        let gone = |error: io::Error| Failure::NoAgent(error.to_string());
        stream.set_read_timeout(None).map_err(gone)?;
        if answer.status == 200 {
            let mut out = io::stdout().lock();
            let written = out.write_all(&answer.body).and_then(|()| out.flush());
            written.map_err(|error| Failure::Refused(error.to_string()))?;
            answer.body.clear();
        }
    }
    answer.judged().map(drop)
}

/// An answer as it comes in.
#[derive(Default)]
struct Answer {
    raw: Vec<u8>,
    status: u16,
    decoder: Option<Decoder>,
    body: Vec<u8>,
}

impl Answer {
    /// Reads some more; false is the end.
    fn more(&mut self, stream: &mut UnixStream) -> Result<bool, Failure> {
        let mut buffer = [0; 16 * 1024];
        let count = match stream.read(&mut buffer) {
            Ok(count) => count,
            Err(error) => return Err(Failure::NoAgent(error.to_string())),
        };
        self.raw.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let garbled = || Failure::NoAgent("the agent's answer is garbled".into());
        if self.decoder.is_none() {
            let parsed = head::response(&self.raw, Method::Get).map_err(|_| garbled())?;
            let Some((status, framing, length)) =
                parsed.map(|(response, length)| (response.status, response.framing, length))
            else {
                return if count > 0 { Ok(true) } else { Err(garbled()) };
            };
            self.status = status;
            self.decoder = Some(Decoder::new(framing));
            drop(self.raw.drain(..length));
        }
        let Some(decoder) = &mut self.decoder else { return Err(garbled()) };
        loop {
            let step = decoder.decode(&self.raw).map_err(|_| garbled())?;
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
        decoder.eof().map(|()| false).map_err(|_| garbled())
    }

    fn judged(self) -> Result<Vec<u8>, Failure> {
        let text = || String::from_utf8_lossy(&self.body).into_owned();
        match self.status {
            200..300 => Ok(self.body),
            500 | 503 => Err(Failure::NoHost(text())),
            status => Err(Failure::Refused(format!("{} ({status})", text().trim_end()))),
        }
    }
}

/// Prints the agent's own view; fails if no agent runs.
fn status(options: &Options) -> Result<(), Failure> {
    let path = options.root.join(report::PATH);
    let text = iso::read_bounded(&path, 64 * 1024)
        .map_err(|error| Failure::NoAgent(format!("{}: {error}", path.display())))?;
    let member = |key| json::member(&text, key).ok().flatten().and_then(json_text);
    let running = lock::is_held(Path::new(&options.root));
    let mut out = String::with_capacity(512);
    let mut line = |key: &str, value: &str| {
        out.extend([key, ": ", value, "\n"]);
    };
    line("running", if running { "yes" } else { "no" });
    for key in
        ["version", "pid", "flavour", "port", "state", "host", "devlxd", "ready", "last_error"]
    {
        line(key, member(key).as_deref().unwrap_or("-"));
    }
    let since = member("since_uptime_ms").and_then(|since| since.parse().ok());
    if let Some(since) = since {
        let since = mote_agent::time::Uptime::from_millis(since);
        let ago = crate::clock::now() - since;
        line("since", &format!("{}.{:03} s ago", ago.as_secs(), ago.subsec_millis()));
    }
    print(out.as_bytes())?;
    if running { Ok(()) } else { Err(Failure::NoAgent("no agent is running".into())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_become_one_segment() {
        assert_eq!(encoded("user.a b/c%"), "user.a%20b%2Fc%25");
    }
}
