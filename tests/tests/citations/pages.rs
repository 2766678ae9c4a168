//! What can be cited: numbered headings, and the items of one numbered list.

use std::collections::BTreeSet;
use std::path::Path;

use crate::scan::Shape;

/// The page whose headings are designs, and the one whose list is cited by item.
const DECISIONS: &str = "decisions.md";
const COMPLAINTS: &str = "complaints.md";
/// A level of headings is this sign more.
const HEADING: char = '#';

/// All numbers.
#[derive(Debug, Default)]
pub(crate) struct Headings {
    known: BTreeSet<(Shape, String)>,
    /// Numbers that stand twice, and gaps in the list.
    pub(crate) troubles: Vec<String>,
}

impl Headings {
    pub(crate) fn has(&self, shape: Shape, number: &str) -> bool {
        self.known.contains(&(shape, number.to_owned()))
    }

    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    fn add(&mut self, path: &Path, line: usize, shape: Shape, number: &str) {
        if !self.known.insert((shape, number.to_owned())) {
            self.troubles.push(format!("{}:{line}: {number} stands twice", path.display()));
        }
    }
}

/// The lines of a page that are not within a fence, from 1 on.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The number a heading begins with.
fn of_heading(line: &str) -> Option<&str> {
    let number = line.strip_prefix(HEADING)?.trim_start_matches(HEADING).strip_prefix(' ')?;
    let number = number.split(' ').next()?;
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    number.split('.').all(digits).then_some(number)
}

/// Reads the pages.
pub(crate) fn headings<'p>(pages: impl Iterator<Item = (&'p Path, &'p str)>) -> Headings {
    let mut headings = Headings::default();
    for (path, text) in pages {
        if path.ends_with(COMPLAINTS) {
            items(&mut headings, path, text);
            continue;
        }
        let shape = if path.ends_with(DECISIONS) { Shape::Decisions } else { Shape::Protocol };
        for (line, text) in lines(text) {
            if let Some(number) = of_heading(text) {
                headings.add(path, line, shape, number);
            }
        }
    }
    headings
}

/// The items of the list: each the next of the one before, as a renderer would number them.
fn items(headings: &mut Headings, path: &Path, text: &str) {
    let mut last = 0;
    for (line, text) in lines(text) {
        let Some((number, _)) = text.split_once(". ") else { continue };
        let Ok(value) = number.parse::<u32>() else { continue };
        if value != last + 1 {
            headings.troubles.push(format!("{}:{line}: {value} after {last}", path.display()));
        }
        last = value;
        headings.add(path, line, Shape::Notes, number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, text: &str) -> Headings {
        headings([(Path::new(name), text)].into_iter())
    }

    #[test]
    fn only_numbered_headings_count_and_each_once() {
        let page =
            of("a.md", "# 4 API\n## 4.1 exec\n# Four\n4.3 no\n```\n# 5 no\n```\n### 4.1 x\n");
        for (number, there) in [("4", true), ("4.1", true), ("4.3", false), ("5", false)] {
            assert_eq!(page.has(Shape::Protocol, number), there, "{number}");
        }
        assert_eq!(page.troubles, ["a.md:8: 4.1 stands twice"]);
    }

    #[test]
    fn designs_and_complaints_have_numbers_of_their_own() {
        let designs = of("x/decisions.md", "# 1 Ready\n");
        assert!(designs.has(Shape::Decisions, "1") && !designs.has(Shape::Protocol, "1"));
        let list = of("x/complaints.md", "1. one\n2. two\n4. four\n");
        assert!(list.has(Shape::Notes, "2"));
        assert_eq!(list.troubles, ["x/complaints.md:3: 4 after 2"]);
    }
}
