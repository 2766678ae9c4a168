//! Messages of the control socket (P§4.1): the terminal's size, and signals.

use super::Size;
use crate::json::Value;

/// A request of the host while a command runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Resize(Size),
    /// Send the signal of this number to the process.
    Signal(i32),
}

/// Reads one message; returns `None` if it is invalid or unknown, and to be ignored.
pub fn control(message: &[u8]) -> Option<Control> {
    let message = Value::parse(message).ok()?;
    let [command, arguments, signal] = message.fields(["command", "args", "signal"]).ok()?;
    let command = command?;
    if command.is("window-resize") {
        let [width, height] = arguments?.fields(["width", "height"]).ok()?;
        return Some(Control::Resize(Size { width: side(width?)?, height: side(height?)? }));
    }
    if command.is("signal") {
        let signal = signal?.number().ok();
        return signal.filter(|signal| (1..=64).contains(signal)).map(Control::Signal);
    }
    None
}

/// Reads a width or height in characters: a number, or a string with one.
fn side(value: Value<'_>) -> Option<u16> {
    let mut buffer = [0; 8];
    let side = match value.text(&mut buffer) {
        Ok(digits) => digits.parse().ok(),
        Err(_) => value.number().ok(),
    };
    side.filter(|side| *side > 0)
}
