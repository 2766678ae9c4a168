//! The error of an invalid command line.

use std::borrow::Cow;
use std::fmt;

/// Why the command line is invalid.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadOption(Cow<'static, str>);

impl fmt::Display for BadOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl From<&'static str> for BadOption {
    fn from(why: &'static str) -> Self {
        Self(why.into())
    }
}

impl From<String> for BadOption {
    fn from(why: String) -> Self {
        Self(why.into())
    }
}
