//! What a host wants run, as a value: the body of `POST /1.0/exec`, the defaults around it, and the
//! words of the control socket. Source: P§4.1.
//!
//! Allocates: a command and its environment are of any length up to the body's limit.

mod control;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

pub use control::{Control, control};

use crate::json::{self, JsonError, is_text};

/// `PATH` where the host gave none (P§4.1).
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Appended to any `PATH` where it exists (P§4.1).
pub const SNAP: &str = "/snap/bin";
/// The terminal's size until the host says another (P§4.1).
pub const TERMINAL: Size = Size { width: 80, height: 25 };

/// A terminal's size, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Lines.
    pub height: u16,
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `argv`; never empty.
    pub command: Vec<String>,
    /// Names and values; nothing else is passed on.
    pub environment: Vec<(String, String)>,
    /// On a terminal rather than on pipes.
    pub interactive: bool,
    /// The terminal's size.
    pub size: Size,
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
    /// The working directory asked for; empty is none.
    pub directory: String,
}

/// Why a request is refused: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body is not the JSON it should be.
    Json(JsonError),
    /// Nothing to run. (The Go agents die of this, P§9.4.)
    NoCommand,
    /// A text that no program can be given.
    Nul,
    /// Only websockets are served, as in the originals.
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

impl Request {
    /// Reads the body of `POST /1.0/exec`. Unknown members are skipped; `null` is as good as absent.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn parse(body: &[u8]) -> Result<Self, Refusal> {
        json::check(body)?;
        let mut request = Self {
            command: Vec::new(),
            environment: Vec::new(),
            interactive: false,
            size: TERMINAL,
            user: 0,
            group: 0,
            directory: String::new(),
        };
        let (mut sockets, mut width, mut height) = (false, 0, 0);
        for (name, value) in json::members(body).filter(|(_, value)| *value != b"null") {
            let is = |word| is_text(name, word);
            if is("command") {
                request.command = texts(value)?;
            } else if is("environment") {
                request.environment = pairs(value)?;
            } else if is("interactive") {
                request.interactive = boolean(value)?;
            } else if is("wait-for-websocket") {
                sockets = boolean(value)?;
            } else if is("width") {
                width = number(value)?;
            } else if is("height") {
                height = number(value)?;
            } else if is("user") {
                request.user = number(value)?;
            } else if is("group") {
                request.group = number(value)?;
            } else if is("cwd") {
                request.directory = owned(value)?;
            }
        }
        if !sockets {
            return Err(Refusal::NoWebsocket);
        }
        if request.command.first().is_none_or(String::is_empty) {
            return Err(Refusal::NoCommand);
        }
        if let (Ok(width @ 1..), Ok(height @ 1..)) = (u16::try_from(width), u16::try_from(height)) {
            request.size = Size { width, height };
        }
        Ok(request)
    }

    /// Fills in what the originals add (P§4.1): `PATH`, `HOME`, `USER`, `LANG`.
    pub fn add_defaults(&mut self, has_snap: bool) {
        self.default("PATH", PATH);
        if has_snap && let Some((_, path)) = self.environment.iter_mut().find(|it| it.0 == "PATH") {
            path.push(':');
            path.push_str(SNAP);
        }
        if self.user == 0 {
            self.default("HOME", "/root");
            self.default("USER", "root");
        }
        self.default("LANG", "C.UTF-8");
    }

    fn default(&mut self, name: &str, value: &str) {
        if self.variable(name).is_none() {
            self.environment.push((name.into(), value.into()));
        }
    }

    /// A variable's value.
    #[must_use]
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.environment.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    /// Where it starts: as asked, else at home, else at the root.
    #[must_use]
    pub fn directory(&self) -> &str {
        let asked = Some(self.directory.as_str()).filter(|asked| !asked.is_empty());
        let home = || self.variable("HOME").filter(|home| !home.is_empty());
        asked.or_else(home).unwrap_or("/")
    }

    /// Where the program may be: looked for in the `PATH` that was asked for, not in ours (the
    /// originals do that, P§9.4). An empty part of it is skipped rather than taken for the working
    /// directory.
    #[must_use]
    pub fn programs(&self) -> Vec<String> {
        let name = self.command.first().map_or("", String::as_str);
        if name.contains('/') {
            return [name.into()].into();
        }
        let parts = self.variable("PATH").unwrap_or(PATH).split(':');
        parts.filter(|part| !part.is_empty()).map(|part| [part, name].join("/")).collect()
    }

    /// Writes the operation's metadata: which socket has which secret, and what runs.
    ///
    /// # Errors
    /// Only those of `out`.
    pub fn write_metadata<'s>(
        &self,
        out: &mut impl fmt::Write,
        secrets: impl Iterator<Item = (&'static str, &'s str)>,
    ) -> fmt::Result {
        let pair = |out: &mut _, first: bool, name: &str, value: &str| {
            fmt::Write::write_str(out, if first { "" } else { "," })?;
            json::quote(out, name)?;
            fmt::Write::write_str(out, ":")?;
            json::quote(out, value)
        };
        out.write_str("{\"fds\":{")?;
        for (index, (name, secret)) in secrets.enumerate() {
            pair(out, index == 0, name, secret)?;
        }
        out.write_str("},\"command\":[")?;
        for (index, word) in self.command.iter().enumerate() {
            out.write_str(if index == 0 { "" } else { "," })?;
            json::quote(out, word)?;
        }
        out.write_str("],\"environment\":{")?;
        for (index, (name, value)) in self.environment.iter().enumerate() {
            pair(out, index == 0, name, value)?;
        }
        out.write_str("},\"interactive\":")?;
        out.write_str(if self.interactive { "true}" } else { "false}" })
    }
}

fn owned(raw: &[u8]) -> Result<String, Refusal> {
    let mut bytes = Vec::with_capacity(raw.len());
    json::unescape(raw, |piece| {
        bytes.extend_from_slice(piece);
        Ok(())
    })?;
    if bytes.contains(&0) {
        return Err(Refusal::Nul);
    }
    String::from_utf8(bytes).map_err(|_| JsonError::Shape.into())
}

fn texts(raw: &[u8]) -> Result<Vec<String>, Refusal> {
    if raw.first() != Some(&b'[') {
        return Err(JsonError::Shape.into());
    }
    json::elements(raw).map(owned).collect()
}

fn pairs(raw: &[u8]) -> Result<Vec<(String, String)>, Refusal> {
    if raw.first() != Some(&b'{') {
        return Err(JsonError::Shape.into());
    }
    let mut pairs = Vec::new();
    for (name, value) in json::members(raw) {
        pairs.push((owned(name)?, owned(value)?));
    }
    // Of two with one name, which no host sends, the last counts: programs take the first they find. To
    // look for them would be to compare each with all others, and a request has room for 90,000.
    pairs.reverse();
    Ok(pairs)
}

fn boolean(raw: &[u8]) -> Result<bool, Refusal> {
    match raw {
        b"true" => Ok(true),
        b"false" => Ok(false),
        _ => Err(JsonError::Shape.into()),
    }
}

fn number(raw: &[u8]) -> Result<u32, Refusal> {
    let text = core::str::from_utf8(raw).ok();
    text.and_then(|text| text.parse().ok()).ok_or(JsonError::Shape.into())
}

#[cfg(test)]
mod tests;
