//! The capabilities that the guest allows its host, one switch each (P§1.4). Incus has them in
//! `/etc/incus-agent.yml`; here they work for every server, and can also be set by options.
//!
//! Everything is allowed until a file or an option restricts it, and none of them can allow what another has
//! denied, so their order does not matter. A file that cannot be read, or has an unknown key or feature, allows
//! nothing: an author who wrote `feature:` meant to restrict something. (Incus' agent ignores unknown keys.)

use core::fmt::{self, Write};

use crate::yaml::{Event, Parser, Scalar, YamlError};

/// Most faults of a file that are reported: enough to correct a file in one go, since there are seven features.
const FAULTS: usize = 8;
/// Longest beginning of a bad key or value in a message, characters.
const SHOWN: usize = 40;

/// A capability of the host in the guest, named like the features of Incus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The devlxd socket in the guest.
    GuestApi,
    /// Running commands.
    Exec,
    /// Access to files by sftp.
    Files,
    /// Mounting shared directories, at start and by hot-plug.
    Mounts,
    /// Connections to ports in the guest.
    PortForward,
    /// `/1.0/metrics`.
    Metrics,
    /// `/1.0/state`.
    State,
}

/// All capabilities, in the order of messages.
pub const CAPABILITIES: [Capability; 7] = [
    Capability::GuestApi,
    Capability::Exec,
    Capability::Files,
    Capability::Mounts,
    Capability::PortForward,
    Capability::Metrics,
    Capability::State,
];

impl Capability {
    /// Name in files and options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::GuestApi => "guestapi",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Mounts => "mounts",
            Self::PortForward => "port-forward",
            Self::Metrics => "metrics",
            Self::State => "state",
        }
    }

    /// The capability of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        CAPABILITIES.into_iter().find(|capability| capability.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The set of allowed capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(u8);

/// A name in a list that is no capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCapability<'l>(pub &'l str);

impl fmt::Display for NoCapability<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("unknown feature ")?;
        let mut shown = Shown::begin(out)?;
        shown.push(self.0)?;
        shown.end()?;
        known_features(out)
    }
}

impl Policy {
    /// All seven capabilities: the default.
    pub const ALL: Self = Self(0x7f);
    /// No capability.
    pub const NONE: Self = Self(0);

    /// Whether the capability is allowed.
    #[must_use]
    pub fn allows(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// The capabilities that both allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Allows only the names in `list`, which are separated by commas; it may be empty.
    ///
    /// # Errors
    /// [`NoCapability`] with the first name that is unknown.
    pub fn only(list: &str) -> Result<Self, NoCapability<'_>> {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |all, name| {
            let capability = Capability::parse(name).ok_or(NoCapability(name))?;
            Ok(Self(all.0 | capability.bit()))
        })
    }

    /// Allows all but the names in `list`, which are separated by commas.
    ///
    /// # Errors
    /// [`NoCapability`] with the first name that is unknown.
    pub fn without(list: &str) -> Result<Self, NoCapability<'_>> {
        Self::only(list).map(|denied| Self(Self::ALL.0 & !denied.0))
    }
}

/// A fault in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'y> {
    /// Not YAML from there on, or another shape than expected.
    Yaml(YamlError),
    /// An invalid key or value.
    Word {
        /// Its line, counted from 1.
        line: u32,
        /// The key or value.
        word: Scalar<'y>,
        /// The kind of fault.
        why: BadWord,
    },
}

/// Fault of a key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadWord {
    /// A key of the file other than `features`.
    Key,
    /// A key of `features` that is no capability.
    Feature,
    /// A value that is neither true nor false.
    Truth,
    /// A key that occurs twice.
    Twice,
}

/// Reports one fault.
type Tell<'t> = &'t mut dyn FnMut(&dyn fmt::Display);

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, word, why) = match self {
            Self::Yaml(error) => return fmt::Display::fmt(error, out),
            Self::Word { line, word, why } => (line, word, why),
        };
        write!(out, "line {line}: ")?;
        out.write_str(match why {
            BadWord::Key => "unknown key ",
            BadWord::Feature => "unknown feature ",
            BadWord::Truth | BadWord::Twice => "",
        })?;
        let mut shown = Shown::begin(out)?;
        let mut written = Ok(());
        word.text(|piece| written = written.and_then(|()| shown.push(piece)));
        written?;
        shown.end()?;
        match why {
            BadWord::Key => out.write_str("; known: features"),
            BadWord::Feature => known_features(out),
            BadWord::Truth => out.write_str(" is neither true nor false"),
            BadWord::Twice => out.write_str(" is there twice"),
        }
    }
}

fn known_features(out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut before = "; known: ";
    for capability in CAPABILITIES {
        out.write_str(before)?;
        out.write_str(capability.name())?;
        before = ", ";
    }
    Ok(())
}

/// Writes the beginning of a foreign text in quotes, with control characters replaced by `?`.
struct Shown<'o, 'f> {
    out: &'o mut fmt::Formatter<'f>,
    left: usize,
}

impl<'o, 'f> Shown<'o, 'f> {
    fn begin(out: &'o mut fmt::Formatter<'f>) -> Result<Self, fmt::Error> {
        out.write_str("\"")?;
        Ok(Self { out, left: SHOWN })
    }

    fn push(&mut self, piece: &str) -> fmt::Result {
        for character in piece.chars().take(self.left) {
            self.out.write_char(if character.is_control() { '?' } else { character })?;
            self.left -= 1;
        }
        Ok(())
    }

    fn end(self) -> fmt::Result {
        self.out.write_str(if self.left == 0 { "...\"" } else { "\"" })
    }
}

impl Policy {
    /// Reads a file of Incus' form, `features: {name: bool}`. Without the map everything is allowed, with it only
    /// the names whose value is true.
    ///
    /// A file with any fault allows nothing; its first `FAULTS` faults are passed to `tell`.
    pub fn from_yaml(bytes: &[u8], tell: Tell<'_>) -> Self {
        let mut faults = 0;
        let mut bad = |fault: Fault<'_>| {
            faults += 1;
            if faults <= FAULTS {
                tell(&fault);
            }
        };
        let policy = Self::read(bytes, &mut bad).map_err(|error| bad(Fault::Yaml(error)));
        policy.ok().filter(|_| faults == 0).unwrap_or(Self::NONE)
    }

    /// Reads a file to its end, past bad keys and values, which are passed to `bad`.
    fn read(bytes: &[u8], bad: &mut dyn FnMut(Fault<'_>)) -> Result<Self, YamlError> {
        let mut parser = Parser::new(bytes)?;
        let mut policy = None;
        if begins_map(&mut parser)? {
            while let Some((line, word)) = key(&mut parser)? {
                if !word.is("features") {
                    bad(Fault::Word { line, word, why: BadWord::Key });
                    let value = parser.step()?;
                    parser.skip(value)?;
                } else if policy.replace(Self::features(&mut parser, bad)?).is_some() {
                    bad(Fault::Word { line, word, why: BadWord::Twice });
                }
            }
        }
        // The rest of the file must be YAML too.
        while parser.next()?.is_some() {}
        Ok(policy.unwrap_or(Self::ALL))
    }

    fn features(
        parser: &mut Parser<'_>,
        bad: &mut dyn FnMut(Fault<'_>),
    ) -> Result<Self, YamlError> {
        if !begins_map(parser)? {
            return Ok(Self::ALL);
        }
        let (mut policy, mut seen) = (Self::NONE, Self::NONE);
        while let Some((line, word)) = key(parser)? {
            let bit = CAPABILITIES.into_iter().find(|one| word.is(one.name())).map(Capability::bit);
            match bit {
                None => bad(Fault::Word { line, word, why: BadWord::Feature }),
                Some(bit) if seen.0 & bit != 0 => {
                    bad(Fault::Word { line, word, why: BadWord::Twice });
                }
                Some(_) => {}
            }
            let bit = bit.unwrap_or(0);
            seen.0 |= bit;
            let value = parser.step()?;
            let line = parser.line();
            match value {
                Event::Scalar(value) if value.is_null() => {}
                Event::Scalar(word) => match word.truth() {
                    Some(true) => policy.0 |= bit,
                    Some(false) => {}
                    None if bit == 0 => {}
                    None => bad(Fault::Word { line, word, why: BadWord::Truth }),
                },
                Event::Map | Event::Seq | Event::End => {
                    bad(Fault::Yaml(parser.shape("true or false")));
                    parser.skip(value)?;
                }
            }
        }
        Ok(policy)
    }
}

/// Whether a map begins; false for `null` or nothing.
#[inline(never)]
fn begins_map(parser: &mut Parser<'_>) -> Result<bool, YamlError> {
    match parser.step()? {
        Event::Map => Ok(true),
        Event::Scalar(scalar) if scalar.is_null() => Ok(false),
        Event::Scalar(_) | Event::Seq | Event::End => Err(parser.shape("a map")),
    }
}

/// The next key of the open map, with its line; `None` at the end of the map.
#[inline(never)]
fn key<'y>(parser: &mut Parser<'y>) -> Result<Option<(u32, Scalar<'y>)>, YamlError> {
    match parser.step()? {
        Event::Scalar(word) => Ok(Some((parser.line(), word))),
        Event::Map | Event::Seq | Event::End => Ok(None),
    }
}

/// The denied capabilities, for the log and the status file.
impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::ALL {
            return out.write_str("everything is allowed");
        }
        out.write_str("denied:")?;
        for capability in CAPABILITIES.into_iter().filter(|one| !self.allows(*one)) {
            out.write_str(" ")?;
            out.write_str(capability.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
