//! What a host can do wrong, on purpose and per instance, so that an agent can be seen to survive it.

use std::time::Duration;

use anyhow::{Result, bail};

/// A stalled connection is given up after that even if the guest is not.
const STALL: Duration = Duration::from_secs(600);

/// A fault; all but `DenyPut` are played on devlxd connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Close without a word after the TLS handshake and the request.
    Reset,
    /// Never send the PUT.
    DenyPut,
    /// 403 to everything.
    Forbidden,
    /// Bytes that are not HTTP.
    Garbage,
    /// A body without end.
    Huge,
    /// No TLS tickets, and answers only after that.
    NoTickets(Duration),
    /// None: the host behaves.
    #[default]
    None,
    /// Answer only after that.
    Slow(Duration),
    /// Accept, and say nothing for that long, not even TLS.
    Stall(Duration),
    /// Show a certificate that nobody announced.
    WrongCert,
}

impl Fault {
    /// Reads a kind and its number.
    pub(crate) fn parse(kind: &str, number: Option<u64>) -> Result<Self> {
        Ok(match (kind, number) {
            ("none", None | Some(_)) => Self::None,
            ("reset", _) => Self::Reset,
            ("deny-put", _) => Self::DenyPut,
            ("forbidden", _) => Self::Forbidden,
            ("garbage", _) => Self::Garbage,
            ("huge", _) => Self::Huge,
            ("wrong-cert", _) => Self::WrongCert,
            ("slow", Some(millis)) => Self::Slow(Duration::from_millis(millis).min(STALL)),
            ("no-tickets", millis) => {
                Self::NoTickets(Duration::from_millis(millis.unwrap_or_default()).min(STALL))
            }
            ("slow", None) => bail!("slow needs milliseconds"),
            ("stall", None | Some(0)) => Self::Stall(STALL),
            ("stall", Some(seconds)) => Self::Stall(Duration::from_secs(seconds).min(STALL)),
            (other, _) => bail!("there is no fault {other}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_refused_and_times_are_bounded() {
        assert!(Fault::parse("stal", None).is_err());
        assert!(Fault::parse("slow", None).is_err());
        assert_eq!(Fault::parse("stall", None).unwrap(), Fault::Stall(STALL));
        assert_eq!(Fault::parse("stall", Some(u64::MAX)).unwrap(), Fault::Stall(STALL));
        let slow = Fault::Slow(Duration::from_millis(7));
        assert_eq!(Fault::parse("slow", Some(7)).unwrap(), slow);
    }
}
