//! Faults in a policy file, as messages.

use core::fmt;

use super::whole::Limit;
use super::{CAPABILITIES, Capability, known, quoted};
use crate::yaml::{Scalar, YamlError};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault<'y> {
    /// Not YAML, or an unexpected structure.
    Yaml(YamlError),
    /// An invalid key or value.
    Word {
        /// Its line, counted from 1.
        line: u32,
        /// The key or value.
        word: Scalar<'y>,
        why: BadWord,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadWord {
    /// A key of `features` that is not a capability.
    Feature,
    /// A key of a capability's map that is not one of its limits.
    Limit(Capability),
    /// A key of the file other than `features`.
    Key,
    /// A value of a wrong type; holds the expected one.
    Value(&'static str),
    /// A key that occurs twice.
    Twice,
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (line, word, why) = match self {
            Self::Yaml(error) => return fmt::Display::fmt(error, out),
            Self::Word { line, word, why } => (line, word, why),
        };
        write!(out, "line {line}: ")?;
        out.write_str(match why {
            BadWord::Limit(_) | BadWord::Key => "unknown key ",
            BadWord::Feature => "unknown feature ",
            BadWord::Value(_) | BadWord::Twice => "",
        })?;
        quoted(out, &mut |sink| word.text(|piece| sink(piece)))?;
        match why {
            BadWord::Key => out.write_str("; known: features"),
            BadWord::Feature => known(out, &mut CAPABILITIES.into_iter().map(Capability::name)),
            BadWord::Limit(capability) => {
                let all = Limit::ALL.iter();
                let mut names = all.filter_map(|(name, _, of)| (of == capability).then_some(*name));
                known(out, &mut names)
            }
            BadWord::Value(expected) => {
                out.write_str(" is ")?;
                out.write_str(expected)
            }
            BadWord::Twice => out.write_str(" occurs twice"),
        }
    }
}
