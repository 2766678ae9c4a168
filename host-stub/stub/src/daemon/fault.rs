//! Faults that the host makes on request, per instance, to show that an agent survives them.

use std::fmt;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use clap::ValueEnum;

use mote_client::common::printable::word;

/// Upper bound for a fault's duration.
const LONGEST: Duration = Duration::from_secs(600);

/// What the host does. All except `DenyPut` affect devlxd connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Stop the fault
    #[default]
    None,
    /// Accept and send nothing, not even TLS, for N seconds (600)
    Stall,
    /// Answer N milliseconds late
    Slow,
    /// Close the connection after the request, without an answer
    Reset,
    /// Show an unknown certificate
    WrongCert,
    /// Answer 403 to everything
    Forbidden,
    /// Answer with an endless body
    Huge,
    /// Answer with bytes that are not HTTP
    Garbage,
    /// Never call the agent with PUT /1.0
    DenyPut,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    pub time: Duration,
}

impl Fault {
    pub fn new(kind: Kind, number: Option<u64>) -> Result<Self> {
        let time = match (kind, number) {
            (Kind::Slow, None) => bail!("slow needs milliseconds"),
            (Kind::Stall, None | Some(0)) => LONGEST,
            (Kind::Stall, Some(seconds)) => Duration::from_secs(seconds),
            (_, millis) => Duration::from_millis(millis.unwrap_or_default()),
        };
        Ok(Self { kind, time: time.min(LONGEST) })
    }

    pub fn parse(kind: &str, number: Option<u64>) -> Result<Self> {
        let known = Kind::from_str(kind, false).map_err(|why| anyhow!("fault {kind}: {why}"));
        Self::new(known?, number)
    }
}

/// Formats as on the command line.
impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&word(self.kind))?;
        if self.kind == Kind::Stall {
            write!(out, " {}", self.time.as_secs())?;
        } else if self.kind == Kind::Slow {
            write!(out, " {}", self.time.as_millis())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_is_parsed_shown_and_limited() {
        for kind in Kind::value_variants() {
            let fault = Fault::new(*kind, Some(7)).unwrap();
            let shown = fault.to_string();
            let (kind, number) = shown.split_once(' ').unwrap_or((&shown, "7"));
            assert_eq!(Fault::parse(kind, number.parse().ok()).unwrap(), fault);
        }
        assert!(Fault::parse("stal", None).is_err() && Fault::parse("slow", None).is_err());
        let longest = Fault { kind: Kind::Stall, time: LONGEST };
        for number in [None, Some(0), Some(u64::MAX)] {
            assert_eq!(Fault::parse("stall", number).unwrap(), longest);
        }
    }
}
