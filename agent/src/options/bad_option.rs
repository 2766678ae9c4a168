//! The error of the command line.

use std::borrow::Cow;
use std::fmt;

/// What is wrong with the command line, in words: the answer to it is always the same.
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
