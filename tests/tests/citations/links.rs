//! Where a text leads: links between pages, and words that name what is not here.

use std::path::{Component, Path, PathBuf};

use mote_tests::source::Sources;

/// Folders and pages that no reader of the project has.
const ELSEWHERE: [&str; 8] = [
    concat!("../", "shared/"),
    concat!("shared/", "protocol"),
    concat!("agent-", "protocol.md"),
    concat!("field-", "notes.md"),
    concat!("/", "seeds.md"),
    concat!("house", ".md"),
    concat!("findings", ".md"),
    concat!("style", ".md"),
];

/// The lines of a page that are not within a fence, from 1 on.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    })
}

/// The lines of a file that point outside of the project.
pub(crate) fn outside(path: &Path, text: &str) -> Vec<String> {
    let lines = (1..).zip(text.lines());
    let words = lines.flat_map(|(number, line)| {
        let words = ELSEWHERE.iter().filter(move |word| line.contains(**word));
        words.map(move |word| format!("{}:{number}: {word} is not here", path.display()))
    });
    words.collect()
}

/// Words of comments that look like a module's path, and are none.
const NO_MODULES: [&str; 4] =
    ["application/json", "capabilities/key", "target/package", "text/plain"];

/// Paths of modules, files and folders (a word with a slash) that there are not, or no longer: in a source's comments, in a
/// page's tables.
pub(crate) fn stale(path: &Path, text: &str, sources: &Sources) -> Vec<String> {
    let is_there = |word: &str| {
        sources.keys().any(|file| {
            let file = format!("/{}/", file.with_extension("").display());
            file.contains(&format!("/{word}/"))
        })
    };
    let is_name = |part: &str| {
        !part.is_empty() && part.chars().all(|one| one == '_' || one.is_ascii_lowercase())
    };
    let is_path = |word: &&str| word.contains('/') && word.split('/').all(is_name);
    let begin = if path.extension().is_some_and(|kind| kind == "md") { "|" } else { "//" };
    let comments = (1..).zip(text.lines()).filter(|(_, line)| line.trim_start().starts_with(begin));
    let words = comments.flat_map(|(number, line)| {
        let words = line.split('`').skip(1).step_by(2).map(|word| word.trim_end_matches('/'));
        words.filter(is_path).map(move |word| (number, word))
    });
    let stale = words.filter(|(_, word)| !NO_MODULES.contains(word) && !is_there(word));
    stale
        .map(|(number, word)| format!("{}:{number}: `{word}` is not here", path.display()))
        .collect()
}

/// The links of a page that lead to no file, or to no heading of a page.
pub(crate) fn dead(path: &Path, text: &str, sources: &Sources) -> Vec<String> {
    let links = lines(text).flat_map(|(number, line)| {
        let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        links.map(move |link| (number, link))
    });
    let dead = links.filter(|(_, link)| !link.contains("://") && !leads(path, link, sources));
    dead.map(|(number, link)| format!("{}:{number}: {link} leads nowhere", path.display()))
        .collect()
}

fn leads(path: &Path, link: &str, sources: &Sources) -> bool {
    let (target, heading) =
        link.split_once('#').map_or((link, None), |(to, heading)| (to, Some(heading)));
    let target = if target.is_empty() { Some(path.to_owned()) } else { resolve(path, target) };
    let Some(target) = target else { return false };
    let Some(heading) = heading else {
        return sources.keys().any(|file| file.starts_with(&target));
    };
    let is_it = |line: &str| line.starts_with('#') && slug(line) == heading;
    sources.get(&target).is_some_and(|page| lines(page).any(|(_, line)| is_it(line)))
}

/// A link of a page as a path; `None` if it leaves the project.
fn resolve(page: &Path, link: &str) -> Option<PathBuf> {
    let mut path = page.parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// What a heading is called in a link.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
    text.chars().filter(kept).map(|letter| if letter == ' ' { '-' } else { letter }).collect()
}

#[test]
fn links_into_nothing_are_found() {
    let text = "[1](a.md) [2](../README.md) [3](b.md)\n[4](p) [5](a.md#it-is-a-1) [6](#nothing)\n\
                [7](../../out.md) [8](https://x/y.md)\n```\n[9](c.md)\n```\n# It is: `a` 1\n";
    let files = ["docs/a.md", "README.md", "docs/p/x.md"];
    let files = files.map(|path| (PathBuf::from(path), text.to_owned())).into();
    let found = dead(Path::new("docs/a.md"), text, &files);
    let expected = ["1: b.md", "2: #nothing", "3: ../../out.md"];
    assert_eq!(found, expected.map(|one| format!("docs/a.md:{one} leads nowhere")));
}

#[test]
fn words_that_name_what_is_not_here_are_found() {
    let text = format!("a\nsee {}, it says\n", ELSEWHERE[1]);
    let troubles = outside(Path::new("x.rs"), &text);
    assert_eq!(troubles, [format!("x.rs:2: {} is not here", ELSEWHERE[1])]);
}

#[test]
fn modules_that_are_gone_are_found_in_comments() {
    let files = ["agent/src/room/mod.rs", "agent/src/room/part.rs"];
    let sources = files.map(|path| (PathBuf::from(path), String::new())).into();
    let text = "/// See `room/part`, `room/gone`, `src/room/`, `text/event-stream`, `a/`.\nx(\"`room/gone`\");\n//! `gone/part`\n";
    let found = stale(Path::new("a.rs"), text, &sources);
    assert_eq!(found, ["a.rs:1: `room/gone` is not here", "a.rs:3: `gone/part` is not here"]);
}
