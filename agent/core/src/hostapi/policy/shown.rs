//! Quotes untrusted text in messages.

use core::fmt::{self, Write};

/// Longest part of an untrusted text in a message, characters.
pub(super) const SHOWN: usize = 40;

/// Passes a text piece by piece.
type Text<'t> = &'t mut dyn FnMut(&mut dyn FnMut(&str));

/// Writes the start of a text in quotes, with control characters replaced by `?`.
pub(super) fn quoted(out: &mut fmt::Formatter<'_>, text: Text<'_>) -> fmt::Result {
    out.write_str("\"")?;
    let (mut left, mut written) = (SHOWN, Ok(()));
    text(&mut |piece| {
        for character in piece.chars().take(left) {
            let shown = if character.is_control() { '?' } else { character };
            written = written.and_then(|()| out.write_char(shown));
            left -= 1;
        }
    });
    written?;
    out.write_str(if left == 0 { "...\"" } else { "\"" })
}

/// Writes the accepted words.
pub(super) fn known(
    out: &mut fmt::Formatter<'_>,
    words: &mut dyn Iterator<Item = &'static str>,
) -> fmt::Result {
    let mut before = "; known: ";
    for word in words {
        out.write_str(before)?;
        out.write_str(word)?;
        before = ", ";
    }
    Ok(())
}
