//! Where a text leads: links between pages, and words that name what is not here.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

use crate::pages::lines;

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

/// The lines of a file that point outside of the project.
pub(crate) fn outside(path: &Path, text: &str) -> Vec<String> {
    let mut troubles = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for word in ELSEWHERE.iter().filter(|word| line.contains(**word)) {
            troubles.push(format!("{}:{number}: {word} is not here", path.display()));
        }
    }
    troubles
}

/// The links of a page that lead to no file, or to no heading of a page.
pub(crate) fn dead(
    path: &Path,
    text: &str,
    files: &BTreeSet<PathBuf>,
    pages: &[(&Path, &str)],
) -> Vec<String> {
    let mut troubles = Vec::new();
    for (number, line) in lines(text) {
        for link in links(line).filter(|link| !link.contains("://")) {
            if !leads(path, link, files, pages) {
                let place = path.display();
                troubles.push(format!("{place}:{number}: {link} leads nowhere"));
            }
        }
    }
    troubles
}

/// What stands in the round brackets behind square ones.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn leads(path: &Path, link: &str, files: &BTreeSet<PathBuf>, pages: &[(&Path, &str)]) -> bool {
    let (target, heading) = match link.split_once('#') {
        Some((target, heading)) => (target, Some(heading)),
        None => (link, None),
    };
    let target = match target {
        "" => path.to_owned(),
        target => match resolve(path.parent().unwrap_or(Path::new("")), Path::new(target)) {
            Some(target) => target,
            None => return false,
        },
    };
    let there = files.contains(&target) || files.iter().any(|file| file.starts_with(&target));
    let Some(heading) = heading else { return there };
    let page = pages.iter().find(|(page, _)| *page == target);
    page.is_some_and(|(_, text)| {
        lines(text).any(|(_, line)| line.starts_with('#') && slug(line) == heading)
    })
}

/// A path from another one; `None` if it leaves the project.
fn resolve(from: &Path, link: &Path) -> Option<PathBuf> {
    let mut path = from.to_owned();
    for part in link.components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_into_nothing_are_found() {
        let files = ["docs/a.md", "README.md", "docs/p/x.md"].map(PathBuf::from).into();
        let text = "[1](a.md) [2](../README.md) [3](b.md)\n[4](p) [5](a.md#it-is-a-1) [6](#nothing)\n\
                    [7](../../out.md) [8](https://x/y.md)\n```\n[9](c.md)\n```\n# It is: `a` 1\n";
        let path = Path::new("docs/a.md");
        let dead = dead(path, text, &files, &[(path, text)]);
        assert_eq!(
            dead,
            [
                "docs/a.md:1: b.md leads nowhere",
                "docs/a.md:2: #nothing leads nowhere",
                "docs/a.md:3: ../../out.md leads nowhere",
            ]
        );
    }

    #[test]
    fn words_that_name_what_is_not_here_are_found() {
        let text = format!("a\nsee {}, it says\n", ELSEWHERE[1]);
        let troubles = outside(Path::new("x.rs"), &text);
        assert_eq!(troubles, [format!("x.rs:2: {} is not here", ELSEWHERE[1])]);
    }
}
