//! Text for people and shells. Text from a guest is printed in a form that cannot control a
//! terminal: control characters, line ends and characters that change the writing direction are
//! escaped. The output of a command in the guest is passed on unchanged.

use std::ffi::OsStr;
use std::fmt::{Arguments, Write as _};
use std::io::{IsTerminal, Write, stderr, stdout};
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Command, ValueEnum};
use serde_json::Value;

pub fn text(raw: &str) -> String {
    raw.chars().map(|letter| escape(letter).unwrap_or_else(|| letter.into())).collect()
}

/// Maximum length of a line in a log or error message, in bytes. Guests influence many of them.
const LINE: usize = 2 * 1024;

/// Returns one line for a log or stderr, shortened if necessary.
pub fn log_line(raw: &str) -> String {
    let short = &raw[..raw.floor_char_boundary(LINE)];
    text(short) + if short.len() < raw.len() { "..." } else { "" }
}

pub fn lines(raw: &str) -> String {
    raw.split('\n').map(text).collect::<Vec<_>>().join("\n")
}

/// Returns a file name or path. Bytes that are not UTF-8 are escaped and backslashes doubled, so
/// that no two names look the same.
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

/// Returns JSON on one line. Escapes are JSON's, so the value stays the same.
pub fn json(value: &Value) -> String {
    json_escaped(&value.to_string())
}

pub fn pretty_json(value: &Value) -> String {
    json_escaped(&format!("{value:#}"))
}

/// Prints bytes for a program. They are escaped only if stdout is a terminal.
pub fn print_exact(bytes: &[u8]) -> std::io::Result<()> {
    let mut out = stdout();
    if out.is_terminal() {
        return out.write_all(lines(&String::from_utf8_lossy(bytes)).as_bytes());
    }
    out.write_all(bytes)
}

/// Prints an error or warning on stderr, shortened because guests influence its text.
pub fn complain(complaint: &str) {
    to_stderr(format_args!("mote-host: {}\n", log_line(&without_numbers(complaint))));
}

/// Writes to stderr. A failure, such as a closed pipe or full disk, is ignored; std's macros would
/// panic.
pub fn to_stderr(text: Arguments<'_>) {
    let _lost = stderr().write_fmt(text);
}

/// Removes the system's error number that std writes after the text.
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

fn json_escaped(raw: &str) -> String {
    let mut shown = String::with_capacity(raw.len());
    for letter in raw.chars() {
        // Below 0x20, the only remaining control characters are the line ends between members.
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

fn escape(letter: char) -> Option<String> {
    Some(match letter {
        '\n' => "\\n".into(),
        '\r' => "\\r".into(),
        '\t' => "\\t".into(),
        _ if letter.is_ascii_control() => format!("\\x{:02x}", u32::from(letter)),
        // C1 controls, which some terminals obey, and characters that change how the text around
        // them looks: directions, joiners, invisible spaces, separators, tags.
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

/// Formats a duration with its two largest units.
pub fn duration(time: Duration) -> String {
    let (seconds, millis) = (time.as_secs(), time.subsec_millis());
    let (hours, minutes) = (seconds / 3600, seconds / 60);
    match seconds {
        0 => format!("{millis} ms"),
        1..10 => format!("{seconds}.{} s", millis / 100),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
    }
}

pub fn quoted(word: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./,=:+@%".contains(letter);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns a value's name on the command line.
pub fn word(value: impl ValueEnum) -> String {
    value.to_possible_value().map_or(String::new(), |value| value.get_name().to_owned())
}

pub fn pair(text: &str) -> Result<(String, String)> {
    let (key, value) = text.split_once('=').with_context(|| format!("{text} is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Returns the arguments of a command line, for the unit tests of these crates.
pub fn parsed<T: Args>(line: &str) -> Result<T> {
    let command = T::augment_args(Command::new("mote-host").no_binary_name(true));
    Ok(T::from_arg_matches(&command.try_get_matches_from(line.split_whitespace())?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_all_terminal_control_characters() {
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
    fn limits_the_length_of_log_lines() {
        assert_eq!(log_line("a\nb"), "a\\nb");
        let long = log_line(&"\u{e9}\x1b".repeat(100_000));
        assert!(long.len() < 8 * LINE && long.ends_with("..."), "{}", long.len());
    }

    #[test]
    fn different_names_look_different() {
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
    fn omits_the_systems_error_numbers() {
        let raw = "f1: No such file or directory (os error 2)";
        assert_eq!(without_numbers(raw), "f1: No such file or directory");
        assert_eq!(without_numbers("a (os error 2) b (os error x)"), "a b (os error x)");
    }

    #[test]
    fn times_have_units() {
        for (millis, shown) in [
            (7, "7 ms"),
            (1250, "1.2 s"),
            (59_900, "59 s"),
            (61_000, "1 min 1 s"),
            (7_260_000, "2 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), shown);
        }
    }

    #[test]
    fn quotes_only_words_that_need_it() {
        assert_eq!(quoted("/a/b-c_d.e,f=g:h@i+j%k"), "/a/b-c_d.e,f=g:h@i+j%k");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's a"), "'it'\\''s a'");
    }
}
