//! Faults that the host makes on request, per instance, to show that an agent survives them.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

/// Upper bound of a stall.
const STALL: Duration = Duration::from_secs(600);

/// A fault. All except `DenyPut` affect devlxd connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fault {
    /// Close after the TLS handshake and the request, without an answer.
    Reset,
    /// Never send the PUT.
    DenyPut,
    /// Answer everything with 403.
    Forbidden,
    /// Answer with bytes that are not HTTP.
    Garbage,
    /// Answer with an endless body.
    Huge,
    /// Send no TLS tickets, and answer only after that time.
    NoTickets(Duration),
    #[default]
    None,
    /// Answer only after that time.
    Slow(Duration),
    /// Accept, and send nothing for that time, not even TLS.
    Stall(Duration),
    /// Show an unknown certificate.
    WrongCert,
}

pub const KINDS: [(&str, &str, &str); 10] = [
    ("none", "", "stop the fault"),
    ("stall", " [N]", "accept and send nothing for [N] seconds (600)"),
    ("slow", " N", "answer N milliseconds late"),
    ("reset", "", "close the connection after the request, without an answer"),
    ("wrong-cert", "", "show an unknown certificate"),
    ("forbidden", "", "answer 403 to everything"),
    ("huge", "", "answer with an endless body"),
    ("garbage", "", "answer with bytes that are not HTTP"),
    ("deny-put", "", "never call the agent with PUT /1.0"),
    ("no-tickets", " [N]", "send no TLS tickets, and answer [N] milliseconds late"),
];

/// Returns the same for people.
pub fn help() -> String {
    let row = |(kind, number, meaning)| format!("\n  {:<15} {meaning}", format!("{kind}{number}"));
    format!("Kinds:{}", KINDS.map(row).concat())
}

impl Fault {
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
                let kinds = KINDS.map(|(kind, ..)| kind).join(", ");
                bail!("unknown fault {other}; known are {kinds}")
            }
        })
    }
}

/// Formats as on the command line.
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
    fn rejects_unknown_faults_with_a_list_and_limits_times() {
        let error = Fault::parse("stal", None).unwrap_err().to_string();
        for (kind, ..) in KINDS {
            assert!(error.contains(kind), "{kind} in {error}");
        }
        assert!(Fault::parse("slow", None).is_err());
        assert_eq!(Fault::parse("stall", None).unwrap(), Fault::Stall(STALL));
        assert_eq!(Fault::parse("stall", Some(u64::MAX)).unwrap(), Fault::Stall(STALL));
        let slow = Fault::Slow(Duration::from_millis(7));
        assert_eq!(Fault::parse("slow", Some(7)).unwrap(), slow);
    }

    #[test]
    fn every_fault_is_parsed_and_shown() {
        for (kind, ..) in KINDS {
            let fault = Fault::parse(kind, Some(7)).unwrap();
            let shown = fault.to_string();
            let mut words = shown.split(' ');
            let number = |text: &str| text.parse().ok();
            assert_eq!(words.next(), Some(kind));
            assert_eq!(Fault::parse(kind, words.next().and_then(number)).unwrap(), fault);
        }
    }
}
