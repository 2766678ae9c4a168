//! The agent's log, printed with a loud scenario.

use std::fmt::Arguments;

use crate::below::here::here;

pub(crate) fn is_debug() -> bool {
    here().sim.is_loud()
}

pub(crate) fn info(fact: Arguments<'_>) {
    here().sim.say(fact);
}
pub(crate) use self::{info as debug, info as error, info as warn};

pub(crate) fn catch_up() {}

pub(crate) fn printable(_: usize, _: bool, text: Arguments<'_>) -> String {
    text.to_string()
}

pub(crate) mod frozen {
    pub(crate) fn is_frozen() -> bool {
        false
    }
}

pub(crate) mod audit {
    use std::fmt::{Arguments, Display, Formatter, Result};

    pub(crate) async fn turn() {}

    pub(crate) fn note(act: Arguments<'_>) {
        super::info(act);
    }

    pub(crate) struct Quoted<'t>(pub(crate) &'t str);

    impl Display for Quoted<'_> {
        fn fmt(&self, out: &mut Formatter<'_>) -> Result {
            write!(out, "{:?}", self.0)
        }
    }
}
