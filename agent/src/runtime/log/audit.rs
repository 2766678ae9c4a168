//! A line at info for each act of the host in this guest, for whoever asks later what it did. Secrets, environments
//! and what is written are never in it.

use std::fmt::{self, Arguments, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mote_core::log_limit::LogLimit;

use crate::runtime::clock::now;
use crate::runtime::log;

/// Most lines in [`PERIOD`], so that a busy host does not fill the guest's log; more are counted, not written.
const LINES: u32 = 200;
/// Period in which the lines are counted.
const PERIOD: Duration = Duration::from_secs(10);
/// Longest text of the host's in a line, bytes: the line shall have room for the rest. What is longer is cut.
const SHOWN: usize = 256;

static LIMIT: Mutex<LogLimit> = Mutex::new(LogLimit::burst(LINES, PERIOD));

/// Logs an act of the host, unless there were too many.
#[inline(never)] // its size
pub(crate) fn note(act: Arguments<'_>) {
    let held = LIMIT.lock().unwrap_or_else(PoisonError::into_inner).again(now());
    let Some(held) = held else { return };
    if held > 0 {
        log::info(format_args!("audit: {held} lines were too many and are left out"));
    }
    log::info(format_args!("audit: {act}"));
}

/// A text of the host's in quotes, cut at [`SHOWN`]. It cannot look like the rest of the line; the log itself
/// escapes control characters.
pub(crate) struct Quoted<'t>(pub(crate) &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.get(..self.0.floor_char_boundary(SHOWN)).unwrap_or_default();
        out.write_char('"')?;
        for character in shown.chars() {
            if matches!(character, '"' | '\\') {
                out.write_char('\\')?;
            }
            out.write_char(character)?;
        }
        out.write_str(if shown.len() < self.0.len() { "\"..." } else { "\"" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_text_ends_where_it_ends() {
        let quoted = |text: &str| Quoted(text).to_string();
        assert_eq!(quoted(r#"a" uid=0 "\"#), r#""a\" uid=0 \"\\""#);
        assert_eq!(quoted(&"x".repeat(300)), format!("\"{}\"...", "x".repeat(SHOWN)));
    }
}
