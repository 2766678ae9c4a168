//! The audit log: a line at level info for each action of the host. It never contains secrets,
//! environments or written data.

use std::fmt::{self, Arguments, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mote_core::rate::TokenBucket;

use crate::runtime::{log, now, sleep};

/// Burst of the host's actions: as many as a script performs in a row.
const BURST: u32 = 200;
/// Interval between actions after the burst. A command logs two lines, so at most 200 per second.
const REFILL: Duration = Duration::from_millis(10);
/// Burst of an SFTP session's changes: a tree of a few thousand files.
const CHANGES: u32 = 5_000;
/// Interval between changes after the burst.
const CHANGED: Duration = Duration::from_millis(5);
/// Maximum line length, in bytes: all texts escaped. Below `PIPE_BUF`, so that lines do not mix.
const LINE: usize = 3072;
/// Number of bytes of a host's text to show at each end. Those in between are only counted.
const ENDS: usize = 128;

/// The token bucket of the agent.
static CALLS: Mutex<TokenBucket> = Mutex::new(TokenBucket::new(BURST, REFILL));
/// The token bucket of an SFTP session, in its own process.
static SESSION: Mutex<TokenBucket> = Mutex::new(TokenBucket::new(CHANGES, CHANGED));

/// Returns how long to wait before an action of the host may be logged, and takes the token.
fn due(bucket: &Mutex<TokenBucket>) -> Duration {
    bucket.lock().unwrap_or_else(PoisonError::into_inner).take(now())
}

/// Waits until an action of the host may be logged: slows the host down rather than dropping lines.
pub(crate) async fn turn() {
    let due = due(&CALLS);
    if !due.is_zero() {
        sleep(due).await;
    }
}

/// Waits, in the process of an SFTP session, until a change may be logged.
pub(crate) fn wait_turn() {
    std::thread::sleep(due(&SESSION));
}

pub(crate) fn note(act: Arguments<'_>) {
    log::line_of("info", '6', LINE, format_args!("audit: {act}"));
}

/// Quotes a text of the host, so that it cannot imitate the rest of the line. Shortens a long text
/// to both ends and the number of bytes between. The log escapes control characters.
pub(crate) struct Quoted<'t>(pub(crate) &'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        if text.len() <= 2 * ENDS {
            return quoted(out, text);
        }
        let (head, rest) = text.split_at(text.floor_char_boundary(ENDS));
        let (left_out, tail) = rest.split_at(rest.ceil_char_boundary(rest.len() - ENDS));
        quoted(out, head)?;
        write!(out, "...{}...", left_out.len())?;
        quoted(out, tail)
    }
}

fn quoted(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    out.write_char('"')?;
    for character in text.chars() {
        if matches!(character, '"' | '\\') {
            out.write_char('\\')?;
        }
        out.write_char(character)?;
    }
    out.write_char('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_cannot_imitate_its_end() {
        let quoted = |text: &str| Quoted(text).to_string();
        assert_eq!(quoted(r#"a" uid=0 "\"#), r#""a\" uid=0 \"\\""#);
        let (a, b) = ("a".repeat(ENDS), "b".repeat(ENDS));
        assert_eq!(quoted(&format!("{a}{b}")), format!("\"{a}{b}\""));
        assert_eq!(quoted(&format!("{a}\"\"{b}")), format!("\"{a}\"...2...\"{b}\""));
        // Multi-byte characters stay whole.
        let odd = format!("{}\u{20ac}{}\u{20ac}{}", &a[1..], &a, &b[1..]);
        assert_eq!(quoted(&odd), format!("\"{}\"...134...\"{}\"", &a[1..], &b[1..]));
    }
}
