//! The whole policy: the allowed capabilities, and what is allowed of four of them.

use alloc::string::String;
use core::fmt;

use super::shown::quoted;
use super::{CAPABILITIES, Capability, Features, Part};
use crate::hostapi::exec;
use crate::hostapi::port_forward::Target;

/// A limit within a capability. Its number is the letter that its lines begin with in [`Policy`], and its bit: one text
/// without a list for each kind is less code, and nothing else has to be kept in step.
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
    /// No limit, but a list of the same file: what is to be seen before the agent says Ready.
    ReadyWhen = b'w' as isize,
    /// CPUs that are added are left alone.
    Cpus = b'o' as isize,
    /// Memory that is added is left alone.
    Memory = b'm' as isize,
    /// Disks that become larger are grown: not a limit, since they are left alone unless the file asks for it.
    Disks = b'd' as isize,
}

impl Limit {
    /// Each with its name in a file and its capability.
    pub(super) const ALL: [(&'static str, Self, Capability); 9] = [
        ("users", Self::Users, Capability::Exec),
        ("groups", Self::Groups, Capability::Exec),
        ("commands", Self::Commands, Capability::Exec),
        ("read-only", Self::ReadOnly, Capability::Files),
        ("below", Self::Below, Capability::Files),
        ("ports", Self::Ports, Capability::PortForward),
        ("cpus", Self::Cpus, Capability::Resources),
        ("memory", Self::Memory, Capability::Resources),
        ("disks", Self::Disks, Capability::Resources),
    ];

    /// Its bit in a set of limits.
    pub(super) fn bit(self) -> u32 {
        1 << (self as u32 - 'a' as u32)
    }
}

/// What the host may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The allowed capabilities.
    pub features: Features,
    /// The limits that are given, a bit for each.
    given: u32,
    /// A line for each item of their lists, which begins with the letter of its limit.
    items: String,
}

impl From<Features> for Policy {
    fn from(features: Features) -> Self {
        Self { features, given: 0, items: String::new() }
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

/// The items of one limit, of the lines of all.
pub(super) struct Items<'p>(pub(super) Limit, pub(super) &'p str);

impl<'p> Iterator for Items<'p> {
    type Item = &'p str;

    #[inline(never)] // its size
    fn next(&mut self) -> Option<&'p str> {
        loop {
            let (line, rest) = self.1.split_once('\n')?;
            self.1 = rest;
            if let Some(item) = line.strip_prefix(char::from(self.0 as u8)) {
                return Some(item);
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

    /// Adds a limit. That to no directory is one too, so there is an empty item.
    pub(super) fn limit(&mut self, limit: Limit) {
        self.given |= limit.bit();
        if limit == Limit::Below {
            self.item(limit, "");
        }
    }

    /// Adds an item that a limit allows.
    pub(super) fn item(&mut self, limit: Limit, item: &str) {
        self.items.push(char::from(limit as u8));
        self.items.push_str(item);
        self.items.push('\n');
    }

    /// Drops the items of a limit.
    pub(super) fn forget(&mut self, limit: Limit) {
        let mut kept = String::new();
        for line in self.items.split_inclusive('\n') {
            if !line.starts_with(char::from(limit as u8)) {
                kept.push_str(line);
            }
        }
        self.items = kept;
    }

    /// The items that a limit allows.
    pub(super) fn items(&self, limit: Limit) -> Items<'_> {
        Items(limit, &self.items)
    }

    pub(super) fn has(&self, limit: Limit) -> bool {
        self.given & limit.bit() != 0
    }

    /// Whether the capability is allowed within limits.
    #[inline(never)] // its size
    pub(super) fn limits(&self, capability: Capability) -> bool {
        let mut limits = Limit::ALL.iter();
        self.allows(capability)
            && limits.any(|(_, limit, of)| {
                *of == capability && self.has(*limit) && *limit != Limit::Disks
            })
    }

    /// Whether a limit allows a number; true if there is no such limit.
    #[inline(never)] // its size
    pub(super) fn takes(&self, limit: Limit, number: u32) -> bool {
        let is_in = |(first, last)| (first..=last).contains(&number);
        !self.has(limit) || self.items(limit).filter_map(range).any(is_in)
    }

    /// Whether what the host adds of this kind is used: room on disks only where the file says so.
    #[must_use]
    pub fn uses(&self, part: Part) -> bool {
        let is_used = match part {
            Part::Cpus => !self.has(Limit::Cpus),
            Part::Memory => !self.has(Limit::Memory),
            Part::Disks => self.has(Limit::Disks),
        };
        self.allows(Capability::Resources) && is_used
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

    /// What is to be seen before the agent says Ready by itself; nothing if it does not.
    pub fn ready_when(&self) -> impl Iterator<Item = &str> {
        self.items(Limit::ReadyWhen)
    }

    /// Adds the items of another part of its file.
    pub(super) fn add(&mut self, other: &Self) {
        self.items.push_str(&other.items);
    }

    /// The user and the group with whose rights files are handled; `None` for root. Where commands run as some users
    /// alone, files that can be written are handled as the first of these, and of the groups: with root's rights and one
    /// of these users the host would be root.
    #[must_use]
    pub fn files_as(&self) -> Option<[&str; 2]> {
        if self.read_only() || !self.allows(Capability::Exec) || self.takes(Limit::Users, 0) {
            return None;
        }
        Some([self.first(Limit::Users)?, self.first(self.groups())?])
    }

    /// The first number that a limit allows.
    #[inline(never)] // its size
    fn first(&self, limit: Limit) -> Option<&str> {
        self.items(limit).next()?.split('-').next()
    }

    /// The limit by which groups are allowed. Without groups of their own those of users count, or group 0 would be a
    /// way round them.
    fn groups(&self) -> Limit {
        if self.has(Limit::Groups) { Limit::Groups } else { Limit::Users }
    }

    /// Whether only some commands are allowed.
    #[must_use]
    pub fn lists_commands(&self) -> bool {
        self.has(Limit::Commands)
    }

    /// Checks user, group and program of a command. A program is allowed by the path that the policy has, and by
    /// no other name: what a name without a slash means is up to the request's `PATH`.
    ///
    /// # Errors
    /// The first that is not allowed.
    pub fn check_exec<'r>(&self, request: &'r exec::Request) -> Result<(), Denied<'r>> {
        let (user, group, name) = (request.user, request.group, request.name());
        if !self.takes(Limit::Users, user) {
            return Err(Denied::Number("exec as user", user));
        }
        if !self.takes(self.groups(), group) {
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

/// The denied and the limited capabilities.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut denied, mut limited) = (String::new(), String::new());
        for capability in CAPABILITIES {
            let list = match self.allows(capability) {
                false => &mut denied,
                true if self.limits(capability) => &mut limited,
                true => continue,
            };
            list.push(' ');
            list.push_str(capability.name());
        }
        match (denied.as_str(), limited.as_str()) {
            ("", "") => out.write_str("everything is allowed"),
            (denied, "") => write!(out, "denied:{denied}"),
            ("", limited) => write!(out, "limited:{limited}"),
            (denied, limited) => write!(out, "denied:{denied}; limited:{limited}"),
        }
    }
}
