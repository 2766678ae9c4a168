//! Commands of the host: the body of `POST /1.0/exec` with its defaults, and the messages of the
//! control socket. Source: P§4.1.
//!
//! Allocates, because only the limit on the body bounds the length of a command and its
//! environment. They are stored in the form that execve(2) takes, so a request needs little more
//! memory than its body.

use crate::json::{JsonError, Value, Writer, quoted_length};
use alloc::string::String;
use core::fmt;
pub use program::{MAX_PATH, Program};
pub use strings::Strings;

pub mod power;
mod program;
mod strings;

/// `PATH` of a request without one (P§4.1).
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Directories of snaps and NixOS, appended to `PATH` if they exist (P§4.1).
const MORE: [&str; 2] = [":/snap/bin", ":/run/current-system/sw/bin"];
/// Size of the terminal until the host sets another size (P§4.1).
pub const TERMINAL: Size = Size { width: 80, height: 25 };

/// Maximum size of command and environment in an operation's metadata, in bytes of JSON each; every
/// listener and list of operations gets a copy. Longer ones, which are rare, are truncated.
pub const SHOWN: usize = 32 * 1024;
/// Maximum size of arguments and environment together on any Linux, in bytes: three quarters of the
/// default stack limit, 8 MiB (execve(2)).
const MAX_EXECVE: usize = 6 * 1024 * 1024;

/// The environment variable that names what started this program: [`BY_AGENT`] or [`BY_HOST`]. A
/// host that is limited to some commands cannot set variables, so it cannot impersonate the agent.
pub const STARTED_BY: &str = "MOTE_STARTED_BY";
pub const BY_AGENT: &str = "agent";
/// Started by the host, with a command that the policy lists.
pub const BY_HOST: &str = "host";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u16,
    pub height: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `argv`; never empty.
    pub command: Strings,
    /// `NAME=value` each. The agent's own environment is not inherited.
    pub environment: Strings,
    pub interactive: bool,
    pub size: Size,
    pub user: u32,
    pub group: u32,
    /// The requested working directory; empty if none.
    pub directory: String,
}

impl Request {
    /// Reads the body of `POST /1.0/exec`. Ignores unknown members; `null` counts as absent. The
    /// stored part ([`Request::held`]) is limited to `most` bytes.
    /// Errors: any [`Refusal`]; [`JsonError::TooLong`] beyond `most` bytes.
    pub fn parse(body: &[u8], most: usize) -> Result<Self, Refusal> {
        #[rustfmt::skip] // several in a line
        let fields = [
            "command", "environment", "interactive", "wait-for-websocket", "width", "height",
            "user", "group", "cwd",
        ];
        let [command, environment, interactive, sockets, width, height, user, group, cwd] =
            Value::parse(body)?.fields(fields)?;
        let boolean = |value: Option<Value<'_>>| value.map_or(Ok(false), Value::boolean);
        let number = |value: Option<Value<'_>>| value.map_or(Ok(0), Value::number);
        let command = command.map_or(Ok(Strings::default()), |list| texts(list, most))?;
        let most = most.saturating_sub(command.bytes());
        let environment = environment.map_or(Ok(Strings::default()), |all| pairs(all, most))?;
        let most = most.saturating_sub(environment.bytes());
        let mut request = Self {
            command,
            environment,
            interactive: boolean(interactive)?,
            size: TERMINAL,
            user: number(user)?,
            group: number(group)?,
            directory: cwd.map_or(Ok(String::new()), |cwd| owned(cwd, most))?,
        };
        let (sockets, width, height) = (boolean(sockets)?, number(width)?, number(height)?);
        if !sockets {
            return Err(Refusal::NoWebsocket);
        }
        if request.name().is_empty() {
            return Err(Refusal::NoCommand);
        }
        if let (Ok(width @ 1..), Ok(height @ 1..)) = (u16::try_from(width), u16::try_from(height)) {
            request.size = Size { width, height };
        }
        Ok(request)
    }

    pub fn name(&self) -> &str {
        self.command.texts().next().unwrap_or_default()
    }

    /// Adds the variables that the Go agents add (P§4.1): `PATH`, `HOME`, `USER`, `LANG`. `has`
    /// returns whether a directory exists, by its path without the leading slash.
    pub fn add_defaults(&mut self, has: &dyn Fn(&str) -> bool) {
        self.default("PATH", PATH);
        for more in MORE {
            if has(more.trim_start_matches([':', '/'])) {
                self.environment.extend("PATH=", more);
            }
        }
        if self.user == 0 {
            self.default("HOME", "/root");
            self.default("USER", "root");
        }
        self.default("LANG", "C.UTF-8");
        self.environment.shrink();
    }

    /// Drops the host's variables except harmless ones: with `LD_PRELOAD`, `PATH` or `PYTHONPATH`
    /// the host could run a program other than the one it names. As sudo does, keeps the terminal
    /// and the language, unless a value could name a file. Adds [`STARTED_BY`].
    pub fn drop_environment(&mut self) {
        let mut kept = Strings::default();
        for variable in self.environment.texts() {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            let is_plain = matches!(name, "TERM" | "LANG") || name.starts_with("LC_");
            if is_plain && !value.contains(['/', '%']) {
                kept.push(&[variable]);
            }
        }
        kept.push(&[STARTED_BY, "=", BY_HOST]);
        self.environment = kept;
    }

    /// Empties `PATH`, so that a name without a slash finds no program, and ignores the working
    /// directory that the host has chosen.
    pub fn find_nothing(&mut self) {
        self.directory = String::new();
        self.environment = Strings::default();
        self.environment.push(&["PATH="]);
    }

    fn default(&mut self, name: &str, value: &str) {
        if self.variable(name).is_none() {
            self.environment.push(&[name, "=", value]);
        }
    }

    /// Returns the value of the variable `name`; the first one counts, as in getenv(3).
    pub fn variable(&self, name: &str) -> Option<&str> {
        let mut variables = self.environment.texts();
        variables.find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns the working directory: the requested one, else `HOME`, else `/`.
    pub fn directory(&self) -> &str {
        let asked = Some(self.directory.as_str()).filter(|asked| !asked.is_empty());
        let home = || self.variable("HOME").filter(|home| !home.is_empty());
        asked.or_else(home).unwrap_or("/")
    }

    /// Returns the program and where to look for it: in the `PATH` of the request, not in the
    /// agent's own as the Go agents do (P§9.4).
    pub fn program(&self) -> Program<'_> {
        let name = self.command.iter().next().unwrap_or_default();
        Program { name, path: self.variable("PATH").unwrap_or(PATH) }
    }

    /// Returns the size of the stored part, in bytes.
    pub fn held(&self) -> usize {
        self.command.bytes() + self.environment.bytes() + self.directory.len()
    }

    pub fn strings(&self) -> usize {
        self.command.count() + self.environment.count()
    }

    /// Returns whether the command is too long for execve(2) on every system: a string counts as
    /// its bytes and a pointer.
    pub fn is_too_long(&self) -> bool {
        self.held() + self.strings() * size_of::<usize>() > MAX_EXECVE
    }

    /// Writes the operation's metadata: the secret of each socket, the command and its environment.
    pub fn write_metadata<'s>(
        &self,
        json: &mut Writer<'_>,
        secrets: impl Iterator<Item = (&'static str, &'s str)>,
    ) {
        json.begin_object();
        json.begin_member("fds");
        secrets.for_each(|(name, secret)| json.pair(name, secret));
        json.end_object();
        json.key("command");
        json.begin_array();
        shown(self.command.texts(), ",".len()).for_each(|word| json.string(word));
        json.end_array();
        json.begin_member("environment");
        // In JSON, a variable has a comma, a colon and two more quotes, but no equals sign.
        for variable in shown(self.environment.texts(), ",:\"\"".len() - "=".len()) {
            let (name, value) = variable.split_once('=').unwrap_or((variable, ""));
            json.name(name.as_bytes());
            json.string(value);
        }
        json.end_object();
        json.flag("interactive", self.interactive);
        json.end_object();
    }
}

/// Returns the first texts that fit into [`SHOWN`] bytes, where each takes `more` bytes in addition
/// to its quoted text.
fn shown<'t>(texts: impl Iterator<Item = &'t str>, more: usize) -> impl Iterator<Item = &'t str> {
    let mut left = SHOWN;
    texts.take_while(move |text| {
        // Do not measure a text that is too long even without escapes.
        let fits = text.len() <= left;
        let rest = fits.then(|| left.checked_sub(quoted_length(text) + more)).flatten();
        left = rest.unwrap_or(left);
        rest.is_some()
    })
}

fn owned(value: Value<'_>, most: usize) -> Result<String, Refusal> {
    let mut strings = Strings::default();
    strings.push_json(&[value], "", most)?;
    Ok(strings.texts().collect())
}

fn texts(list: Value<'_>, most: usize) -> Result<Strings, Refusal> {
    if !list.is_array() {
        return Err(JsonError::Shape.into());
    }
    let mut strings = Strings::default();
    for text in list.elements() {
        strings.push_json(&[text], "", most)?;
    }
    strings.shrink();
    Ok(strings)
}

fn pairs(object: Value<'_>, most: usize) -> Result<Strings, Refusal> {
    if !object.is_object() {
        return Err(JsonError::Shape.into());
    }
    let mut strings = Strings::default();
    for (name, value) in object.members() {
        strings.push_json(&[name, value], "=", most)?;
    }
    // Reversed: of two members with one name, the last one counts in JSON, but programs use the
    // first one. No host sends duplicates, and removing them would compare each of up to a million
    // with all others.
    strings.reverse();
    Ok(strings)
}

/// Why an exec request is answered with 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body is not JSON, or a member has the wrong type.
    Json(JsonError),
    /// The command is missing or empty, which crashes the Go agents (P§9.4).
    NoCommand,
    /// An argument or variable contains a NUL, which execve(2) cannot pass on.
    Nul,
    /// `wait-for-websocket` is not set: like the Go agents, mote runs commands only on websockets.
    NoWebsocket,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(out, "Invalid exec request: {error}"),
            Self::NoCommand => out.write_str("The command is empty"),
            Self::Nul => out.write_str("A command or variable contains a NUL"),
            Self::NoWebsocket => out.write_str("Websockets are required for VM exec"),
        }
    }
}

impl From<JsonError> for Refusal {
    fn from(error: JsonError) -> Self {
        Self::Json(error)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Resize(Size),
    Signal(i32),
}

/// Reads one message; returns `None` if it is invalid or unknown and must be ignored.
pub fn control(message: &[u8]) -> Option<Control> {
    let message = Value::parse(message).ok()?;
    let [command, arguments, signal] = message.fields(["command", "args", "signal"]).ok()?;
    let command = command?;
    if command.is("window-resize") {
        let [width, height] = arguments?.fields(["width", "height"]).ok()?;
        return Some(Control::Resize(Size { width: side(width?)?, height: side(height?)? }));
    }
    if command.is("signal") {
        let signal = signal?.number().ok();
        return signal.filter(|signal| (1..=64).contains(signal)).map(Control::Signal);
    }
    None
}

/// Reads a width or height in characters: a number, or a string with one.
fn side(value: Value<'_>) -> Option<u16> {
    let mut buffer = [0; 8];
    let side = match value.text(&mut buffer) {
        Ok(digits) => digits.parse().ok(),
        Err(_) => value.number().ok(),
    };
    side.filter(|side| *side > 0)
}

pub const NOT_FOUND: i32 = 127;

/// Returns the exit status of a command that could not be run, from its errno. The values are a
/// shell's (P§4.1): [`NOT_FOUND`], 126 for "not executable", else -1.
pub fn not_run(errno: Option<i32>) -> i32 {
    // Linux has the same numbers on every architecture.
    const EPERM: i32 = 1;
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOTDIR: i32 = 20;
    match errno {
        Some(ENOENT | ENOTDIR) => NOT_FOUND,
        Some(EACCES | EPERM) => 126,
        Some(_) | None => -1,
    }
}

#[cfg(test)]
mod tests;
