//! rtnetlink messages (netlink(7), rtnetlink(7)): requests out; links, addresses and results in.
//!
//! The kernel's messages are not trusted: one that is cut short, or an attribute of an unexpected
//! size, is ignored. All numbers are in native byte order.

use heapless::{String, Vec};

/// Maximum size of a datagram in a dump, in bytes: the kernel's limit (`netlink_dump`).
pub const DATAGRAM: usize = 32 * 1024;
/// `IFF_UP` of a link's flags (netdevice(7)).
pub const UP: u32 = 1;
/// `IFF_BROADCAST`.
pub const BROADCAST: u32 = 2;
/// `IFF_LOOPBACK`.
pub const LOOPBACK: u32 = 8;
/// `IFF_POINTOPOINT`.
pub const POINT_TO_POINT: u32 = 16;

/// Length of a message's header, in bytes.
const HEADER: usize = 16;
/// Maximum size of a request, in bytes: header, `ifinfomsg`, one attribute of 4 + 16 bytes.
const REQUEST: usize = HEADER + 16 + 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
/// `NLM_F_REQUEST | NLM_F_ACK`.
const ACKED: u16 = 5;

const ERROR: u16 = 2;
const DONE: u16 = 3;
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
const SET_LINK: u16 = 19;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    Links,
    Addresses,
}

/// Maximum length of an interface's name, in bytes: `IFNAMSIZ` is 16 with the NUL.
pub type Name = String<15>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Down,
    Up,
    Name(Name),
    /// Set its MTU, in bytes.
    Mtu(u32),
}

pub type Request = Vec<u8, REQUEST>;

/// Requests a whole table. The replies end with [`Reply::Done`].
pub fn dump(table: Table) -> Request {
    match table {
        Table::Links => request(GET_LINK, DUMP, &[[0; 4]; 4], None),
        Table::Addresses => request(GET_ADDRESS, DUMP, &[[0; 4]; 2], None),
    }
}

/// Requests one change of the link with this index. The reply is a [`Reply::Verdict`].
pub fn change(index: u32, change: &Change) -> Request {
    const NAME: u16 = 3;
    const MTU: u16 = 4;
    let link = |flags: u32, mask: u32| {
        [[0; 4], index.to_ne_bytes(), flags.to_ne_bytes(), mask.to_ne_bytes()]
    };
    match change {
        Change::Down => request(SET_LINK, ACKED, &link(0, UP), None),
        Change::Up => request(SET_LINK, ACKED, &link(UP, UP), None),
        Change::Name(name) => request(SET_LINK, ACKED, &link(0, 0), Some((NAME, name.as_bytes()))),
        Change::Mtu(mtu) => {
            request(SET_LINK, ACKED, &link(0, 0), Some((MTU, mtu.to_ne_bytes().as_slice())))
        }
    }
}

fn request(kind: u16, flags: u16, body: &[[u8; 4]], attribute: Option<(u16, &[u8])>) -> Request {
    let mut out = Request::new();
    // REQUEST has room for the longest valid name. A longer one is truncated, and the kernel
    // rejects the message because of its length.
    let mut put = |bytes: &[u8]| out.extend_from_slice(bytes).is_ok();
    put(&[0; 4]);
    put(&kind.to_ne_bytes());
    put(&flags.to_ne_bytes());
    put(&[0; 8]);
    put(body.as_flattened());
    if let Some((kind, value)) = attribute {
        // A name is sent with its NUL.
        let nul = kind == 3;
        put(&u16::try_from(4 + value.len() + usize::from(nul)).unwrap_or(u16::MAX).to_ne_bytes());
        put(&kind.to_ne_bytes());
        put(value);
        let end = (out.len() + usize::from(nul)).next_multiple_of(4);
        let _cut = out.resize(end, 0);
    }
    let length = u32::try_from(out.len()).unwrap_or(0);
    if let Some(field) = out.first_chunk_mut() {
        *field = length.to_ne_bytes();
    }
    out
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'m> {
    Link(Link<'m>),
    Address(Address),
    /// Result of a request: 0, or an errno.
    Verdict(i32),
    Done,
    /// Any other message, or a malformed one.
    Other,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link<'m> {
    pub index: u32,
    /// `IFF_*` flags, such as [`UP`].
    pub flags: u32,
    pub name: &'m [u8],
    /// Current hardware address, of any length.
    pub hardware: &'m [u8],
    /// Permanent hardware address; empty if the link has none.
    pub permanent: &'m [u8],
    /// MTU, in bytes; 0 if unknown.
    pub mtu: u32,
    pub counters: Counters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: Traffic,
    pub sent: Traffic,
}

/// Counters of one direction, since the interface was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
    pub errors: u64,
    pub dropped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    pub index: u32,
    /// Length of the network prefix, in bits.
    pub prefix: u8,
    /// The interface's own address, not a peer's.
    pub address: core::net::IpAddr,
}

/// Returns the messages of a datagram, up to the first truncated one.
pub fn replies(datagram: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    let mut rest = datagram;
    core::iter::from_fn(move || {
        let length = u32_at(rest, 0)?;
        let message = chunk(&mut rest, length)?;
        let body = message.get(HEADER..)?;
        Some(match u16_at(message, 4)? {
            NEW_LINK => link(body).map_or(Reply::Other, Reply::Link),
            NEW_ADDRESS => address(body).map_or(Reply::Other, Reply::Address),
            // The kernel sends errnos negated.
            ERROR => Reply::Verdict(i32_at(body, 0)?.saturating_neg()),
            DONE => Reply::Done,
            _ => Reply::Other,
        })
    })
}

/// Parses `ifinfomsg` and its attributes; `None` without a name.
fn link(body: &[u8]) -> Option<Link<'_>> {
    let (index, flags) = (u32_at(body, 4)?, u32_at(body, 8)?);
    let mut link = Link { index, flags, ..Link::default() };
    for (kind, value) in attributes(body.get(16..)?) {
        match kind {
            1 => link.hardware = value,
            3 => link.name = value.split(|byte| *byte == 0).next().unwrap_or_default(),
            4 => link.mtu = u32_at(value, 0).unwrap_or(0),
            23 => link.counters = counters(value),
            54 => link.permanent = value,
            _ => {}
        }
    }
    (!link.name.is_empty()).then_some(link)
}

/// Parses the start of `rtnl_link_stats64`; fields missing in a shorter structure are 0.
fn counters(value: &[u8]) -> Counters {
    let at = |index: usize| {
        let bytes = value.get(index * 8..).and_then(|rest| rest.first_chunk());
        bytes.map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    };
    Counters {
        received: Traffic { packets: at(0), bytes: at(2), errors: at(4), dropped: at(6) },
        sent: Traffic { packets: at(1), bytes: at(3), errors: at(5), dropped: at(7) },
    }
}

/// Parses `ifaddrmsg` and its attributes. On a point-to-point link, `IFA_ADDRESS` is the peer's and
/// `IFA_LOCAL` our own; IPv6 has `IFA_LOCAL` only there.
fn address(body: &[u8]) -> Option<Address> {
    const ADDRESS: u16 = 1;
    const LOCAL: u16 = 2;
    let prefix = *body.get(1)?;
    let index = u32_at(body, 4)?;
    let find = |wanted| attributes(body.get(8..)?).find(|(kind, _)| *kind == wanted);
    let (_, value) = find(LOCAL).or_else(|| find(ADDRESS))?;
    let address = match value.len() {
        4 => <[u8; 4]>::try_from(value).ok()?.into(),
        _ => <[u8; 16]>::try_from(value).ok()?.into(),
    };
    Some(Address { index, prefix, address })
}

/// Returns the attributes as (kind without flags, value).
fn attributes(body: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut rest = body;
    core::iter::from_fn(move || {
        let length = u16_at(rest, 0)?;
        let attribute = chunk(&mut rest, u32::from(length))?;
        Some((u16_at(attribute, 2)? & 0x3fff, attribute.get(4..)?))
    })
}

/// Takes `length` bytes off the front, and drops the padding to a multiple of four.
fn chunk<'m>(rest: &mut &'m [u8], length: u32) -> Option<&'m [u8]> {
    let length = usize::try_from(length).ok()?;
    let (chunk, _) = rest.split_at_checked(length)?;
    *rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    Some(chunk)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
