//! Errors of the YAML reader.

use core::fmt;

/// Longest key, bytes, as in YAML 1.2 §7.4. Beyond it: [`Why::LongKey`].
pub(super) const KEY: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YamlError {
    pub line: u32,
    pub why: Why,
}

/// Kinds of errors in a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    Encoding,
    /// A control character, or a character that ends lines in some parsers only.
    Control,
    /// A YAML feature that is not supported; carries its name.
    Unsupported(&'static str),
    Indent,
    /// Text that is not valid in its position.
    Unexpected,
    /// A bracket or quote without its end.
    Truncated,
    Escape,
    /// Nested deeper than [`super::DEPTH`].
    TooDeep,
    LongKey,
    /// Valid YAML, but not what the caller expects; carries the expectation.
    Shape(&'static str),
}

impl fmt::Display for YamlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "line {}: ", self.line)?;
        out.write_str(match self.why {
            Why::Encoding => "not UTF-8",
            Why::Control => "a control character",
            Why::Unsupported(what) => return write!(out, "{what} is not supported"),
            Why::Indent => "wrong indentation",
            Why::Unexpected => "unexpected text",
            Why::Truncated => "unclosed bracket or quote",
            Why::Escape => "a bad escape",
            Why::TooDeep => "nested too deeply",
            Why::LongKey => "a key is too long",
            Why::Shape(what) => return write!(out, "{what} expected"),
        })
    }
}
