//! The control socket's words (P§4.1): the terminal's size, and signals.

use super::Size;
use crate::json::{self, is_text, text};

/// What the host asks for while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// The terminal has another size.
    Resize(Size),
    /// Send this signal to the process.
    Signal(i32),
}

/// Reads one message; `None` is one that means nothing, which is ignored.
#[must_use]
pub fn control(message: &[u8]) -> Option<Control> {
    let member = |object, key| json::member(object, key).ok().flatten();
    let command = member(message, "command")?;
    if is_text(command, "window-resize") {
        let arguments = member(message, "args")?;
        let side = |key| side(member(arguments, key)?);
        return Some(Control::Resize(Size { width: side("width")?, height: side("height")? }));
    }
    if is_text(command, "signal") {
        let raw = core::str::from_utf8(member(message, "signal")?).ok()?;
        return raw.parse().ok().filter(|signal| (1..=64).contains(signal)).map(Control::Signal);
    }
    None
}

/// A length in characters: a number in a string, or without one.
fn side(raw: &[u8]) -> Option<u16> {
    let mut buffer = [0; 8];
    let digits = match text(raw, &mut buffer) {
        Ok(digits) => digits,
        Err(_) => core::str::from_utf8(raw).ok()?,
    };
    digits.parse().ok().filter(|side| *side > 0)
}
