//! Which file of a crate imports from which other one, and the cycles in that.
//!
//! A name is followed to the file that defines it, through re-exports. A file that declares a module or
//! hands on (`pub use`) what is in one of its own does not need it; one that uses it does.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use crate::modules::{Import, Module};

/// Of each file, or room of files, those it needs.
pub(crate) type Edges<N = PathBuf> = BTreeMap<N, BTreeSet<N>>;

/// The same of groups of files; who is in none is left out.
pub(crate) fn grouped<N: Ord + Clone>(
    files: &Edges,
    group: impl Fn(&Path) -> Option<N>,
) -> Edges<N> {
    let mut groups = Edges::new();
    for (file, needs) in files {
        let Some(from) = group(file) else { continue };
        let needs = needs.iter().filter_map(|other| group(other)).filter(|other| *other != from);
        groups.entry(from.clone()).or_default().extend(needs);
    }
    groups
}

/// Re-exports of re-exports are followed so far.
const STEPS: usize = 16;

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// A module itself.
    Module(usize),
    /// Something that is defined in that module.
    Item(usize),
}

/// All edges of a crate.
pub(crate) fn edges(all: &[Module]) -> Edges {
    let mut edges = Edges::new();
    for (number, module) in all.iter().enumerate() {
        let needs = edges.entry(module.file.clone()).or_default();
        let imports = module.imports.iter().filter(|one| !is_handed_on(all, number, one));
        let paths = imports.map(|one| &one.path).chain(&module.paths);
        for path in paths {
            if let Some(Target::Item(target)) = follow(all, number, path, STEPS) {
                needs.insert(all[target].file.clone());
            }
        }
        needs.remove(&module.file);
    }
    edges
}

/// `pub use` of something below this module.
fn is_handed_on(all: &[Module], number: usize, import: &Import) -> bool {
    let Some(Target::Item(target) | Target::Module(target)) =
        follow(all, number, &import.path, STEPS)
    else {
        return false;
    };
    let mut above = std::iter::successors(Some(target), |one| all[*one].parent).skip(1);
    import.is_public && above.any(|one| one == number)
}

/// Follows a path that is written in a module; `None` for what is outside of the crate.
fn follow(all: &[Module], from: usize, path: &[String], steps: usize) -> Option<Target> {
    let (first, mut rest) = path.split_first()?;
    let mut now = match first.as_str() {
        "crate" => Target::Module(0),
        "self" => Target::Module(from),
        "super" => Target::Module(all[from].parent?),
        name => named(all, from, (name, rest.is_empty()), steps)?,
    };
    while let (Target::Module(module), Some((name, more))) = (now, rest.split_first()) {
        rest = more;
        now = match name.as_str() {
            "*" => return Some(now),
            "super" => Target::Module(all[module].parent?),
            // What nobody defines in sight is made by a macro there.
            name => {
                named(all, module, (name, more.is_empty()), steps).unwrap_or(Target::Item(module))
            }
        };
    }
    Some(now)
}

/// What a module calls so. A module and a function may share a name: what the last word of a path means
/// is rather the function, what stands before others is the module.
fn named(all: &[Module], number: usize, word: (&str, bool), steps: usize) -> Option<Target> {
    let module = &all[number];
    let (name, is_last) = word;
    if let Some(child) = module.children.get(name) {
        return Some(Target::Module(*child));
    }
    if module.items.contains(name) {
        return Some(Target::Item(number));
    }
    let steps = steps.checked_sub(1)?;
    let imports = module.imports.iter().filter(|one| one.name == name);
    let imports = imports.filter(|one| one.path.as_slice() != [name]);
    let meant: Vec<_> = imports.filter_map(|one| follow(all, number, &one.path, steps)).collect();
    let fits = |target: &&Target| matches!(target, Target::Item(_)) == is_last;
    if let Some(target) = meant.iter().find(fits).or(meant.first()) {
        return Some(*target);
    }
    let globs = module.imports.iter().filter(|one| one.name == "*");
    let mut from = globs.filter_map(|one| follow(all, number, &one.path, steps));
    from.find_map(|target| match target {
        Target::Module(module) if module != number => named(all, module, word, steps),
        Target::Module(_) | Target::Item(_) => None,
    })
}

/// A shortest way round, its first again at the end.
pub(crate) fn cycle<N: Clone + Ord>(edges: &Edges<N>) -> Option<Vec<N>> {
    edges.keys().filter_map(|start| way_back(edges, start)).min_by_key(Vec::len)
}

fn way_back<N: Clone + Ord>(edges: &Edges<N>, start: &N) -> Option<Vec<N>> {
    let mut seen = BTreeSet::new();
    let mut ways = VecDeque::from([vec![start.clone()]]);
    while let Some(way) = ways.pop_front() {
        for next in edges.get(way.last()?).into_iter().flatten() {
            let longer = || way.iter().chain([next]).cloned().collect::<Vec<_>>();
            if next == start {
                return Some(longer());
            }
            if seen.insert(next.clone()) {
                ways.push_back(longer());
            }
        }
    }
    None
}
