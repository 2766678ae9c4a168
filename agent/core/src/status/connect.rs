//! Parses the only line that a host may write to the agent: `CONNECT <cid>:<port> [<sha256>]`
//! (decisions §1).

use core::fmt;

use crate::host_address::HostAddress;

/// A well-formed CONNECT line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    pub address: HostAddress,
    /// SHA-256 of the host's certificate (DER); `None` for the known certificate.
    pub fingerprint: Option<[u8; 32]>,
}

/// Why input is refused: mostly a line that begins with CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedLine {
    /// Not `CONNECT <cid>:<port> [<64 hex digits>]`.
    Malformed,
    /// No host can have that address.
    BadAddress,
    /// No fingerprint in the line, and no certificate is known. mote trusts none on first use.
    NoCertificate,
    /// More bytes arrive than mote reads.
    Flood,
}

impl fmt::Display for RefusedLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Malformed => "not CONNECT <cid>:<port> [<sha256>]",
            Self::BadAddress => "no host can have that address",
            Self::NoCertificate => "no certificate is known and the line has no fingerprint",
            Self::Flood => "endless input: is that device a port?",
        })
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
