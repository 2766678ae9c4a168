//! The whole policy: the allowed capabilities, and what is allowed of three of them.

use alloc::string::String;
use core::fmt;

use super::shown::quoted;
use super::{CAPABILITIES, Capability, Features};
use crate::hostapi::exec;
use crate::hostapi::port_forward::Target;

/// A limit within a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// User ids of exec.
    Users = b'u' as isize,
    /// Group ids of exec.
    Groups = b'g' as isize,
    /// Paths of programs of exec.
    Commands = b'c' as isize,
    /// Files can only be read.
    ReadOnly = b'r' as isize,
    /// The directories to which files are limited.
    Below = b'b' as isize,
    /// Ports of port-forward.
    Ports = b'p' as isize,
}

impl Limit {
    /// Each with its name in a file and its capability.
    pub(super) const ALL: [(&'static str, Self, Capability); 6] = [
        ("users", Self::Users, Capability::Exec),
        ("groups", Self::Groups, Capability::Exec),
        ("commands", Self::Commands, Capability::Exec),
        ("read-only", Self::ReadOnly, Capability::Files),
        ("below", Self::Below, Capability::Files),
        ("ports", Self::Ports, Capability::PortForward),
    ];
}

/// What the host may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The allowed capabilities.
    pub features: Features,
    /// The limits, a line for each that is given and one for each item of its list, which begin with its letter.
    limits: String,
}

impl From<Features> for Policy {
    fn from(features: Features) -> Self {
        Self { features, limits: String::new() }
    }
}

/// First and last number of `FIRST-LAST`, or of a single number.
pub(super) fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn number(text: &str) -> Option<u32> {
    // A leading zero means octal to some.
    match text.as_bytes() {
        [b'0'] | [b'1'..=b'9', ..] => text.parse().ok(),
        _ => None,
    }
}

/// What is not allowed of an allowed capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied<'r> {
    /// What a user, a group or a port has this number.
    Number(&'static str, u32),
    /// What a program or an address has this name.
    Name(&'static str, &'r str),
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(what, number) => write!(out, "{what} {number}"),
            Self::Name(what, name) => {
                out.write_str(what)?;
                quoted(out, &mut |sink| sink(name))
            }
        }
    }
}

impl Policy {
    /// Whether the capability is allowed, as a whole or within limits.
    #[must_use]
    pub fn allows(&self, capability: Capability) -> bool {
        self.features.allows(capability)
    }

    /// Whether anything is not allowed.
    #[must_use]
    pub fn restricts(&self) -> bool {
        self.features != Features::ALL || !self.limits.is_empty()
    }

    /// Adds a limit, or with an item one more that it allows.
    pub(super) fn limit(&mut self, limit: Limit, item: &str) {
        self.limits.push(char::from(limit as u8));
        self.limits.push_str(item);
        self.limits.push('\n');
    }

    /// An empty text if there is this limit, then the items that it allows.
    fn items(&self, limit: Limit) -> impl Iterator<Item = &str> {
        let letter = char::from(limit as u8);
        self.limits.split_terminator('\n').filter_map(move |line| line.strip_prefix(letter))
    }

    #[inline(never)] // its size
    fn has(&self, limit: Limit) -> bool {
        self.items(limit).next().is_some()
    }

    /// Whether a limit allows a number; true if there is no such limit.
    #[inline(never)] // its size
    fn takes(&self, limit: Limit, number: u32) -> bool {
        let mut items = self.items(limit);
        items.next().is_none()
            || items.filter_map(range).any(|(first, last)| (first..=last).contains(&number))
    }

    /// Whether files can only be read.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.has(Limit::ReadOnly)
    }

    /// The directories to which files are limited, after an empty text; nothing if they are not.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        self.items(Limit::Below)
    }

    /// Whether only some commands are allowed.
    #[must_use]
    pub fn lists_commands(&self) -> bool {
        self.has(Limit::Commands)
    }

    /// Checks user, group and program of a command. Without groups of their own those of users count, or group 0
    /// would be a way round them. A program is allowed by the path that the policy has, and by
    /// no other name: what a name without a slash means is up to the request's `PATH`.
    ///
    /// # Errors
    /// The first that is not allowed.
    pub fn check_exec<'r>(&self, request: &'r exec::Request) -> Result<(), Denied<'r>> {
        let (user, group, name) = (request.user, request.group, request.name());
        let groups = if self.has(Limit::Groups) { Limit::Groups } else { Limit::Users };
        if !self.takes(Limit::Users, user) {
            return Err(Denied::Number("exec as user", user));
        }
        if !self.takes(groups, group) {
            return Err(Denied::Number("exec with group", group));
        }
        if self.lists_commands() && !self.items(Limit::Commands).any(|one| one == name) {
            return Err(Denied::Name("exec of ", name));
        }
        Ok(())
    }

    /// Checks a connection: where ports are listed, these ports of the guest itself are allowed, and not those of
    /// machines that it can reach.
    ///
    /// # Errors
    /// What is not allowed.
    pub fn check_port<'r>(&self, target: &'r Target) -> Result<(), Denied<'r>> {
        if !self.has(Limit::Ports) {
            return Ok(());
        }
        if !self.takes(Limit::Ports, target.port.into()) {
            return Err(Denied::Number("port-forward to port", target.port.into()));
        }
        match target.address() {
            Some(address) if address.ip().is_loopback() => Ok(()),
            Some(_) | None => {
                Err(Denied::Name("port-forward beyond the guest itself, to ", &target.name))
            }
        }
    }
}

/// The denied and the limited capabilities, for the log and the status file.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "; limited: ";
        if self.features == Features::ALL && self.restricts() {
            before = "limited: ";
        } else {
            fmt::Display::fmt(&self.features, out)?;
        }
        for capability in CAPABILITIES {
            let mut limits = Limit::ALL.iter();
            if self.allows(capability)
                && limits.any(|(_, limit, of)| *of == capability && self.has(*limit))
            {
                out.write_str(before)?;
                out.write_str(capability.name())?;
                before = " ";
            }
        }
        Ok(())
    }
}
