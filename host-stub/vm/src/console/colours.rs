//! Removes colours and other terminal sequences from a console's text.

const ESCAPE: char = '\x1b';
/// Longest sequence that is awaited, bytes.
const LONGEST: usize = 64;

/// Returns the text without them.
pub fn without_colours(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once(ESCAPE) {
        shown += before;
        rest = behind_sequence(behind).unwrap_or_default();
    }
    shown + rest
}

/// Returns the text after a sequence, or `None` if the sequence is incomplete.
fn behind_sequence(text: &str) -> Option<&str> {
    let mut letters = text.char_indices();
    let (_, kind) = letters.next()?;
    let end = match kind {
        '[' => letters.find(|(_, letter)| ('@'..='~').contains(letter)).map(|(at, _)| at + 1),
        // A title, up to BEL or to ESC and a backslash.
        ']' | 'P' | '^' | '_' => text
            .find(['\x07', '\n'])
            .map(|at| at + 1)
            .into_iter()
            .chain(text.find("\x1b\\").map(|at| at + 2))
            .min(),
        '(' | ')' | '#' | '%' => letters.next().map(|(at, letter)| at + letter.len_utf8()),
        other => Some(other.len_utf8()),
    };
    text.get(end?..)
}

/// The same for text that arrives in pieces: an incomplete sequence waits for its rest.
#[derive(Debug, Default)]
pub(super) struct Colours {
    cut: Vec<u8>,
}

impl Colours {
    /// Returns the text that is complete.
    pub(super) fn whole(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut bytes = std::mem::take(&mut self.cut);
        bytes.extend_from_slice(piece);
        let last = bytes.iter().rposition(|byte| *byte == b'\x1b');
        if let Some(at) = last.filter(|at| bytes.len() - at <= LONGEST) {
            let behind = String::from_utf8_lossy(bytes.get(at + 1..).unwrap_or_default());
            if behind_sequence(&behind).is_none() {
                self.cut = bytes.split_off(at);
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_only_colours_titles_and_cursor_moves() {
        for (text, shown) in [
            ("\x1b[0;1;31mFailed\x1b[0m to start", "Failed to start"),
            ("\x1b]0;title\x07a\x1b]0;b\x1b\\c\x1b(Bd\x1b7e", "acde"),
            ("[ 1.0] é [0m", "[ 1.0] é [0m"),
            ("\x1b[2J\x1b[1;1Hé", "é"),
            ("a\x1b", "a"),
            ("a\x1b[31", "a"),
            ("\x1b]0;never ended\nb", "b"),
        ] {
            assert_eq!(without_colours(text), shown, "{text:?}");
        }
    }

    #[test]
    fn waits_briefly_for_the_rest_of_an_escape() {
        let mut colours = Colours::default();
        assert_eq!(colours.whole(b"a\x1b[0;1"), b"a");
        assert_eq!(colours.whole(b";31mb\x1b"), b"\x1b[0;1;31mb");
        assert_eq!(colours.whole(b"[0mc"), b"\x1b[0mc");
        let long = [b"\x1b[".as_slice(), &[b'1'; LONGEST]].concat();
        assert_eq!(colours.whole(&long), long);
    }
}
