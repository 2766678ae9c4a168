//! Progress of a transfer, shown on stderr if that is a terminal.

use indicatif::{ProgressBar, ProgressStyle};

use crate::common::printable;

/// Returns the bar of one transfer. Length 0 means unknown, as for files in /proc.
pub(crate) fn bar(name: &str, length: u64) -> ProgressBar {
    // A `wide` element gets the remaining columns and is truncated, so that no line wraps.
    let (bar, template) = match length {
        0 => (ProgressBar::no_length(), "{wide_msg} {bytes:>10}"),
        _ => (ProgressBar::new(length), "{wide_msg} {percent:>3}% {eta:>4}"),
    };
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar.set_message(printable::text(name));
    bar
}
