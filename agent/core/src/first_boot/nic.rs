//! NIC configuration (P§1.9): the names and MTUs that the host wants, and the steps to set them.
//!
//! Unlike in the Go agents, a malformed file affects no other NIC, two NICs may swap names, and a
//! bridge or bond with a NIC's address is not mistaken for it. A group of steps succeeds as a whole
//! or is reverted.

use alloc::vec::Vec;
use core::fmt;

use crate::decimal::digits;
use crate::json::{BadDocument, Value};
use crate::netlink::{Change, Link, Name, UP};

pub type Mac = [u8; 6];

/// Maximum number of configured NICs. QEMU's PCI bus has fewer slots.
pub const MAX_NICS: usize = 256;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub mac: Mac,
    /// New name; `None` to keep the current one.
    pub name: Option<Name>,
    /// New MTU in bytes; `None` to keep the current one.
    pub mtu: Option<u32>,
}

const MAC: BadDocument = BadDocument::Member("mac_address is not an Ethernet address");
const NAME: BadDocument = BadDocument::Member("nic_name is not a valid interface name");
const MTU: BadDocument = BadDocument::Member("mtu is not a number");

impl Wanted {
    /// Parses a file. Errors: [`BadDocument`], with the invalid member.
    pub fn parse(file: &[u8]) -> Result<Self, BadDocument> {
        let [mac, name, mtu] = Value::parse(file)?.fields(["mac_address", "nic_name", "mtu"])?;
        let mtu = mtu.map_or(Ok(0), Value::number).map_err(|_| MTU)?;
        Self::read(mac, name, mtu)
    }

    /// Returns the NICs in a host's answer with the guest's devices, whose values are all text
    /// (P§5.3). Skips malformed ones.
    pub fn of_devices(answer: Value<'_>) -> impl Iterator<Item = Self> {
        answer.member("metadata").unwrap_or(Value::NULL).members().filter_map(|(_, device)| {
            let [kind, mac, name, mtu] = device.fields(["type", "hwaddr", "name", "mtu"]).ok()?;
            let mut space = [0; 10];
            let mtu = mtu.and_then(|mtu| digits(mtu.text(&mut space).ok()?)).unwrap_or(0);
            kind?.is("nic").then(|| Self::read(mac, name, mtu).ok())?
        })
    }

    fn read(
        mac: Option<Value<'_>>,
        name: Option<Value<'_>>,
        mtu: u32,
    ) -> Result<Self, BadDocument> {
        let mut space = [0; 17];
        let mac = mac.and_then(|mac| mac.text(&mut space).ok().and_then(parse_mac));
        let mac = mac.ok_or(MAC)?;
        let name = match name.filter(|name| !name.is("")) {
            None => None,
            Some(name) => {
                let text = name.text(&mut space).map_err(|_| NAME)?;
                Some(usable(text.as_bytes()).ok_or(NAME)?)
            }
        };
        Ok(Self { mac, name, mtu: (mtu > 0).then_some(mtu) })
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

/// Returns the name if the kernel accepts it (`dev_valid_name`) and it is not a pattern such as
/// `eth%d`.
fn usable(bytes: &[u8]) -> Option<Name> {
    let text = core::str::from_utf8(bytes).ok()?;
    let bad =
        |byte: &u8| b"/:%".contains(byte) || byte.is_ascii_whitespace() || byte.is_ascii_control();
    if text.is_empty() || text == "." || text == ".." || bytes.iter().any(bad) {
        return None;
    }
    Name::try_from(text).ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    pub index: u32,
    pub up: bool,
    pub name: Name,
    /// Wanted name, if different.
    pub new_name: Option<Name>,
    /// Current MTU, in bytes.
    pub mtu: u32,
    /// Wanted MTU, if different.
    pub new_mtu: Option<u32>,
}

/// Finds the wanted NICs among all links. Call [`Search::see`] for each link.
#[derive(Debug)]
pub struct Search<'w> {
    wanted: &'w [Wanted],
    found: Vec<Option<(Rank, Nic)>>,
}

/// Rank of a match; the lowest wins. A link whose permanent address matches precedes one where only
/// the current address does. Then the lower index wins, because a link stacked on a NIC (bridge,
/// bond, VLAN) is newer.
type Rank = (bool, u32);

impl<'w> Search<'w> {
    pub fn new(wanted: &'w [Wanted]) -> Self {
        Self { wanted, found: wanted.iter().map(|_| None).collect() }
    }

    pub fn see(&mut self, link: &Link<'_>) {
        let Some(name) = usable(link.name) else { return };
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

    /// Returns the wanted NICs without a matching link.
    pub fn missing(&self) -> impl Iterator<Item = &Wanted> {
        self.wanted.iter().zip(&self.found).filter(|(_, found)| found.is_none()).map(|pair| pair.0)
    }

    /// Returns the NICs to change, in independent groups. The first group has those that exchange
    /// names; every other NIC is a group of its own.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub index: u32,
    pub act: Change,
    /// Change that reverts this step, if needed.
    pub undo: Option<Change>,
}

/// Returns the steps for a group: set all links down, give them temporary names if there are
/// several, then their new names and MTUs, and set all up. A link is up afterwards even if it was
/// down before (P§1.9); reverting restores its state.
pub fn steps(group: &[Nic]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut add = |nic: &Nic, act, undo| steps.push(Step { index: nic.index, act, undo });
    for nic in group {
        add(nic, Change::Down, nic.up.then_some(Change::Up));
    }
    let aside = |nic: &Nic| group.len() > 1 && nic.new_name.is_some();
    for nic in group.iter().filter(|nic| aside(nic)) {
        add(nic, Change::Name(parking(nic.index)), Some(Change::Name(nic.name.clone())));
    }
    for nic in group {
        let Some(name) = &nic.new_name else { continue };
        let before = if aside(nic) { parking(nic.index) } else { nic.name.clone() };
        add(nic, Change::Name(name.clone()), Some(Change::Name(before)));
    }
    for nic in group {
        let Some(mtu) = nic.new_mtu else { continue };
        add(nic, Change::Mtu(mtu), Some(Change::Mtu(nic.mtu)));
    }
    for nic in group {
        add(nic, Change::Up, Some(Change::Down));
    }
    steps
}

/// Returns a temporary name that no other link has.
fn parking(index: u32) -> Name {
    use fmt::Write;
    let mut name = Name::new();
    // "mote" and ten digits fit.
    let _fits = write!(name, "mote{index}");
    name
}

#[cfg(test)]
mod tests;
