//! Checks the project's text: citations of `docs/protocol` (its README.md says how to cite) have
//! their headings, links lead somewhere, and no text names a file that readers do not have.

use mote_tests::prelude::*;
use mote_tests::source::{Sources, none, root, tracked};

/// The mark before a cited section number, and the cited page; `None` means any of `docs/protocol`.
const MARKS: [(&str, Option<&str>); 2] =
    [("P\u{a7}", None), (concat!("decis", "ions \u{a7}"), Some("decisions.md"))];
const ELSEWHERE: [&str; 3] =
    [concat!("../", "shared/"), concat!("house", ".md"), concat!("findings", ".md")];

fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// Parses the section number at the start of a text: digits with dots between them.
fn number(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let number = text[..end.unwrap_or(text.len())].trim_end_matches('.');
    (!number.is_empty()).then_some(number)
}

/// Returns all section numbers that can be cited, and those that are not unique.
fn headings(sources: &Sources) -> (BTreeSet<String>, Vec<String>) {
    let (mut known, mut twice) = (BTreeSet::new(), Vec::new());
    for (path, text) in sources {
        let named =
            MARKS.into_iter().find(|(_, page)| page.is_some_and(|page| path.ends_with(page)));
        let Some((mark, _)) = named.or(path.starts_with("docs/protocol").then_some(MARKS[0]))
        else {
            continue;
        };
        for (line, text) in lines(text) {
            let heading = text.trim_start_matches('#');
            let Some(number) = number(heading.trim_start()).filter(|_| heading != text) else {
                continue;
            };
            if !known.insert(format!("{mark}{number}")) {
                twice.push(format!("{}:{line}: {number} is not unique", path.display()));
            }
        }
    }
    (known, twice)
}

fn citations(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        let small = text.to_ascii_lowercase();
        for (mark, _) in MARKS {
            let mark_small = mark.to_ascii_lowercase();
            let cited = small.split(&mark_small).skip(1).filter_map(number);
            found.extend(cited.map(|number| (line, format!("{mark}{number}"))));
        }
    }
    found
}

/// Returns a page's links whose target file or heading does not exist.
fn dead(path: &Path, text: &str) -> Vec<String> {
    let links = lines(text).flat_map(|(number, line)| {
        let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.map(move |link| (number, link))
    });
    let dead = links.filter(|(_, link)| !link.contains("://") && !leads(path, link));
    dead.map(|(number, link)| format!("{}:{number}: {link}", path.display())).collect()
}

fn leads(page: &Path, link: &str) -> bool {
    let (target, heading) = link.split_once('#').unwrap_or((link, ""));
    let page = root().join(page);
    let target = if target.is_empty() { page } else { page.with_file_name("").join(target) };
    let is_it = |line: &str| line.starts_with('#') && slug(line) == heading;
    if heading.is_empty() {
        return target.exists();
    }
    fs::read_to_string(target).is_ok_and(|page| lines(&page).any(|(_, line)| is_it(line)))
}

fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    text.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn citations_and_links_are_valid() {
    let sources = tracked();
    let (headings, mut troubles) = headings(&sources);
    let mut count = 0;
    for (path, text) in &sources {
        let cited = citations(text);
        count += cited.len();
        let missing = cited.iter().filter(|(_, cited)| !headings.contains(cited));
        troubles.extend(
            missing
                .map(|(line, cited)| format!("{}:{line}: {cited} has no heading", path.display())),
        );
        let outside = ELSEWHERE.iter().filter(|word| text.contains(**word));
        troubles.extend(outside.map(|word| format!("{}: {word} is not here", path.display())));
        // Files below tests/src are templates. Their links are those of the generated page.
        if path.extension().is_some_and(|kind| kind == "md") && !path.starts_with("tests/src") {
            troubles.extend(dead(path, text));
        }
    }
    none("texts", troubles);
    assert!(count > 400 && headings.len() > 40, "{count} citations, {} headings", headings.len());
}

#[test]
fn finds_invalid_citations_and_dead_links() {
    let text = "# 4.1 x\n## 4.1 y\n[1](ready.md) [2](no.md) [3](#no)\n```\n# 7\n[4](no.md)\n```\n";
    let page = Path::new("docs/protocol/README.md");
    let (known, twice) = headings(&[(page.to_owned(), text.to_owned())].into());
    assert_eq!((known.len(), twice.len()), (1, 1), "{known:?} {twice:?}");
    let cited = citations(&format!("see {0}4.1.\n{0}7, {1}2", MARKS[0].0, MARKS[1].0));
    assert_eq!(cited.iter().filter(|(_, cited)| !known.contains(cited)).count(), 2);
    let expected = ["no.md", "#no"].map(|link| format!("docs/protocol/README.md:3: {link}"));
    assert_eq!(dead(page, text), expected);
}
