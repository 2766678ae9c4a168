//! What this guest lets its host do: one switch a capability (P§1.4). Incus has them in
//! `/etc/incus-agent.yml`; here they work for every server, and come from options too.
//!
//! The rule: everything is allowed until something restricts it, and nothing gives back what
//! something else has taken. So the order of files and options does not matter, and a file that
//! cannot be read allows nothing.

use core::fmt;

use crate::yaml::{Event, Parser, YamlError};

/// What a host can want of a guest; named as Incus names its features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The devlxd socket in the guest.
    GuestApi,
    /// Running commands.
    Exec,
    /// sftp.
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

/// All of them, in the order in which people see them.
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
    /// As files and options have it.
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

    /// The one with that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        CAPABILITIES.into_iter().find(|capability| capability.name() == name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy(u8);

/// A list names something that is no capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCapability;

impl Policy {
    /// Everything: nobody has restricted anything.
    pub const ALL: Self = Self(0x7f);
    /// Nothing.
    pub const NONE: Self = Self(0);

    /// Whether it is allowed.
    #[must_use]
    pub fn allows(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }

    /// What both allow.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Just what is on this list; separated by commas, and it may be empty.
    ///
    /// # Errors
    /// [`NoCapability`].
    pub fn only(list: &str) -> Result<Self, NoCapability> {
        let mut names = list.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.try_fold(Self::NONE, |all, name| {
            let capability = Capability::parse(name).ok_or(NoCapability)?;
            Ok(Self(all.0 | capability.bit()))
        })
    }

    /// All but what is on this list.
    ///
    /// # Errors
    /// [`NoCapability`].
    pub fn without(list: &str) -> Result<Self, NoCapability> {
        Self::only(list).map(|denied| Self(Self::ALL.0 & !denied.0))
    }
}

impl Policy {
    /// From a file of Incus' shape, `features: {name: bool}`: without the map everything is on, with
    /// it everything is off that is not `true` in it. Names that we do not know mean nothing.
    ///
    /// # Errors
    /// [`YamlError`].
    pub fn from_yaml(bytes: &[u8]) -> Result<Self, YamlError> {
        let mut parser = Parser::new(bytes)?;
        let mut policy = Self::ALL;
        match parser.step()? {
            Event::Map => {
                while let Event::Scalar(key) = parser.step()? {
                    if key.is("features") {
                        policy = Self::features(&mut parser)?;
                    } else {
                        let value = parser.step()?;
                        parser.skip(value)?;
                    }
                }
            }
            Event::Scalar(scalar) if scalar.is_null() => {}
            Event::Scalar(_) | Event::Seq | Event::End => return Err(parser.shape("a map")),
        }
        // What comes after it must be right too.
        while parser.next()?.is_some() {}
        Ok(policy)
    }

    fn features(parser: &mut Parser<'_>) -> Result<Self, YamlError> {
        match parser.step()? {
            Event::Map => {}
            Event::Scalar(scalar) if scalar.is_null() => return Ok(Self::ALL),
            Event::Scalar(_) | Event::Seq | Event::End => return Err(parser.shape("a map")),
        }
        let mut policy = Self::NONE;
        while let Event::Scalar(name) = parser.step()? {
            let on = match parser.step()? {
                Event::Scalar(value) if value.is_null() => Some(false),
                Event::Scalar(value) => value.truth(),
                Event::Map | Event::Seq | Event::End => None,
            };
            let on = on.ok_or_else(|| parser.shape("true or false"))?;
            for capability in CAPABILITIES.into_iter().filter(|one| on && name.is(one.name())) {
                policy.0 |= capability.bit();
            }
        }
        Ok(policy)
    }
}

/// For people: what is denied.
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
mod tests {
    use super::*;
    use crate::yaml::Why;
    use std::string::ToString;

    #[test]
    fn each_capability_has_a_switch_of_its_own() {
        for one in CAPABILITIES {
            assert_eq!(Capability::parse(one.name()), Some(one));
            let (only, without) = (Policy::only(one.name()), Policy::without(one.name()));
            for other in CAPABILITIES {
                assert_eq!(only.unwrap().allows(other), one == other);
                assert_eq!(without.unwrap().allows(other), one != other);
                assert!(Policy::ALL.allows(other) && !Policy::NONE.allows(other));
            }
        }
        assert_eq!(Policy::without(""), Ok(Policy::ALL));
        assert_eq!(Policy::only(""), Ok(Policy::NONE));
    }

    #[test]
    fn lists_are_taken_whole_or_not_at_all() {
        let some = Policy::without("exec, files,").unwrap();
        assert_eq!(some.to_string(), "denied: exec files");
        assert_eq!(Policy::ALL.to_string(), "everything is allowed");
        for bad in ["exec files", "Exec", "exec,sftp", "-"] {
            assert_eq!(Policy::without(bad), Err(NoCapability), "{bad}");
        }
    }

    #[test]
    fn nothing_gives_back_what_something_else_has_taken() {
        let file = Policy::without("exec").unwrap();
        let option = Policy::only("exec,state").unwrap();
        let both = file.and(option);
        assert_eq!(both, option.and(file));
        assert_eq!(both, Policy::only("state").unwrap());
    }

    #[test]
    fn files_mean_what_they_mean_to_incus() {
        let read = |text: &str| Policy::from_yaml(text.as_bytes());
        for all in ["", "# nothing\n", "features:\n", "features: ~", "other: {exec: false}"] {
            assert_eq!(read(all), Ok(Policy::ALL), "{all}");
        }
        let some = Policy::only("exec,port-forward").unwrap();
        for same in [
            "features:\n  exec: true\n  port-forward: true\n  files: false\n",
            "features: {exec: yes, 'port-forward': on, new-thing: true}\nmore: [1]\n",
            "---\nfeatures:\n    exec: True # needed\n    \"port-forward\": true\n    state:\n...\n",
        ] {
            assert_eq!(read(same), Ok(some), "{same}");
        }
        assert_eq!(read("features: {}"), Ok(Policy::NONE));
        for (bad, line, what) in [
            ("features:\n- exec\n", 2, "a map"),
            ("features:\n  exec: maybe\n", 2, "true or false"),
            ("features:\n  exec: 'true'\n", 2, "true or false"),
            ("features: {exec: [true]}", 1, "true or false"),
            ("exec", 1, "a map"),
        ] {
            assert_eq!(read(bad), Err(YamlError { line, why: Why::Shape(what) }), "{bad}");
        }
        assert!(read("features: {exec: true}\nmore: [").is_err());
        assert!(read("features: {exec: true").is_err());
    }
}
