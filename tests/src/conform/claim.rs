//! What a check comes to.

use std::fmt::{Debug, Display};
use std::time::Duration;

/// Why a claim does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Miss {
    /// It is not there, or ends in an error.
    No(String),
    Differs(String),
}

impl Miss {
    /// What is said of something that was too slow; the last is what a panic of `wait` says.
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

    /// Whether it may be due to a machine that is busy.
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

/// What a check comes to.
pub type Claim = Result<(), Miss>;

/// Demands equality; says what was seen.
pub fn same<T: PartialEq<U> + Display, U: Display>(what: &str, seen: T, wanted: U) -> Claim {
    if seen == wanted {
        Ok(())
    } else {
        Err(Miss::Differs(format!("{what} is `{seen}`, not `{wanted}`")))
    }
}

/// As [`same`], of what has more than one part; shown as it is in code.
pub fn equal<T: PartialEq<U> + Debug, U: Debug>(what: &str, seen: T, wanted: U) -> Claim {
    let differs = || format!("{what} is {seen:?}, not {wanted:?}");
    if seen == wanted { Ok(()) } else { Err(Miss::Differs(differs())) }
}

/// Demands that something holds.
pub fn hold(what: impl Into<String>, holds: bool) -> Claim {
    if holds { Ok(()) } else { Err(Miss::Differs(what.into())) }
}

/// A little while, for what may take a moment to be seen.
pub const SOON: Duration = Duration::from_secs(10);
