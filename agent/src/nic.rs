//! NIC configuration (P§1.9): what the host wants its NICs called, and in which order to get there.
//!
//! Unlike the originals: one bad file does not stop the other NICs, two NICs may swap their names,
//! and a bridge or bond that wears a NIC's address is not taken for it. A group of steps succeeds
//! or is undone as a whole, in reverse.

use alloc::vec::Vec;
use core::fmt;

use heapless::String;

use crate::json::{self, JsonError};
use crate::netlink::{Change, Link, UP};

/// An interface's name: `IFNAMSIZ` is 16, with its NUL.
pub type Name = String<15>;
/// An Ethernet address.
pub type Mac = [u8; 6];

/// Most NICs looked at; QEMU's PCI bus has fewer slots.
pub const MOST: usize = 256;

/// What a file of `nics/` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The NIC with this address
    pub mac: Mac,
    /// is to have this name
    pub name: Option<Name>,
    /// and this MTU.
    pub mtu: Option<u32>,
}

/// What is wrong with such a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNic {
    /// Not a JSON object.
    Json(JsonError),
    /// `mac_address` is missing or none.
    Mac,
    /// `nic_name` cannot be an interface's name.
    Name,
    /// `mtu` is no number.
    Mtu,
}

impl fmt::Display for BadNic {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(why) => why.fmt(out),
            Self::Mac => out.write_str("mac_address is not an Ethernet address"),
            Self::Name => out.write_str("nic_name cannot be an interface's name"),
            Self::Mtu => out.write_str("mtu is not a number"),
        }
    }
}

impl Wanted {
    /// Reads a file.
    ///
    /// # Errors
    /// [`BadNic`].
    pub fn parse(file: &[u8]) -> Result<Self, BadNic> {
        let member = |key| json::member(file, key).map_err(BadNic::Json);
        let mut space = [0; 17];
        let mac = member("mac_address")?.ok_or(BadNic::Mac)?;
        let mac = json::text(mac, &mut space).ok().and_then(parse_mac).ok_or(BadNic::Mac)?;
        let name = match member("nic_name")? {
            None | Some(b"null" | b"\"\"") => None,
            Some(raw) => {
                let text = json::text(raw, &mut space).map_err(|_| BadNic::Name)?;
                Some(name(text.as_bytes()).ok_or(BadNic::Name)?)
            }
        };
        let mtu = match member("mtu")? {
            None | Some(b"null" | b"0") => None,
            Some(raw) => Some(
                core::str::from_utf8(raw)
                    .ok()
                    .and_then(|text| text.parse().ok())
                    .ok_or(BadNic::Mtu)?,
            ),
        };
        Ok(Self { mac, name, mtu })
    }
}

fn parse_mac(text: &str) -> Option<Mac> {
    let mut mac = Mac::default();
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|part| part.len() == 2 && !part.starts_with('+'))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

/// What the kernel takes as a name (`dev_valid_name`), without the patterns it would fill in.
fn name(bytes: &[u8]) -> Option<Name> {
    let text = core::str::from_utf8(bytes).ok()?;
    let bad =
        |byte: &u8| b"/:%".contains(byte) || byte.is_ascii_whitespace() || byte.is_ascii_control();
    if text.is_empty() || text == "." || text == ".." || bytes.iter().any(bad) {
        return None;
    }
    Name::try_from(text).ok()
}

/// A NIC that is not yet as wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its number.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// What it is called.
    pub name: Name,
    /// What it is to be called, if that is something else.
    pub new_name: Option<Name>,
    /// Its MTU.
    pub mtu: u32,
    /// What it is to be, if that is something else.
    pub new_mtu: Option<u32>,
}

/// Finds the NICs of `wanted` among the links as they come, one call each.
#[derive(Debug)]
pub struct Search<'w> {
    wanted: &'w [Wanted],
    found: Vec<Option<(Rank, Nic)>>,
}

/// How sure we are: the NIC that was made with this address, or one that has it now; then the
/// oldest, since what is stacked on a NIC (bridge, bond, VLAN) was made after it.
type Rank = (bool, u32);

impl<'w> Search<'w> {
    /// Nothing found yet.
    #[must_use]
    pub fn new(wanted: &'w [Wanted]) -> Self {
        Self { wanted, found: wanted.iter().map(|_| None).collect() }
    }

    /// Looks at one link.
    pub fn see(&mut self, link: &Link<'_>) {
        let Some(name) = name(link.name) else { return };
        for (wanted, found) in self.wanted.iter().zip(&mut self.found) {
            let permanent = link.permanent == wanted.mac;
            if !permanent && link.hardware != wanted.mac {
                continue;
            }
            let rank = (!permanent, link.index);
            if found.as_ref().is_none_or(|(best, _)| rank < *best) {
                let nic = Nic {
                    index: link.index,
                    up: link.flags & UP != 0,
                    new_name: wanted.name.clone().filter(|wanted| *wanted != name),
                    name: name.clone(),
                    new_mtu: wanted.mtu.filter(|mtu| *mtu != link.mtu),
                    mtu: link.mtu,
                };
                *found = Some((rank, nic));
            }
        }
    }

    /// Which were not there.
    pub fn missing(&self) -> impl Iterator<Item = &Wanted> {
        self.wanted.iter().zip(&self.found).filter(|(_, found)| found.is_none()).map(|pair| pair.0)
    }

    /// What there is to do, in groups that are independent of each other. NICs of which one has
    /// the name that another wants are one group, and the first.
    #[must_use]
    pub fn groups(self) -> Vec<Vec<Nic>> {
        let mut todo: Vec<Nic> = Vec::new();
        for (_, nic) in self.found.into_iter().flatten() {
            let differs = nic.new_name.is_some() || nic.new_mtu.is_some();
            if differs && todo.iter().all(|other| other.index != nic.index) {
                todo.push(nic);
            }
        }
        let takes = |one: &Nic, other: &Nic| {
            one.new_name.as_ref() == Some(&other.name) && other.new_name.is_some()
        };
        let tangled = |nic: &Nic| todo.iter().any(|other| takes(nic, other) || takes(other, nic));
        let (knot, free): (Vec<Nic>, Vec<Nic>) = todo.iter().cloned().partition(tangled);
        let knot = (!knot.is_empty()).then_some(knot);
        knot.into_iter().chain(free.into_iter().map(|nic| Vec::from([nic]))).collect()
    }
}

/// One step, and how to undo it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which link.
    pub index: u32,
    /// What to do.
    pub act: Act,
    /// What takes it back.
    pub undo: Option<Act>,
}

/// [`Change`], owning its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Down, or up.
    Set(State),
    /// Another name.
    Name(Name),
    /// Another MTU.
    Mtu(u32),
}

/// Whether a link is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It is not.
    Down,
    /// It is.
    Up,
}

impl Act {
    /// As netlink takes it.
    #[must_use]
    pub fn change(&self) -> Change<'_> {
        match self {
            Self::Set(State::Down) => Change::Down,
            Self::Set(State::Up) => Change::Up,
            Self::Name(name) => Change::Name(name),
            Self::Mtu(mtu) => Change::Mtu(*mtu),
        }
    }
}

/// The steps for one group: all down, out of each other's way, names, MTUs, all up. A link ends
/// up, whatever it was (P§1.9); undone, it is as it was.
#[must_use]
pub fn steps(group: &[Nic]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |nic: &Nic, act, undo| steps.push(Step { index: nic.index, act, undo });
    let (up, down) = (Act::Set(State::Up), Act::Set(State::Down));
    for nic in group {
        add(nic, down.clone(), nic.up.then_some(up.clone()));
    }
    let aside = |nic: &Nic| group.len() > 1 && nic.new_name.is_some();
    for nic in group.iter().filter(|nic| aside(nic)) {
        add(nic, Act::Name(parking(nic.index)), Some(Act::Name(nic.name.clone())));
    }
    for nic in group {
        let Some(name) = &nic.new_name else { continue };
        let before = if aside(nic) { parking(nic.index) } else { nic.name.clone() };
        add(nic, Act::Name(name.clone()), Some(Act::Name(before)));
    }
    for nic in group {
        let Some(mtu) = nic.new_mtu else { continue };
        add(nic, Act::Mtu(mtu), Some(Act::Mtu(nic.mtu)));
    }
    for nic in group {
        add(nic, up.clone(), Some(down.clone()));
    }
    steps
}

/// A name nobody else uses, for the time being.
fn parking(index: u32) -> Name {
    use fmt::Write;
    let mut name = Name::new();
    // "mote" and ten digits fit.
    let _fits = write!(name, "mote{index}");
    name
}

#[cfg(test)]
mod tests;
