//! What a guest says, as text that cannot steer a terminal: control characters, line ends and marks
//! that turn the direction of writing are shown as escapes. For everything printed for a person; the
//! output of a command in the guest is the command's own and is passed on as it is.

use std::ffi::OsStr;
use std::fmt::{Arguments, Write as _};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::ffi::OsStrExt;

use serde_json::Value;

/// One line of text.
pub fn text(raw: &str) -> String {
    escaped(raw, |letter| escape(letter).is_some())
}

/// Longest line of a log or complaint, bytes: a guest has a say in many, and some of its texts are as long as its answers.
const LINE: usize = 2 * 1024;

/// One line for a log or on stderr; a longer text is cut.
pub fn log_line(raw: &str) -> String {
    let short = &raw[..raw.floor_char_boundary(LINE)];
    text(short) + if short.len() < raw.len() { "..." } else { "" }
}

/// Several lines: line ends stay.
pub fn lines(raw: &str) -> String {
    escaped(raw, |letter| letter != '\n' && escape(letter).is_some())
}

/// A file's name or path. Bytes that are not UTF-8 are shown too, and a backslash is doubled, so that
/// no two names look the same.
pub fn name(raw: impl AsRef<OsStr>) -> String {
    let mut shown = String::new();
    for chunk in raw.as_ref().as_bytes().utf8_chunks() {
        shown += &text(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            let _never = write!(shown, "\\x{byte:02x}");
        }
    }
    shown
}

/// JSON on one line. What has to be escaped is escaped as JSON has it, so the value stays the same.
pub fn json(value: &Value) -> String {
    json_escaped(&value.to_string())
}

/// JSON on many lines.
pub fn pretty_json(value: &Value) -> String {
    json_escaped(&format!("{value:#}"))
}

/// Prints bytes that a program may want to read as they are: they are escaped for a terminal only.
pub fn print_exact(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = stdout();
    if out.is_terminal() {
        return out.write_all(lines(&String::from_utf8_lossy(bytes)).as_bytes());
    }
    out.write_all(bytes)
}

/// Says on stderr what went wrong, or what somebody should know. Guests have a say in it, so it is cut.
pub fn complain(complaint: &str) {
    to_stderr(format_args!("mote-host: {}\n", log_line(&without_numbers(complaint))));
}

/// Writes to stderr. If nobody reads that, or its disk is full, only the exit code tells; std's macros would panic.
pub fn to_stderr(text: Arguments<'_>) {
    let _lost = stderr().write_fmt(text);
}

/// std writes the system's number behind its words, where it helps nobody.
pub fn without_numbers(complaint: &str) -> String {
    let mut rest = complaint;
    let mut shown = String::new();
    while let Some((before, after)) = rest.split_once(" (os error ") {
        let digits = after.trim_start_matches(|letter: char| letter.is_ascii_digit());
        shown += before;
        match digits.strip_prefix(')') {
            Some(after) => rest = after,
            None => {
                shown += " (os error ";
                rest = after;
            }
        }
    }
    shown + rest
}

fn escaped(raw: &str, is_bad: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(raw.len());
    for letter in raw.chars() {
        match escape(letter) {
            Some(text) if is_bad(letter) => shown += &text,
            _ => shown.push(letter),
        }
    }
    shown
}

fn json_escaped(raw: &str) -> String {
    let mut shown = String::with_capacity(raw.len());
    for letter in raw.chars() {
        // What is left of control characters below 0x20 are the line ends between members.
        if letter == '\n' || escape(letter).is_none() {
            shown.push(letter);
            continue;
        }
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _never = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

/// How a character is shown that is not itself shown.
fn escape(letter: char) -> Option<String> {
    Some(match letter {
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        _ if letter.is_ascii_control() => format!("\\x{:02x}", u32::from(letter)),
        // C1 controls, which some terminals obey, and what changes how the text around it looks:
        // directions, joiners, invisible spaces, separators, tags.
        '\u{80}'..='\u{9f}'
        | '\u{ad}'
        | '\u{61c}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{feff}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}' => format!("\\u{{{:x}}}", u32::from(letter)),
        _ => return None,
    })
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// For programs.
    Json,
    /// For people.
    Text,
}

impl From<bool> for Shape {
    fn from(is_json: bool) -> Self {
        if is_json { Self::Json } else { Self::Text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let hostile = "a\x1b[2J\x07\r\n\tb\u{7f}\u{9b}31m\u{202e}txt\u{2066}\u{200b}\u{feff}é世";
        let shown = text(hostile);
        assert_eq!(
            shown,
            "a\\x1b[2J\\x07\\r\\n\\tb\\x7f\\u{9b}31m\\u{202e}txt\\u{2066}\\u{200b}\\u{feff}é世"
        );
        assert!(shown.chars().all(|letter| escape(letter).is_none()));
        assert_eq!(lines("a\x1b\nb"), "a\\x1b\nb");
    }

    #[test]
    fn a_line_of_the_log_is_short_whatever_the_guest_says() {
        assert_eq!(log_line("a\nb"), "a\\nb");
        let long = log_line(&"\u{e9}\x1b".repeat(100_000));
        assert!(long.len() < 8 * LINE && long.ends_with("..."), "{}", long.len());
    }

    #[test]
    fn no_two_names_look_the_same() {
        let escape = OsStr::from_bytes(b"\x1b");
        assert_eq!((name(escape), name("\\x1b")), ("\\x1b".into(), "\\\\x1b".into()));
        assert_eq!(name(OsStr::from_bytes(b"a\xff\xc3b")), "a\\xff\\xc3b");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({"\u{202e}a\x1b\u{7f}": "\u{9b}\u{e0001}\n"});
        for shown in [json(&value), pretty_json(&value)] {
            assert!(shown.chars().all(|letter| letter == '\n' || escape(letter).is_none()));
            assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), value);
        }
    }

    #[test]
    fn the_systems_numbers_are_left_out() {
        let raw = "f1: No such file or directory (os error 2)";
        assert_eq!(without_numbers(raw), "f1: No such file or directory");
        assert_eq!(without_numbers("a (os error 2) b (os error x)"), "a b (os error x)");
    }
}
