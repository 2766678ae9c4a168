//! The vsock address of a host: two numbers in `PUT /1.0` and `agent.conf` (P§3.3), and
//! `<cid>:<port>` in a CONNECT line (decisions §1) and in texts.

use core::fmt;

use crate::decimal::digits;

/// The vsock address on which a host listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// Context id as the host gave it, often but not always 2.
    pub cid: u32,
    pub port: u32,
}

/// Why a text is not a host's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHostAddress {
    /// Not `<cid>:<port>` with two decimal numbers of at most 32 bits.
    Malformed,
    /// Well-formed, but reserved: see [`HostAddress::new`].
    NotAHost,
}

impl HostAddress {
    /// Returns the address, or `None` if it is reserved: context ids 0, 1 and `u32::MAX` are the
    /// hypervisor, the guest itself and "any"; port `u32::MAX` is "any", too (vsock(7)), and port 0
    /// is unused.
    pub fn new(cid: u32, port: u32) -> Option<Self> {
        let (usable_cid, usable_port) = (cid >= 2 && cid != u32::MAX, port > 0 && port != u32::MAX);
        (usable_cid && usable_port).then_some(Self { cid, port })
    }

    /// Parses `<cid>:<port>`.
    /// Errors: [`BadHostAddress`] if the text has another form or the address is reserved.
    pub fn parse(text: &str) -> Result<Self, BadHostAddress> {
        let (cid, port) = text.split_once(':').ok_or(BadHostAddress::Malformed)?;
        let (cid, port) = digits(cid).zip(digits(port)).ok_or(BadHostAddress::Malformed)?;
        Self::new(cid, port).ok_or(BadHostAddress::NotAHost)
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.cid, self.port)
    }
}
