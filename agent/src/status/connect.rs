//! The one line that a host may write to us: `CONNECT <cid>:<port> [<sha256>]` (seeds §1).

use core::fmt;

/// Where a host listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// Its vsock context id: told, never assumed.
    pub cid: u32,
    /// Its vsock port.
    pub port: u32,
}

impl Address {
    /// An address that can be a host's. The ids 0, 1 and `u32::MAX` are the hypervisor, ourselves
    /// and "any" (vsock(7)).
    #[must_use]
    pub fn new(cid: u32, port: u32) -> Option<Self> {
        let (usable_cid, usable_port) = (cid >= 2 && cid != u32::MAX, port > 0 && port != u32::MAX);
        (usable_cid && usable_port).then_some(Self { cid, port })
    }
}

/// A well-formed CONNECT line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// Where to call.
    pub address: Address,
    /// SHA-256 of the certificate (DER) that the host will show.
    pub fingerprint: Option<[u8; 32]>,
}

/// Why a line that begins with CONNECT is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedLine {
    /// Not `CONNECT <cid>:<port> [<64 hex digits>]`.
    Malformed,
    /// The address cannot be a host's.
    BadAddress,
    /// It names no certificate and none is known; one is never taken on trust.
    NoCertificate,
}

impl fmt::Display for RefusedLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Malformed => "not CONNECT <cid>:<port> [<sha256>]",
            Self::BadAddress => "no host can have that address",
            Self::NoCertificate => "no certificate is known and the line has no fingerprint",
        })
    }
}

impl Connect {
    /// Reads a line; `None` if it is something else, such as an echo of our own words.
    ///
    /// # Errors
    /// [`RefusedLine`].
    pub fn parse(line: &[u8]) -> Result<Option<Self>, RefusedLine> {
        let Some(rest) = line.strip_prefix(b"CONNECT ") else { return Ok(None) };
        let rest = core::str::from_utf8(rest).map_err(|_| RefusedLine::Malformed)?;
        let (address, fingerprint) = match rest.split_once(' ') {
            Some((address, hex)) => {
                (address, Some(fingerprint(hex).ok_or(RefusedLine::Malformed)?))
            }
            None => (rest, None),
        };
        let (cid, port) = address.split_once(':').ok_or(RefusedLine::Malformed)?;
        let number = |text: &str| -> Option<u32> {
            // No sign, which parse() would take.
            if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
        };
        let cid = number(cid).ok_or(RefusedLine::Malformed)?;
        let port = number(port).ok_or(RefusedLine::Malformed)?;
        let address = Address::new(cid, port).ok_or(RefusedLine::BadAddress)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;

    #[test]
    fn both_forms_are_read() {
        let plain = Connect::parse(b"CONNECT 2:40000").unwrap().unwrap();
        assert_eq!(plain.address, Address { cid: 2, port: 40000 });
        assert_eq!(plain.fingerprint, None);
        let hex = "0aFf".repeat(16);
        let pinned = Connect::parse(format!("CONNECT 3:1 {hex}").as_bytes()).unwrap().unwrap();
        assert_eq!(pinned.fingerprint.map(|print| print[..2].to_vec()), Some([0x0a, 0xff].into()));
    }

    #[test]
    fn our_own_words_and_noise_are_no_connect() {
        for line in [&b"CONNECTED"[..], b"STARTED", b"STOPPED", b"", b"connect 2:1", b"\xff\0"] {
            assert_eq!(Connect::parse(line), Ok(None));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let long = format!("CONNECT 2:1 {}", "0".repeat(65));
        for line in [
            "CONNECT ",
            "CONNECT 2",
            "CONNECT 2:",
            "CONNECT :2",
            "CONNECT 2:1 ",
            "CONNECT 2:1 xyz",
            "CONNECT  2:1",
            "CONNECT +2:1",
            "CONNECT 2:-1",
            "CONNECT 4294967296:1",
            long.as_str(),
            "CONNECT 2:1\u{e9}",
        ] {
            assert_eq!(Connect::parse(line.as_bytes()), Err(RefusedLine::Malformed), "{line}");
        }
        for line in ["CONNECT 0:1", "CONNECT 1:1", "CONNECT 4294967295:1", "CONNECT 2:0"] {
            assert_eq!(Connect::parse(line.as_bytes()), Err(RefusedLine::BadAddress), "{line}");
        }
    }
}
