//! What a host can do wrong, on purpose and per instance, so that an agent can be seen to survive it.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

/// A stalled connection is given up after that even if the guest is not.
const STALL: Duration = Duration::from_secs(600);

/// A fault; all but `DenyPut` are played on devlxd connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
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

/// The kinds with their meaning.
pub const KINDS: [(&str, &str); 10] = [
    ("none", "the host behaves again"),
    ("stall", "accept and say nothing, for [N] seconds (600)"),
    ("slow", "answer N milliseconds late"),
    ("reset", "close the connection after the request, without an answer"),
    ("wrong-cert", "show a certificate that nobody announced"),
    ("forbidden", "answer 403 to everything"),
    ("huge", "answer without end"),
    ("garbage", "answer what is not HTTP"),
    ("deny-put", "never call the agent with PUT /1.0"),
    ("no-tickets", "give no TLS tickets, and answer [N] milliseconds late"),
];

/// The same for people; a test holds it to `KINDS`.
pub const HELP: &str = "\
Kinds:
  none            the host behaves again
  stall [N]       accept and say nothing, for [N] seconds (600)
  slow N          answer N milliseconds late
  reset           close the connection after the request, without an answer
  wrong-cert      show a certificate that nobody announced
  forbidden       answer 403 to everything
  huge            answer without end
  garbage         answer what is not HTTP
  deny-put        never call the agent with PUT /1.0
  no-tickets [N]  give no TLS tickets, and answer [N] milliseconds late";

impl Fault {
    /// Reads a kind and its number.
    pub fn parse(kind: &str, number: Option<u64>) -> Result<Self> {
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
            (other, _) => {
                let kinds = KINDS.map(|(kind, _)| kind).join(", ");
                bail!("there is no fault {other}; there are {kinds}")
            }
        })
    }
}

/// As the command line takes it.
impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => out.write_str("reset"),
            Self::DenyPut => out.write_str("deny-put"),
            Self::Forbidden => out.write_str("forbidden"),
            Self::Garbage => out.write_str("garbage"),
            Self::Huge => out.write_str("huge"),
            Self::NoTickets(time) => write!(out, "no-tickets {}", time.as_millis()),
            Self::None => out.write_str("none"),
            Self::Slow(time) => write!(out, "slow {}", time.as_millis()),
            Self::Stall(time) => write!(out, "stall {}", time.as_secs()),
            Self::WrongCert => out.write_str("wrong-cert"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_refused_with_a_list_and_times_are_bounded() {
        let error = Fault::parse("stal", None).unwrap_err().to_string();
        for (kind, _) in KINDS {
            assert!(error.contains(kind), "{kind} in {error}");
        }
        assert!(Fault::parse("slow", None).is_err());
        assert_eq!(Fault::parse("stall", None).unwrap(), Fault::Stall(STALL));
        assert_eq!(Fault::parse("stall", Some(u64::MAX)).unwrap(), Fault::Stall(STALL));
        let slow = Fault::Slow(Duration::from_millis(7));
        assert_eq!(Fault::parse("slow", Some(7)).unwrap(), slow);
    }

    #[test]
    fn every_kind_is_read_shown_and_explained() {
        for (kind, meaning) in KINDS {
            let fault = Fault::parse(kind, Some(7)).unwrap();
            let shown = fault.to_string();
            let mut words = shown.split(' ');
            let number = |text: &str| text.parse().ok();
            assert_eq!(words.next(), Some(kind));
            assert_eq!(Fault::parse(kind, words.next().and_then(number)).unwrap(), fault);
            let row = HELP.lines().find(|line| line.trim_start().split(' ').next() == Some(kind));
            assert!(row.is_some_and(|row| row.ends_with(meaning)), "{kind}");
        }
        assert_eq!(HELP.lines().count(), KINDS.len() + 1);
    }
}
