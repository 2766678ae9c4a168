//! The stored inputs: a text file per target with one input per line, so that diffs are readable.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bstr::ByteVec;

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

pub fn kept(target: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(folder().join(target)).unwrap_or_default();
    unpack(&text).unwrap_or_else(|line| panic!("{target}: line {line} is not an input"))
}

/// Formats inputs as text: printable bytes unchanged, others as `\xNN`, newlines as `\n`.
pub fn pack(inputs: &[Vec<u8>]) -> String {
    let mut out = String::new();
    for input in inputs {
        for byte in input {
            match byte {
                b'\\' => out.push_str("\\\\"),
                b'\n' => out.push_str("\\n"),
                b'\r' => out.push_str("\\r"),
                b' '..=b'~' => out.push(char::from(*byte)),
                other => write!(out, "\\x{other:02x}").expect("a string"),
            }
        }
        out.push('\n');
    }
    out
}

/// Parses the text of [`pack`]. The error is the number of a line that [`pack`] would not write.
pub fn unpack(text: &str) -> Result<Vec<Vec<u8>>, usize> {
    let input = |(number, line): (usize, &str)| {
        let input = Vec::unescape_bytes(line);
        let again = pack(std::slice::from_ref(&input));
        if again.strip_suffix('\n') == Some(line) { Ok(input) } else { Err(number + 1) }
    };
    text.split_terminator('\n').enumerate().map(input).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_input_is_one_line_and_reads_back() {
        let all: Vec<u8> = (0..=255).collect();
        let inputs = [all, Vec::new(), b"\\x41\n\\".to_vec(), "\u{e9}".into()];
        let text = pack(&inputs);
        assert!(text.is_ascii() && text.lines().count() == inputs.len());
        assert_eq!(unpack(&text).unwrap(), inputs);
        for bad in ["\\", "\\x4", "\\q", "a\n\\xzz"] {
            assert!(unpack(bad).is_err(), "{bad}");
        }
    }
}
