//! Input from the port: limits its bytes, because an endless device or a misbehaving host must not
//! use all CPU time; splits it into lines; parses the only line that a host may write to the agent:
//! `CONNECT <cid>:<port> [<sha256>]` (decisions §1).

use core::time::Duration;

use heapless::Vec;

use crate::host_address::HostAddress;
use crate::limits;
use crate::named::named;
use crate::time::Uptime;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    pub address: HostAddress,
    /// SHA-256 of the host's certificate (DER); `None` for the known certificate.
    pub fingerprint: Option<[u8; 32]>,
}

named! {
    /// Why input is refused: mostly a line that begins with CONNECT.
    pub enum RefusedLine {
        Malformed "not CONNECT <cid>:<port> [<sha256>]",
        BadAddress "no host can have that address",
        /// mote trusts no certificate on first use.
        NoCertificate "no certificate is known and the line has no fingerprint",
        /// More bytes arrive than mote reads.
        Flood "endless input: is that device a port?",
    }
}

impl Connect {
    /// Reads a line; returns `None` if it does not begin with CONNECT, such as an echo of the
    /// agent's own lines. Errors: [`RefusedLine::Malformed`] or [`RefusedLine::BadAddress`].
    pub fn parse(line: &[u8]) -> Result<Option<Self>, RefusedLine> {
        let Some(rest) = line.strip_prefix(b"CONNECT ") else { return Ok(None) };
        let rest = core::str::from_utf8(rest).map_err(|_| RefusedLine::Malformed)?;
        let (address, fingerprint) = match rest.split_once(' ') {
            Some((address, hex)) => {
                (address, Some(fingerprint(hex).ok_or(RefusedLine::Malformed)?))
            }
            None => (rest, None),
        };
        let (cid, port) = HostAddress::parse(address).ok_or(RefusedLine::Malformed)?;
        let address = HostAddress::new(cid, port).ok_or(RefusedLine::BadAddress)?;
        Ok(Some(Self { address, fingerprint }))
    }
}

fn fingerprint(hex: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if hex.len() != 64 {
        return None;
    }
    for (byte, digits) in out.iter_mut().zip(hex.as_bytes().chunks(2)) {
        for digit in digits {
            let digit = char::from(*digit).to_digit(16)?;
            *byte = *byte << 4 | u8::try_from(digit).ok()?;
        }
    }
    Some(out)
}

/// The part of the current line that has been received. An overlong line is dropped as a whole,
/// because a truncated one could read as a shorter, valid line.
#[derive(Debug, Default)]
pub struct LineBuf {
    bytes: Vec<u8, { limits::LINE }>,
    overran: bool,
}

impl LineBuf {
    /// Takes one byte. If it is the newline of a line of at most [`limits::LINE`] bytes, returns the
    /// line without it and without a carriage return before it.
    pub fn push(&mut self, byte: u8) -> Option<Vec<u8, { limits::LINE }>> {
        if byte != b'\n' {
            self.overran |= self.bytes.push(byte).is_err();
            return None;
        }
        let Self { mut bytes, overran } = core::mem::take(self);
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
        (!overran).then_some(bytes)
    }

    /// Drops the current line, whose rest will never arrive.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Maximum number of bytes read in one [`PERIOD`]; mote then pauses until the next one. Real lines
/// have at most 89 bytes, and reading this many takes a hundredth of a period.
pub(super) const FLOOD_BYTES: usize = 256 * 1024;
/// Period in which bytes are counted, and maximum pause: a CONNECT line after a burst is delayed by
/// no more than this.
const PERIOD: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Flood {
    end: Uptime,
    bytes: usize,
}

impl Flood {
    pub(super) fn read(&mut self, now: Uptime, bytes: usize) {
        if now >= self.end {
            *self = Self { end: now + PERIOD, bytes: 0 };
        }
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Returns the time until which the shell must not read the port; `None` if it may read now.
    pub(super) fn pause(&self, now: Uptime) -> Option<Uptime> {
        (self.bytes >= FLOOD_BYTES && now < self.end).then_some(self.end)
    }
}
