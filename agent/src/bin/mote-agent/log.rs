//! Log lines on stderr: one short fact each, with a level, readable on a console.

use std::fmt::{Arguments, Write};
use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

/// Longest line, bytes.
const LINE: usize = 512;

/// Lines that were not taken since the last one that was.
static LOST: AtomicU32 = AtomicU32::new(0);
/// Whether the last line was taken in part.
static TORN: AtomicBool = AtomicBool::new(false);
static OUTPUT: OnceLock<Output> = OnceLock::new();
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
    let lost = LOST.swap(0, Ordering::Relaxed);
    let mut text = String::new();
    if TORN.swap(false, Ordering::Relaxed) {
        text.push('\n');
    }
    if lost > 0 {
        let _infallible = writeln!(text, "mote: warn: {lost} lines lost");
    }
    text.push_str(&out.0);
    // One write, so that lines do not mix.
    match OUTPUT.get_or_init(Output::find).write(text.as_bytes()) {
        Ok(written) => TORN.store(written < text.len(), Ordering::Relaxed),
        Err(_) => _ = LOST.fetch_add(lost.saturating_add(1), Ordering::Relaxed),
    }
}

/// Where the lines go, and how to write there without ever waiting: a console that is stopped by ^S
/// or a pipe that nobody reads must not stop the agent.
enum Output {
    /// The journal.
    Socket,
    /// A pipe or terminal, opened again: the descriptor that we were given is shared with others,
    /// who may want theirs to block.
    Own(File),
    /// A file, or what cannot be opened again: asked first whether it takes anything. (A pipe has
    /// room for a whole line then, unless somebody else is faster.)
    Shared,
}

impl Output {
    fn find() -> Self {
        let Ok(status) = rustix::fs::fstat(std::io::stderr()) else { return Self::Shared };
        let kind = FileType::from_raw_mode(status.st_mode);
        if kind == FileType::Socket {
            return Self::Socket;
        }
        if kind != FileType::Fifo && kind != FileType::CharacterDevice {
            // Opened again, a file would be written from its front.
            return Self::Shared;
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let again = rustix::fs::open("/proc/self/fd/2", flags, Mode::empty());
        again.map_or(Self::Shared, |again| Self::Own(again.into()))
    }

    fn write(&self, text: &[u8]) -> Result<usize, Errno> {
        let stderr = std::io::stderr();
        match self {
            Self::Socket => {
                rustix::net::send(stderr, text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            Self::Own(file) => rustix::io::write(file, text),
            Self::Shared => {
                let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
                match poll(&mut ready, Some(&Timespec::default()))? {
                    0 => Err(Errno::AGAIN),
                    _ => rustix::io::write(&stderr, text),
                }
            }
        }
    }
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
