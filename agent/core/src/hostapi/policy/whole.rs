//! The policy: the allowed capabilities, and the limits of four of them.

use alloc::string::String;
use core::fmt;

use super::{Capability, Features, Part, quoted};
use crate::hostapi::exec::power::Power;
use crate::hostapi::exec::{self};
use crate::hostapi::port_forward::Target;

/// A limit within a capability. Its value determines its bit, and is the first letter of its lines
/// in [`Policy`]: one text needs less code than a list for each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    /// User IDs for exec.
    Users = b'u' as isize,
    /// Group IDs for exec.
    Groups = b'g' as isize,
    /// Program paths for exec.
    Commands = b'c' as isize,
    ReadOnly = b'r' as isize,
    /// The directories to which files are limited.
    Below = b'b' as isize,
    Ports = b'p' as isize,
    /// The conditions for reporting Ready: not a limit, but a list in the same file.
    ReadyWhen = b'w' as isize,
    /// Ignore added CPUs.
    Cpus = b'o' as isize,
    /// Ignore added memory.
    Memory = b'm' as isize,
    /// Grow enlarged disks. Not a limit: the default is to ignore them.
    Disks = b'd' as isize,
}

impl Limit {
    /// Each limit with its name in a file and its capability.
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

    pub(super) fn bit(self) -> u32 {
        1 << (self as u32 - 'a' as u32)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub features: Features,
    /// The limits present, a bit for each.
    given: u32,
    /// A line for each item of their lists, starting with the letter of its limit.
    items: String,
}

impl From<Features> for Policy {
    fn from(features: Features) -> Self {
        Self { features, given: 0, items: String::new() }
    }
}

/// Parses `FIRST-LAST`, or a single number.
pub(super) fn range(text: &str) -> Option<(u32, u32)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

fn number(text: &str) -> Option<u32> {
    // Some programs read a leading zero as octal.
    match text.as_bytes() {
        [b'0'] | [b'1'..=b'9', ..] => text.parse().ok(),
        _ => None,
    }
}

/// What a policy denies: a capability, or what exceeds its limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied<'r> {
    Feature(Capability),
    /// A user, a group or a port, with its number.
    Number(&'static str, u32),
    /// A program or an address, with its name.
    Name(&'static str, &'r str),
}

impl fmt::Display for Denied<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(capability) => out.write_str(capability.name()),
            Self::Number(what, number) => write!(out, "{what} {number}"),
            Self::Name(what, name) => {
                out.write_str(what)?;
                quoted(out, &mut |sink| sink(name))
            }
        }
    }
}

impl Policy {
    /// Returns whether the capability is allowed, as a whole or within limits.
    pub fn allows(&self, capability: Capability) -> bool {
        self.features.allows(capability)
    }

    /// Adds a limit. One on directories gets an empty item, so that it applies without directories.
    pub(super) fn limit(&mut self, limit: Limit) {
        self.given |= limit.bit();
        if limit == Limit::Below {
            self.item(limit, "");
        }
    }

    pub(super) fn item(&mut self, limit: Limit, item: &str) {
        self.items.push(char::from(limit as u8));
        self.items.push_str(item);
        self.items.push('\n');
    }

    pub(super) fn forget(&mut self, limit: Limit) {
        let mut kept = String::new();
        for line in self.items.split_inclusive('\n') {
            if !line.starts_with(char::from(limit as u8)) {
                kept.push_str(line);
            }
        }
        self.items = kept;
    }

    pub(super) fn items(&self, limit: Limit) -> impl Iterator<Item = &str> {
        let letter = char::from(limit as u8);
        self.items.split('\n').filter_map(move |line| line.strip_prefix(letter))
    }

    pub(super) fn has(&self, limit: Limit) -> bool {
        self.given & limit.bit() != 0
    }

    #[inline(never)] // its size
    pub(super) fn limits(&self, capability: Capability) -> bool {
        let mut limits = Limit::ALL.iter();
        self.allows(capability)
            && limits.any(|(_, limit, of)| {
                *of == capability && self.has(*limit) && *limit != Limit::Disks
            })
    }

    /// Returns whether a limit allows a number; true if there is no such limit.
    #[inline(never)] // its size
    pub(super) fn takes(&self, limit: Limit, number: u32) -> bool {
        let is_in = |(first, last)| (first..=last).contains(&number);
        !self.has(limit) || self.items(limit).filter_map(range).any(is_in)
    }

    /// Returns whether to use added resources of this kind; disks only if the file allows it.
    pub fn uses(&self, part: Part) -> bool {
        let is_used = match part {
            Part::Cpus => !self.has(Limit::Cpus),
            Part::Memory => !self.has(Limit::Memory),
            Part::Disks => self.has(Limit::Disks),
        };
        self.allows(Capability::Resources) && is_used
    }

    pub fn read_only(&self) -> bool {
        self.has(Limit::ReadOnly)
    }

    /// Returns the directories to which files are limited, preceded by an empty text; nothing if
    /// there is no limit.
    pub fn below(&self) -> impl Iterator<Item = &str> {
        self.items(Limit::Below)
    }

    /// Returns the conditions for reporting Ready; nothing if mote does not report it by itself.
    pub fn ready_when(&self) -> impl Iterator<Item = &str> {
        self.items(Limit::ReadyWhen)
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.items.push_str(&other.items);
    }

    /// Returns the user and group with whose rights files are accessed; `None` for root. If
    /// commands run only as certain users, writable files are accessed as the first of these users
    /// and groups: with root's rights, the host could become root.
    pub fn files_as(&self) -> Option<[&str; 2]> {
        if self.read_only() || !self.allows(Capability::Exec) || self.takes(Limit::Users, 0) {
            return None;
        }
        Some([self.first(Limit::Users)?, self.first(self.groups())?])
    }

    /// Returns the first number that a limit allows.
    #[inline(never)] // its size
    fn first(&self, limit: Limit) -> Option<&str> {
        self.items(limit).next()?.split('-').next()
    }

    /// Returns the limit that applies to groups: the one for groups or, without it, the one for
    /// users, because group 0 would bypass that.
    fn groups(&self) -> Limit {
        if self.has(Limit::Groups) { Limit::Groups } else { Limit::Users }
    }

    pub fn lists_commands(&self) -> bool {
        self.has(Limit::Commands)
    }

    /// Checks the capability, user, group and program of a command. A program is allowed only by
    /// the path in the policy: the request's `PATH` decides what a name without a slash means.
    /// Errors: the first of these that is denied.
    pub fn check_exec<'r>(&self, request: &'r exec::Request) -> Result<(), Denied<'r>> {
        let (user, group, name) = (request.user, request.group, request.name());
        if !self.allows(Capability::Exec) {
            return Err(Denied::Feature(Capability::Exec));
        }
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

    /// Decides how a command is answered: returns whether its program may run and, if not, what
    /// mote asks process 1 for. Errors: those of [`Policy::check_exec`], if mote may do neither.
    #[inline(never)] // its size
    pub fn answers<'r>(
        &self,
        request: &'r exec::Request,
    ) -> Result<(bool, Option<&'static Power>), Denied<'r>> {
        let power = Power::of(request).filter(|_| self.allows(Capability::Power));
        match self.check_exec(request) {
            Err(why) if power.is_none() => Err(why),
            checked => Ok((checked.is_ok(), power)),
        }
    }

    /// Checks a connection. If ports are limited, allows only these ports of the guest itself, not
    /// those of other machines, nor unix sockets. Errors: what is denied.
    pub fn check_port<'r>(&self, target: &'r Target) -> Result<(), Denied<'r>> {
        if !self.has(Limit::Ports) {
            return Ok(());
        }
        if !target.address().is_some_and(|address| address.ip().is_loopback()) {
            return Err(Denied::Name("port-forward beyond the guest's ports, to ", &target.name));
        }
        if !self.takes(Limit::Ports, target.port.into()) {
            return Err(Denied::Number("port-forward to port", target.port.into()));
        }
        Ok(())
    }
}

/// Writes the denied and the limited capabilities.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut denied, mut limited) = (String::new(), String::new());
        for capability in Capability::ALL {
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
