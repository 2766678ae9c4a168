//! Log lines on stderr: one short fact each, with a level, readable on a console.

use std::fmt::{Arguments, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Longest line, bytes.
const LINE: usize = 512;

static DEBUG: AtomicBool = AtomicBool::new(false);

/// Switches debug lines on or off.
pub(crate) fn set_debug(on: bool) {
    DEBUG.store(on, Ordering::Relaxed);
}

/// Whether debug lines are written.
pub(crate) fn is_debug() -> bool {
    DEBUG.load(Ordering::Relaxed)
}

/// Why we end.
pub(crate) fn error(fact: Arguments<'_>) {
    line("error", '3', fact);
}

/// Something went wrong, and we go on.
pub(crate) fn warn(fact: Arguments<'_>) {
    line("warn", '4', fact);
}

/// What happened.
pub(crate) fn info(fact: Arguments<'_>) {
    line("info", '6', fact);
}

/// What happened, in detail.
pub(crate) fn debug(fact: Arguments<'_>) {
    if is_debug() {
        line("debug", '7', fact);
    }
}

fn line(level: &str, priority: char, fact: Arguments<'_>) {
    let mut out = Line(String::with_capacity(128));
    // sd-daemon(3): the journal reads the level from here.
    let prefix = if std::env::var_os("JOURNAL_STREAM").is_some() {
        write!(out, "<{priority}>{fact}")
    } else {
        write!(out, "mote: {level}: {fact}")
    };
    if prefix.is_err() {
        out.0.push_str("...");
    }
    out.0.push('\n');
    // One write, so that lines do not mix. A console that takes nothing loses the line.
    let _lost = rustix::io::write(std::io::stderr(), out.0.as_bytes());
}

/// Text without control characters, cut at [`LINE`].
struct Line(String);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            if self.0.len() >= LINE {
                return Err(std::fmt::Error);
            }
            if character.is_control() {
                // What a peer sent must not steer a terminal.
                self.0.extend(character.escape_default());
            } else {
                self.0.push(character);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_long_lines_cut() {
        let mut out = Line(String::new());
        write!(out, "a\x1b[2J\nb").unwrap();
        assert_eq!(out.0, "a\\u{1b}[2J\\nb");
        assert!(write!(out, "{}", "x".repeat(1000)).is_err());
        assert_eq!(out.0.len(), LINE);
    }
}
