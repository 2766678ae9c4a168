//! Results of checks.

use std::fmt::{Debug, Display};
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// The feature is missing or ends in an error.
    No(String),
    Differs(String),
}

impl Miss {
    /// Messages about something too slow; the last is that of `wait`'s panic.
    const LATE: [&str; 8] = [
        "in time",
        "not within",
        "no end within",
        "took longer",
        "takes longer",
        "too long",
        "timed out",
        "on an idle machine",
    ];

    /// Returns whether a busy machine may be the reason.
    pub fn is_late(&self) -> bool {
        let (Self::No(why) | Self::Differs(why)) = self;
        Self::LATE.iter().any(|late| why.contains(late))
    }
}

impl From<String> for Miss {
    fn from(text: String) -> Self {
        Self::No(text)
    }
}

impl From<&str> for Miss {
    fn from(text: &str) -> Self {
        Self::No(text.into())
    }
}

pub type Claim = Result<(), Miss>;

/// Requires equality.
pub fn same<T: PartialEq<U> + Display, U: Display>(what: &str, seen: T, wanted: U) -> Claim {
    if seen == wanted {
        Ok(())
    } else {
        Err(Miss::Differs(format!("{what} is `{seen}`, not `{wanted}`")))
    }
}

/// Requires equality of values with several parts, which are shown as in code.
pub fn equal<T: PartialEq<U> + Debug, U: Debug>(what: &str, seen: T, wanted: U) -> Claim {
    let differs = || format!("{what} is {seen:?}, not {wanted:?}");
    if seen == wanted { Ok(()) } else { Err(Miss::Differs(differs())) }
}

pub fn hold(what: impl Into<String>, holds: bool) -> Claim {
    if holds { Ok(()) } else { Err(Miss::Differs(what.into())) }
}

/// Limit for effects that may take a moment.
pub const SOON: Duration = Duration::from_secs(10);
