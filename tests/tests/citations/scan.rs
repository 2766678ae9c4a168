//! Citations in a text, also in comments of any kind and across the ends of their lines.

use std::fmt;

/// What is cited. The numbers index the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Shape {
    /// The wire protocol, by chapter.
    Protocol,
    /// The design decisions, by design.
    Decisions,
    /// The complaints, by item.
    Notes,
}

impl Shape {
    const ALL: [Self; 3] = [Self::Protocol, Self::Decisions, Self::Notes];

    /// What stands before the number, in small letters.
    fn mark(self) -> &'static str {
        match self {
            Self::Protocol => "p\u{a7}",
            Self::Decisions => concat!("decis", "ions "),
            Self::Notes => concat!("compl", "aint "),
        }
    }
}

/// One number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Citation {
    pub(crate) shape: Shape,
    pub(crate) number: String,
    /// From 1 on.
    pub(crate) line: usize,
}

impl fmt::Display for Citation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shape {
            Shape::Protocol => write!(out, "P\u{a7}{}", self.number),
            Shape::Decisions => write!(out, "decisions \u{a7}{}", self.number),
            Shape::Notes => write!(out, "{}{}", self.shape.mark(), self.number),
        }
    }
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) citations: Vec<Citation>,
    /// Marks without a number: line and text.
    pub(crate) malformed: Vec<(usize, String)>,
}

/// A text as one line, without indentation and marks of comments, and where each of its lines begins.
struct Joined {
    text: String,
    starts: Vec<usize>,
}

fn join(text: &str) -> Joined {
    let mut joined = Joined { text: String::with_capacity(text.len()), starts: Vec::new() };
    for line in text.lines() {
        joined.starts.push(joined.text.len());
        let line = line.trim_start();
        let marks = ["//!", "///", "//", "#", "*"];
        let line = marks.iter().find_map(|mark| line.strip_prefix(mark)).unwrap_or(line);
        joined.text.push_str(line.trim());
        joined.text.push(' ');
    }
    joined
}

impl Joined {
    fn line(&self, at: usize) -> usize {
        self.starts.partition_point(|start| *start <= at)
    }
}

/// All citations of a text.
pub(crate) fn citations(text: &str) -> Found {
    let joined = join(text);
    // Of the same length, as only ASCII changes.
    let small = joined.text.to_ascii_lowercase();
    let mut found = Found::default();
    for shape in Shape::ALL {
        for (at, mark) in small.match_indices(shape.mark()) {
            let line = joined.line(at);
            let rest = &joined.text[at + mark.len()..];
            match numbers(shape, rest) {
                Numbers::Some(all) => {
                    let cited = all.into_iter().map(|number| Citation { shape, number, line });
                    found.citations.extend(cited);
                }
                Numbers::Placeholder => {}
                Numbers::None => {
                    let text: String = joined.text[at..].chars().take(30).collect();
                    found.malformed.push((line, format!("{text}: a citation without a number")));
                }
            }
        }
    }
    found
}

enum Numbers {
    Some(Vec<String>),
    /// The notation is spoken of, or it is another word.
    Placeholder,
    None,
}

/// The numbers behind a mark: one, a range, or a list.
fn numbers(shape: Shape, rest: &str) -> Numbers {
    let rest = match (shape, rest.strip_prefix('\u{a7}')) {
        (Shape::Decisions, Some(rest)) => rest,
        // Those that grow.
        (Shape::Decisions, None) => return Numbers::Placeholder,
        (Shape::Protocol | Shape::Notes, _) => rest.trim_start(),
    };
    let mut letters = rest.chars();
    if matches!(letters.next(), Some('n' | 'N'))
        && !letters.next().is_some_and(char::is_alphanumeric)
    {
        return Numbers::Placeholder;
    }
    let Some((first, mut rest)) = number(rest) else { return Numbers::None };
    let mut all = vec![first.to_owned()];
    if shape == Shape::Notes {
        return Numbers::Some(all);
    }
    loop {
        let last = all.last().cloned().unwrap_or_default();
        if let Some((end, after)) = rest.strip_prefix(['-', '\u{2013}']).and_then(number) {
            all.extend(range(&last, end));
            rest = after;
        } else if let Some((next, after)) = further(rest) {
            all.push(next.to_owned());
            rest = after;
        } else {
            return Numbers::Some(all);
        }
    }
}

/// Another number of a list: with its sign, or with one dot, as a section has.
fn further(rest: &str) -> Option<(&str, &str)> {
    let rest = [", ", " and ", " or "].iter().find_map(|word| rest.strip_prefix(word))?;
    match rest.strip_prefix('\u{a7}') {
        Some(rest) => number(rest),
        None => number(rest).filter(|(number, _)| number.matches('.').count() == 1),
    }
}

/// What is between two sections of one chapter, and the second of them.
fn range(first: &str, last: &str) -> Vec<String> {
    let split = |number: &str| {
        let (chapter, section) = number.rsplit_once('.')?;
        Some((chapter.to_owned(), section.parse::<u32>().ok()?))
    };
    match (split(first), split(last)) {
        (Some((chapter, from)), Some((same, to))) if chapter == same && from < to => {
            (from + 1..=to).map(|section| format!("{chapter}.{section}")).collect()
        }
        _ => vec![last.to_owned()],
    }
}

/// Digits, with dots between them.
fn number(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, _) = text.split_at(end.unwrap_or(text.len()));
    let number = number.trim_end_matches('.');
    let fits = number.split('.').all(|part| !part.is_empty());
    fits.then(|| (number, &text[number.len()..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `@` is the sign, `%` the mark of complaints.
    fn seen(text: &str) -> Vec<String> {
        let text = text.replace('@', "\u{a7}").replace('%', Shape::Notes.mark());
        let found = citations(&text);
        let malformed = found.malformed.iter().map(|(line, _)| format!("{line}: ?"));
        let cited = found.citations.iter().map(|one| format!("{}: {one}", one.line));
        cited.chain(malformed).map(|text| text.replace('\u{a7}', "@")).collect()
    }

    #[test]
    fn numbers_end_where_they_end() {
        assert_eq!(seen("as P@4.1. Then (P@9.12), P@3"), ["1: P@4.1", "1: P@9.12", "1: P@3"]);
        assert_eq!(seen("(P@4.1, which 5.0.2 has, 1.5 s)"), ["1: P@4.1"]);
        assert_eq!(seen("P@4.1, 200 and 3"), ["1: P@4.1"]);
    }

    #[test]
    fn lists_and_ranges_cite_each_number() {
        assert_eq!(seen("P@1.8, 4.3 and P@2"), ["1: P@1.8", "1: P@4.3", "1: P@2"]);
        assert_eq!(seen("P@4.2-4.4"), ["1: P@4.2", "1: P@4.3", "1: P@4.4"]);
        assert_eq!(seen("P@1.1, @2 or 3.4"), ["1: P@1.1", "1: P@2", "1: P@3.4"]);
    }

    #[test]
    fn the_end_of_a_comments_line_is_no_end() {
        assert_eq!(
            seen("\n    /// See (%\n    /// 30), P@\n    // 5"),
            ["3: P@5", "2: complaint 30"]
        );
        assert_eq!(seen("# %7"), ["1: complaint 7"]);
    }

    #[test]
    fn other_words_are_none_and_a_mark_without_a_number_is_wrong() {
        assert_eq!(seen("(decisions @2), decisions for failure, P@n, % N"), ["1: decisions @2"]);
        assert_eq!(seen("P@x\n% of mine\nRFC 9112 @6.3"), ["1: ?", "2: ?"]);
    }
}
