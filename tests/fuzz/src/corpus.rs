//! The stored inputs: a text file per target with one input per line, so that diffs are readable.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bstr::ByteVec;

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

pub fn kept(target: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(folder().join(target)).unwrap_or_default();
    unpack(&text)
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

pub fn unpack(text: &str) -> Vec<Vec<u8>> {
    text.split_terminator('\n').map(Vec::unescape_bytes).collect()
}
