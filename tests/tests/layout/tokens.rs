//! Rust's source as tokens: what is in comments and literals cannot be mistaken for code.

/// What a token is. Its text is enough for everything else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A name or a keyword.
    Word,
    /// `::`, or one character.
    Sign,
    /// A string, character, number or lifetime.
    Literal,
}

/// One token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// From 1 on.
    pub(crate) line: usize,
}

impl Token<'_> {
    /// Whether it is this word or sign.
    pub(crate) fn is(self, text: &str) -> bool {
        self.kind != Kind::Literal && self.text == text
    }
}

/// All tokens of a file.
pub(crate) fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut all, mut line, mut rest) = (Vec::new(), 1, text);
    while let Some(first) = rest.chars().next() {
        let (kind, length) = next(rest, first);
        let (token, behind) = rest.split_at(length);
        if let Some(kind) = kind {
            all.push(Token { kind, text: token, line });
        }
        line += token.matches('\n').count();
        rest = behind;
    }
    all
}

/// Kind and length in bytes of what comes first; no kind for spaces and comments.
fn next(rest: &str, first: char) -> (Option<Kind>, usize) {
    let literal = |length: usize| (Some(Kind::Literal), length.min(rest.len()));
    if let Some(length) = comment(rest) {
        return (None, length);
    }
    if let Some(length) = raw(rest) {
        return literal(length);
    }
    match first {
        _ if first.is_whitespace() => (None, first.len_utf8()),
        '"' => literal(quoted(rest, '"')),
        '\'' => literal(character_or_lifetime(rest)),
        _ if first.is_ascii_digit() => literal(number(rest)),
        _ if is_word(first) => {
            let length = word(rest);
            // b"..", c"..", b'.': a letter that belongs to a literal.
            match (&rest[..length], rest[length..].chars().next()) {
                ("b" | "c", Some('"')) => literal(length + quoted(&rest[length..], '"')),
                ("b", Some('\'')) => literal(length + quoted(&rest[length..], '\'')),
                _ => (Some(Kind::Word), length),
            }
        }
        _ if rest.starts_with("::") => (Some(Kind::Sign), 2),
        _ => (Some(Kind::Sign), first.len_utf8()),
    }
}

fn is_word(letter: char) -> bool {
    letter == '_' || letter.is_alphanumeric()
}

fn word(rest: &str) -> usize {
    rest.find(|letter| !is_word(letter)).unwrap_or(rest.len())
}

/// Digits, suffix and exponent; a point only if digits follow, as `1..2` and `1.max(2)` have none.
fn number(rest: &str) -> usize {
    let whole = word(rest);
    match rest[whole..].strip_prefix('.') {
        Some(more) if more.starts_with(|letter: char| letter.is_ascii_digit()) => {
            whole + 1 + word(more)
        }
        _ => whole,
    }
}

/// `//` to the end of the line, or `/* */`, which nests.
fn comment(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    }
    rest.strip_prefix("/*")?;
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let step = match rest.get(at..at + 2) {
            Some("/*") => {
                depth += 1;
                2
            }
            Some("*/") => {
                depth -= 1;
                2
            }
            _ => rest[at..].chars().next().map_or(1, char::len_utf8),
        };
        at += step;
        if depth == 0 {
            break;
        }
    }
    Some(at)
}

/// `r".."`, `r#".."#`, also with `b` or `c` in front; not `r#name`.
fn raw(rest: &str) -> Option<usize> {
    let marks = ["br", "cr", "r"].iter().find_map(|prefix| rest.strip_prefix(prefix))?;
    let hashes = marks.find(|letter| letter != '#')?;
    let body = marks[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let closes = body.find(&end).map_or(body.len(), |at| at + end.len());
    Some(rest.len() - body.len() + closes)
}

/// Up to the closing mark, escapes skipped.
fn quoted(rest: &str, mark: char) -> usize {
    let mut letters = rest.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            letters.next();
        } else if letter == mark {
            return at + 1;
        }
    }
    rest.len()
}

fn character_or_lifetime(rest: &str) -> usize {
    let mut letters = rest.chars().skip(1);
    match (letters.next(), letters.next()) {
        (Some('\\'), _) | (_, Some('\'')) => quoted(rest, '\''),
        _ => 1 + word(&rest[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<&str> {
        tokens(text).iter().filter(|one| one.kind == Kind::Word).map(|one| one.text).collect()
    }

    #[test]
    fn comments_and_literals_are_no_words() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(
            words(r##"a "b\" c" d r#"e " f"# g b"h" br"i" b'j' b k"##),
            ["a", "d", "g", "b", "k"]
        );
        assert_eq!(words(r"'a' b '\'' c 'd: loop '\u{41}' e"), ["b", "c", "loop", "e"]);
        assert_eq!(words("1.5e3 2.max 0x1f_u8 r#type"), ["max", "r", "type"]);
        assert_eq!(words("\"never closed a"), [""; 0]);
    }

    #[test]
    fn lines_are_counted_through_everything() {
        let text = "a\n\"x\ny\" /*\n*/ b\n::c";
        let lines: Vec<_> = tokens(text).iter().map(|one| (one.text, one.line)).collect();
        assert_eq!(lines, [("a", 1), ("\"x\ny\"", 2), ("b", 4), ("::", 5), ("c", 5)]);
    }
}
