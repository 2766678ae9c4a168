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

impl HostAddress {
    /// Returns the address, or `None` if it is reserved: context ids 0, 1 and `u32::MAX` are the
    /// hypervisor, the guest itself and "any"; port `u32::MAX` is "any", too (vsock(7)), and port 0
    /// is unused.
    pub fn new(cid: u32, port: u32) -> Option<Self> {
        let (usable_cid, usable_port) = (cid >= 2 && cid != u32::MAX, port > 0 && port != u32::MAX);
        (usable_cid && usable_port).then_some(Self { cid, port })
    }

    /// Parses `<cid>:<port>`, two decimal numbers of at most 32 bits, for [`HostAddress::new`].
    pub fn parse(text: &str) -> Option<(u32, u32)> {
        let (cid, port) = text.split_once(':')?;
        digits(cid).zip(digits(port))
    }
}

impl fmt::Display for HostAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.cid, self.port)
    }
}
