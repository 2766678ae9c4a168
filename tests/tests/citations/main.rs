//! Comments cite `docs/protocol` by number. Every citation has its heading there, every link between pages
//! leads somewhere, no text points outside of the project, and no JSON is put together by hand.
//!
//! How a citation looks is said in `docs/protocol/README.md`; the samples of these tests are put together
//! from pieces, or they would be citations themselves.

mod json;
mod links;

use std::collections::BTreeSet;
use std::path::Path;

use links::lines;
use mote_tests::source::{Sources, none, tracked};

/// Where the headings are.
const PAGES: &str = "docs/protocol";
/// What stands before the number, and in which page its heading is: any other page, or the named one, whose
/// headings or whose list's items are meant.
const MARKS: [(&str, Option<&str>); 3] = [
    ("P\u{a7}", None),
    (concat!("decis", "ions \u{a7}"), Some("decisions.md")),
    (concat!("compl", "aint "), Some("complaints.md")),
];
/// The fewest of each there can be without something being wrong with the search; of files that cite; of headings.
const FEWEST: [usize; 3] = [450, 3, 3];
const CITING: usize = 80;
const HEADINGS: usize = 60;
/// What joins a further number that has no mark of its own: in a range, in a list.
const RANGES: [&str; 2] = ["-", "\u{2013}"];
const LISTS: [&str; 3] = [", ", " and ", " or "];

/// What comes first: digits, with dots between them.
fn number(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let number = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    number.split('.').all(|part| !part.is_empty()).then_some(number)
}

/// A number with what is joined to it without a mark: no heading has both. In a list that is a section, with its sign or one
/// dot: `, 200 and 3` is a sentence.
fn joined(text: &str) -> Option<&str> {
    let first = number(text)?;
    let rest = &text[first.len()..];
    let behind = |joints: &[&str]| joints.iter().find_map(|joint| rest.strip_prefix(joint));
    let further = behind(&RANGES).and_then(number).or_else(|| {
        let listed = behind(&LISTS)?;
        let signed = listed.strip_prefix('\u{a7}').and_then(number);
        signed.or_else(|| number(listed).filter(|next| next.matches('.').count() == 1))
    });
    // It is a part of the same text.
    let end = further.map(|next| next.as_ptr() as usize - text.as_ptr() as usize + next.len());
    Some(end.map_or(first, |end| &text[..end]))
}

/// All that can be cited, as a citation names it, and what is wrong with it: numbers that stand twice, and an item
/// that a renderer would number otherwise.
fn headings(sources: &Sources) -> (BTreeSet<String>, Vec<String>) {
    let (mut known, mut troubles, mut items) = (BTreeSet::new(), Vec::new(), 0);
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(PAGES)) {
        let is_here = |page: &Option<&str>| page.is_some_and(|page| path.ends_with(page));
        let (mark, page) = MARKS.into_iter().find(|(_, page)| is_here(page)).unwrap_or(MARKS[0]);
        for (line, text) in lines(text) {
            let heading = text.trim_start_matches('#');
            let is_item = page == MARKS[2].1 && text.contains(". ");
            let is_heading = page != MARKS[2].1 && heading.len() < text.len();
            let Some(number) = number(heading.trim_start()).filter(|_| is_item || is_heading)
            else {
                continue;
            };
            items += usize::from(is_item);
            if !known.insert(format!("{mark}{number}")) || is_item && number != items.to_string() {
                troubles.push(format!(
                    "{}:{line}: {number} stands twice, or not in order",
                    path.display()
                ));
            }
        }
    }
    (known, troubles)
}

/// The citations of a text, each with its line and its mark's place among all; without a number where none follows.
fn citations(text: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, text)) = lines.next() {
        let small = text.to_ascii_lowercase();
        for (kind, (mark, _)) in MARKS.into_iter().enumerate() {
            for (at, _) in small.match_indices(&mark.to_ascii_lowercase()) {
                let rest = &small[at + mark.len()..];
                // The notation is spoken of.
                let is_spoken = rest
                    .strip_prefix('n')
                    .is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
                if !is_spoken {
                    found.push((line, kind, format!("{mark}{}", joined(rest).unwrap_or_default())));
                }
            }
            // Its number is in the next line.
            let is_cut = mark.ends_with(' ') && small.trim_end().ends_with(mark.trim_end());
            let next = lines
                .peek()
                .map_or("", |(_, next)| next.trim_start_matches([' ', '/', '!', '#', '*']));
            if is_cut && number(next).is_some() {
                found.push((line, kind, mark.to_owned()));
            }
        }
    }
    found
}

/// The citations of a file that no heading has.
fn unresolved(path: &Path, text: &str, headings: &BTreeSet<String>) -> Vec<String> {
    let missing = citations(text).into_iter().filter(|(_, _, cited)| !headings.contains(cited));
    let at =
        |(line, _, cited)| format!("{}:{line}: {cited} has no heading in {PAGES}", path.display());
    missing.map(at).collect()
}

#[test]
fn every_citation_has_its_heading() {
    let sources = tracked();
    let (headings, troubles) = headings(&sources);
    none("headings", troubles);
    let troubles = sources.iter().flat_map(|(path, text)| unresolved(path, text, &headings));
    none("citations", troubles);
    let (mut counts, mut citing) = ([0; 3], 0);
    for text in sources.values() {
        let found = citations(text);
        citing += usize::from(found.iter().any(|(_, kind, _)| *kind == 0));
        found.iter().for_each(|(_, kind, _)| counts[*kind] += 1);
    }
    println!("{counts:?} citations, {citing} files with some, {} headings", headings.len());
    assert!(counts.iter().zip(FEWEST).all(|(count, fewest)| *count >= fewest), "{counts:?}");
    assert!(citing >= CITING && headings.len() >= HEADINGS, "{citing} {}", headings.len());
}

#[test]
fn links_between_pages_lead_somewhere_and_nothing_points_outside() {
    let sources = tracked();
    let troubles = sources.iter().flat_map(|(path, text)| links::outside(path, text));
    none("texts", troubles);
    let is_page = |path: &Path| path.extension().is_some_and(|kind| kind == "md");
    // Below tests/src there are templates, whose links are those of the page made of them.
    let pages = sources.iter().filter(|(path, _)| is_page(path) && !path.starts_with("tests/src"));
    let dead: Vec<_> = pages.map(|(path, text)| links::dead(path, text, &sources)).collect();
    assert!(dead.len() > 20, "only {} pages", dead.len());
    none("links", dead.concat());
}

#[test]
fn comments_and_maps_name_modules_that_there_are() {
    let sources = tracked();
    let is_code = |path: &Path| path.extension().is_some_and(|kind| kind == "rs");
    let is_map =
        |path: &Path| ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(Path::new).contains(&path);
    let naming = sources.iter().filter(|(path, _)| is_code(path) || is_map(path));
    none("names", naming.flat_map(|(path, text)| links::stale(path, text, &sources)));
}

#[test]
fn no_json_is_put_together_by_hand() {
    none("lines", tracked().iter().flat_map(|(path, text)| json::by_hand(path, text)));
}

#[test]
fn a_citation_without_a_heading_is_found_where_it_is() {
    // `@` is the sign, `%` the mark of complaints, `&` the same at a line's end.
    let text = |text: &str| {
        let text = text.replace('@', "\u{a7}").replace('%', MARKS[2].0);
        text.replace('&', MARKS[2].0.trim_end())
    };
    let pages = [
        ("exec.md", "# 4 API\n## 4.1 exec\n4.3 no\n```\n# 7 no heading\n```\n"),
        ("decisions.md", "## 2 Ready\n"),
        ("complaints.md", "# What hurts\n1. one\n2. two\n"),
    ];
    let pages = pages.map(|(name, text)| (Path::new(PAGES).join(name), text.to_owned()));
    let (known, troubles) = headings(&pages.clone().into());
    assert_eq!((known.len(), troubles.len()), (5, 0), "{known:?} {troubles:?}");
    let more = [("more/complaints.md", "4. four\n"), ("sftp.md", "### 4.1 x\n")];
    let more = more.map(|(name, text)| (Path::new(PAGES).join(name), text.to_owned()));
    let (_, troubles) = headings(&pages.into_iter().chain(more).collect());
    let expected = ["more/complaints.md:1: 4", "sftp.md:1: 4.1"];
    let expected = expected.map(|one| format!("{PAGES}/{one} stands twice, or not in order"));
    assert_eq!(troubles, expected);
    let found = text(
        "// as P@4.1. Then (P@4), 200 and 3\n\n/// and P@4.3, P@7\nx // P@x, P@n\n%2, %4, % of mine\n\
         decisions @2, RFC 9112 @6.3, decisions for failure\ndecisions @1\n\
         P@4.1-4.2, P@4, 4.1 and P@4 or @4.1\n/// See &\n/// 2 of &\n/// one",
    );
    let troubles = unresolved(Path::new("a.rs"), &found, &known);
    let expected = [
        "3: P@4.3",
        "3: P@7",
        "4: P@",
        "5: %4",
        "5: %",
        "7: decisions @1",
        "8: P@4.1-4.2",
        "8: P@4, 4.1",
        "8: P@4 or @4.1",
        "9: %",
    ];
    let expected = expected.map(|one| text(&format!("a.rs:{one} has no heading in {PAGES}")));
    assert_eq!(troubles, expected);
}
