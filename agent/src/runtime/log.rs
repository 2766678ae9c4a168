//! Log lines on standard error, one fact each, with a level. Writing never blocks.

use std::fmt::{Arguments, Write};
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::sys::{self, file};

pub(crate) mod audit;
pub(crate) mod frozen;

/// Maximum length of a line, in bytes. Longer lines are truncated.
const LINE: usize = 512;

/// Maximum size of pending output, in bytes, while it cannot be written because the log's reader
/// waits for a frozen file system.
const KEPT: usize = 16 * 1024;

static WAITING: Mutex<Waiting> = Mutex::new(Waiting { text: Vec::new(), lost: 0 });
/// The output, chosen at the first line.
static OUTPUT: OnceLock<Output> = OnceLock::new();
static DEBUG: AtomicBool = AtomicBool::new(false);

pub(crate) fn set_debug(on: bool) {
    DEBUG.store(on, Ordering::Relaxed);
}

pub(crate) fn is_debug() -> bool {
    DEBUG.load(Ordering::Relaxed)
}

/// Logs the reason why the agent ends.
pub(crate) fn error(fact: Arguments<'_>) {
    line("error", '3', fact);
}

/// Logs an error after which the agent continues.
pub(crate) fn warn(fact: Arguments<'_>) {
    line("warn", '4', fact);
}

/// Logs an event of normal operation.
pub(crate) fn info(fact: Arguments<'_>) {
    line("info", '6', fact);
}

/// Logs a detail, with `--debug` only.
pub(crate) fn debug(fact: Arguments<'_>) {
    if is_debug() {
        line("debug", '7', fact);
    }
}

fn line(level: &str, priority: char, fact: Arguments<'_>) {
    line_of(level, priority, LINE, fact);
}

/// A line with a limited length.
fn line_of(level: &str, priority: char, most: usize, fact: Arguments<'_>) {
    let out = if sys::variable(c"JOURNAL_STREAM").is_some() {
        // The journal reads the level from this prefix (sd-daemon(3)).
        printable(most, false, format_args!("<{priority}>{fact}"))
    } else {
        printable(most, false, format_args!("mote: {level}: {fact}"))
    };
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    waiting.write();
    waiting.add(&out);
    waiting.write();
}

/// Writes as much pending output as possible without blocking.
pub(crate) fn catch_up() {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner).write();
}

struct Waiting {
    /// The pending lines. A part of the first one may have been written.
    text: Vec<u8>,
    /// Number of lines dropped because the limit was reached.
    lost: u32,
}

impl Waiting {
    fn add(&mut self, line: &str) {
        if self.text.len() + line.len() > KEPT {
            self.lost = self.lost.saturating_add(1);
            return;
        }
        if self.lost > 0 {
            let lost = format!("mote: warn: {} lines lost\n", self.lost);
            self.text.extend_from_slice(lost.as_bytes());
            self.lost = 0;
        }
        self.text.extend_from_slice(line.as_bytes());
        self.text.push(b'\n');
    }

    /// Writes as much as possible, each line in one call, so that processes' lines do not mix.
    fn write(&mut self) {
        while let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
            let line = self.text.get(..=end).unwrap_or_default();
            match OUTPUT.get_or_init(Output::find).write(line) {
                Ok(written) if written > 0 => drop(self.text.drain(..written)),
                Ok(_) | Err(_) => break,
            }
        }
    }
}

/// How to write to standard error without blocking: a console stopped by ^S or an unread pipe must
/// not stop the agent.
enum Output {
    /// A socket, such as the journal's: write with `MSG_DONTWAIT`.
    Socket,
    /// A pipe or terminal: open it again with `O_NONBLOCK`, because other processes share the
    /// original descriptor and may need it to block.
    Own(File),
    /// A file, or an output that cannot be opened again: poll before each write. A pipe that polls
    /// writable has room for a whole line, unless another process writes first.
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
            // Writes to a file that is opened again would begin at its start.
            return Self::Shared;
        }
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        file::open("/proc/self/fd/2".as_ref(), flags).map_or(Self::Shared, Self::Own)
    }

    /// Writes without blocking; returns the number of bytes written.
    fn write(&self, text: &[u8]) -> Result<usize, Errno> {
        let stderr = std::io::stderr();
        match self {
            Self::Socket => {
                rustix::net::send(stderr, text, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            }
            Self::Own(file) => rustix::io::write(file, text),
            Self::Shared => {
                if frozen::is_frozen() {
                    return Err(Errno::AGAIN);
                }
                let mut ready = [PollFd::new(&stderr, PollFlags::OUT)];
                match poll(&mut ready, Some(&Timespec::default()))? {
                    0 => Err(Errno::AGAIN),
                    _ => rustix::io::write(&stderr, text),
                }
            }
        }
    }
}

/// Untrusted text for a log or a terminal: escapes terminal control characters, and cuts after
/// `most` bytes. With `lines` it keeps line ends.
pub(crate) fn printable(most: usize, lines: bool, text: Arguments<'_>) -> String {
    let mut out = Printable { text: String::with_capacity(128), most, lines };
    if out.write_fmt(text).is_err() {
        out.text.push_str("...");
    }
    out.text
}

struct Printable {
    text: String,
    most: usize,
    lines: bool,
}

impl Write for Printable {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            if self.text.len() >= self.most {
                return Err(std::fmt::Error);
            }
            if is_hostile(character) && !(self.lines && character == '\n') {
                self.text.extend(character.escape_default());
            } else {
                self.text.push(character);
            }
        }
        Ok(())
    }
}

/// Returns whether a character is a control character, is invisible, or changes the text direction.
fn is_hostile(character: char) -> bool {
    // Check the most frequent case first.
    if matches!(character, ' '..='~') {
        return false;
    }
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use proptest::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn counts_dropped_lines_and_reports_them_later() {
        let mut waiting = Waiting { text: Vec::new(), lost: 0 };
        let line = "x".repeat(KEPT / 4);
        (0..9).for_each(|_| waiting.add(&line));
        assert!(waiting.text.len() <= KEPT && waiting.lost == 6, "{}", waiting.lost);
        drop(waiting.text.drain(..=line.len()));
        waiting.add("next");
        let text = String::from_utf8(waiting.text).unwrap();
        assert!(text.ends_with("x\nmote: warn: 6 lines lost\nnext\n"), "{text}");
        assert_eq!(text.lines().count(), 4);
    }

    proptest! {
        #[test]
        fn escapes_all_terminal_control_characters(text in "(\\PC|[\\x00-\\x1f\\x7f-\\u{9f}\\u{202a}-\\u{2069}]){0,300}") {
            let line = printable(LINE, false, format_args!("{text}{text}"));
            prop_assert!(!line.contains(is_hostile), "{:?}", line);
            // It may exceed the limit by one escaped character and the dots.
            prop_assert!(line.len() < LINE + 9 + 3, "{}", line.len());
            let lines = printable(usize::MAX, true, format_args!("{text}"));
            prop_assert!(!lines.contains(|letter| letter != '\n' && is_hostile(letter)));
            prop_assert_eq!(lines.matches('\n').count(), text.matches('\n').count());
        }
    }
}
