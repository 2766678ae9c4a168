//! What has to hold, and how exceptions from it are told from the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::graph::{self, Edges};
use crate::{modules, sizes};

/// Most source files in one folder.
pub(crate) const FOLDER: usize = 14;
/// Most lines of a file.
pub(crate) const FILE: usize = 420;
/// Most lines of a function.
pub(crate) const FUNCTION: usize = 70;

/// Source files by their paths from the project's root.
pub(crate) type Sources = BTreeMap<PathBuf, String>;

/// What does not hold.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Trouble {
    /// As an entry of `allowed.rs` names it.
    pub(crate) place: String,
    /// More of it, for people.
    pub(crate) about: String,
}

/// What is wrong: troubles that are not allowed, and what is allowed and no trouble any more.
pub(crate) fn judge(what: &str, mut troubles: Vec<Trouble>, allowed: &[&[&str]]) -> Vec<String> {
    troubles.sort();
    // A file may be part of several crates.
    troubles.dedup_by(|one, other| one.place == other.place);
    let allowed: Vec<String> = allowed.iter().map(|parts| parts.join(" ")).collect();
    let new = troubles.iter().filter(|one| !allowed.contains(&one.place));
    let new = new.map(|one| format!("{what}: {}: {}", one.place, one.about));
    let is_over = |place: &&String| !troubles.iter().any(|one| one.place == **place);
    let old = allowed.iter().filter(is_over);
    let old = old.map(|place| format!("{what}: {place}: no more so; take it out of allowed.rs"));
    new.chain(old).collect()
}

fn joined<'a>(files: impl IntoIterator<Item = &'a PathBuf>, between: &str) -> String {
    let files: Vec<_> = files.into_iter().map(|file| file.display().to_string()).collect();
    files.join(between)
}

/// Import cycles between the files of a crate.
pub(crate) fn cycles(root: &Path, sources: &Sources) -> Vec<Trouble> {
    round(&edges(root, sources))
}

/// Import cycles between the folders of a crate.
pub(crate) fn layers(root: &Path, sources: &Sources) -> Vec<Trouble> {
    let folder = |file: &PathBuf| file.parent().unwrap_or(Path::new("")).to_owned();
    let mut folders = Edges::new();
    for (file, needs) in &edges(root, sources) {
        let needs = needs.iter().map(folder).filter(|other| *other != folder(file));
        folders.entry(folder(file)).or_default().extend(needs);
    }
    round(&folders)
}

/// What is wrong with layers as they are drawn, the highest first: modules of a crate's root that need a higher one, or
/// are not drawn, and names that no module has.
pub(crate) fn upward(root: &Path, sources: &Sources, drawn: &[String]) -> Vec<String> {
    let top = root.parent().unwrap_or(Path::new(""));
    let module = |file: &Path| {
        let first = file.strip_prefix(top).ok()?.components().next()?;
        let name = Path::new(first.as_os_str()).file_stem()?.to_str()?.to_owned();
        (file != root).then_some(name)
    };
    let height = |name: &String| drawn.iter().position(|other| other == name);
    let mut troubles = BTreeSet::new();
    let mut found = BTreeSet::new();
    for (file, needs) in &edges(root, sources) {
        let Some(from) = module(file) else { continue };
        found.insert(from.clone());
        if height(&from).is_none() {
            troubles.insert(format!("{from}: not drawn"));
        }
        for other in needs {
            let Some(to) = module(other).filter(|to| *to != from) else { continue };
            if height(&to) <= height(&from) {
                let (file, other) = (file.display(), other.display());
                troubles.insert(format!("{file} needs {other}, which is not below"));
            }
        }
    }
    let gone = drawn.iter().filter(|name| !found.contains(*name));
    troubles.extend(gone.map(|name| format!("{name}: drawn, and no module")));
    troubles.into_iter().collect()
}

fn edges(root: &Path, sources: &Sources) -> Edges {
    let read = |path: &Path| sources.get(path).cloned();
    let all = modules::Crate::load(root, &read);
    assert!(
        all.missing.is_empty(),
        "{}: modules without a file: {:?}",
        root.display(),
        all.missing
    );
    graph::edges(&all)
}

fn round(edges: &Edges) -> Vec<Trouble> {
    let trouble = |cycle: &BTreeSet<PathBuf>| Trouble {
        place: joined(cycle, " "),
        about: format!("round: {}", joined(&graph::way_round(edges, cycle), " > ")),
    };
    graph::cycles(edges).iter().map(trouble).collect()
}

/// Folders with too many source files.
pub(crate) fn folders(sources: &Sources) -> Vec<Trouble> {
    let mut counts = BTreeMap::<&Path, usize>::new();
    for path in sources.keys() {
        *counts.entry(path.parent().unwrap_or(Path::new(""))).or_default() += 1;
    }
    let full = counts.into_iter().filter(|(_, count)| *count > FOLDER);
    let trouble = |(path, count): (&Path, usize)| Trouble {
        place: format!("{} with {count} files", path.display()),
        about: format!("{FOLDER} are enough"),
    };
    full.map(trouble).collect()
}

/// Files with too many lines.
pub(crate) fn files(sources: &Sources) -> Vec<Trouble> {
    let lines = sources.iter().map(|(path, text)| (path, text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > FILE);
    let trouble = |(path, lines): (&PathBuf, usize)| Trouble {
        place: path.display().to_string(),
        about: format!("{lines} lines, {FILE} are enough"),
    };
    long.map(trouble).collect()
}

/// Functions with too many lines.
pub(crate) fn functions(sources: &Sources) -> Vec<Trouble> {
    let all = sources.iter().flat_map(|(path, text)| {
        sizes::functions(text).into_iter().map(move |function| (path, function))
    });
    let long = all.filter(|(_, function)| function.lines > FUNCTION);
    let trouble = |(path, function): (&PathBuf, sizes::Function)| Trouble {
        place: format!("{}:{} {}", path.display(), function.line, function.name),
        about: format!("{} lines, {FUNCTION} are enough", function.lines),
    };
    long.map(trouble).collect()
}
