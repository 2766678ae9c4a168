//! Comments cite `docs/protocol` by number. Every citation has its heading there, every link between pages
//! leads somewhere, no text points outside of the project, and no JSON is put together by hand.
//!
//! How a citation looks is said in `docs/protocol/README.md`; the samples of these tests are put together
//! from pieces, or they would be citations themselves.

mod json;
mod links;
mod pages;
mod scan;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use pages::Headings;
use scan::{Shape, citations};

/// Where the headings are.
const PAGES: &str = "docs/protocol";
/// The fewest citations there can be without something being wrong with the search: of the wire protocol,
/// and files that have some. There were 700 in 125.
const CITED: usize = 450;
const CITING: usize = 80;
/// The same for the other two shapes, and for headings.
const CITED_OTHERS: usize = 3;
const HEADINGS: usize = 60;

/// A tracked file.
struct Source {
    /// From the project's root.
    path: PathBuf,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Every tracked file that is text, and every one that is about to be.
fn sources() -> Vec<Source> {
    let list = Command::new("git")
        // Whoever owns the folder: containers have it from somebody else.
        .args([
            "-c",
            "safe.directory=*",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .expect("git");
    assert!(list.status.success(), "git: {}", String::from_utf8_lossy(&list.stderr));
    let names = String::from_utf8(list.stdout).expect("names in UTF-8");
    let read = |name: &str| {
        let path = PathBuf::from(name);
        // One that was removed is still on the list.
        let text = std::fs::read(root().join(&path)).ok()?;
        String::from_utf8(text).ok().map(|text| Source { path, text })
    };
    let all: Vec<_> = names.split('\0').filter(|name| !name.is_empty()).filter_map(read).collect();
    assert!(all.len() > 300, "only {} files", all.len());
    all
}

fn headings(all: &[Source]) -> Headings {
    let pages = all.iter().filter(|one| one.path.starts_with(PAGES));
    pages::headings(pages.map(|one| (one.path.as_path(), one.text.as_str())))
}

/// Fails with all of them, a line each.
fn none(what: &str, mut troubles: Vec<String>) {
    troubles.sort();
    assert!(troubles.is_empty(), "{what}:\n{}", troubles.join("\n"));
}

/// What is wrong with the citations of a file.
fn unresolved(path: &Path, text: &str, headings: &Headings) -> Vec<String> {
    let found = citations(text);
    let at = |line: usize, what: &str| format!("{}:{line}: {what}", path.display());
    let missing = found.citations.iter().filter(|one| !headings.has(one.shape, &one.number));
    let missing = missing.map(|one| at(one.line, &format!("{one} has no heading in {PAGES}")));
    let malformed = found.malformed.iter().map(|(line, text)| at(*line, text));
    missing.chain(malformed).collect()
}

#[test]
fn every_citation_has_its_heading() {
    let all = sources();
    let headings = headings(&all);
    none("headings", headings.troubles.clone());
    let troubles = all.iter().flatten_all(|one| unresolved(&one.path, &one.text, &headings));
    none("citations", troubles);
}

#[test]
fn there_are_citations_and_headings_to_be_found() {
    let all = sources();
    let (mut counts, mut citing) = ([0; 3], BTreeSet::new());
    for one in all.iter().filter(|one| !one.path.starts_with(PAGES)) {
        for citation in citations(&one.text).citations {
            counts[citation.shape as usize] += 1;
            citing.insert(&one.path);
        }
    }
    let [protocol, decisions, notes] = counts;
    println!(
        "{protocol} of P, {decisions} decisions, {notes} complaints, in {} files",
        citing.len()
    );
    assert!(protocol >= CITED && citing.len() >= CITING, "{protocol} in {} files", citing.len());
    assert!(decisions >= CITED_OTHERS && notes >= CITED_OTHERS, "{decisions}, {notes}");
    let headings = headings(&all);
    assert!(headings.count() >= HEADINGS, "{} headings", headings.count());
    for (shape, number) in [(Shape::Protocol, "4.1"), (Shape::Decisions, "1"), (Shape::Notes, "35")]
    {
        assert!(headings.has(shape, number), "{number}");
    }
}

#[test]
fn nothing_points_outside_of_the_project() {
    let all = sources();
    none("texts", all.iter().flatten_all(|one| links::outside(&one.path, &one.text)));
}

#[test]
fn links_between_pages_lead_somewhere() {
    let all = sources();
    let pages: Vec<_> = all
        .iter()
        // Below there are templates, whose links are those of the page made of them.
        .filter(|one| !one.path.starts_with("tests/src"))
        .filter(|one| one.path.extension().is_some_and(|kind| kind == "md"))
        .map(|one| (one.path.as_path(), one.text.as_str()))
        .collect();
    let files: BTreeSet<_> = all.iter().map(|one| one.path.clone()).collect();
    assert!(pages.len() > 20, "only {} pages", pages.len());
    let dead = pages.iter().flatten_all(|(path, text)| links::dead(path, text, &files, &pages));
    none("links", dead);
}

#[test]
fn no_json_is_put_together_by_hand() {
    none("lines", sources().iter().flatten_all(|one| json::by_hand(&one.path, &one.text)));
}

/// `flat_map` into a list.
trait FlattenAll: Iterator + Sized {
    fn flatten_all(self, each: impl FnMut(Self::Item) -> Vec<String>) -> Vec<String> {
        self.flat_map(each).collect()
    }
}

impl<I: Iterator> FlattenAll for I {}

#[test]
fn a_citation_without_a_heading_is_found_where_it_is() {
    let page = "# 4 API\n## 4.1 exec\n```\n# 7 no heading\n```\n";
    let headings = pages::headings([(Path::new("docs/protocol/exec.md"), page)].into_iter());
    let text = "// as P\u{a7}4.1 has it\n\n/// and P\u{a7}\n/// 4.9, P\u{a7}7\nx // P\u{a7}x\n";
    let troubles = unresolved(Path::new("a.rs"), text, &headings);
    let expected = ["a.rs:3: P\u{a7}4.9", "a.rs:4: P\u{a7}7", "a.rs:5: P\u{a7}x"];
    assert_eq!(troubles.len(), expected.len(), "{troubles:?}");
    for (trouble, expected) in troubles.iter().zip(expected) {
        assert!(trouble.starts_with(expected), "{trouble}");
    }
}
