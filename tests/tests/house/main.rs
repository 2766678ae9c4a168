//! The shape of the source: the files of a crate have no import cycles, folders have few files, files and
//! functions are short. What does not hold yet is in `allowed.rs`.

mod allowed;
mod crates;
mod graph;
mod modules;
mod rules;
mod samples;
mod sizes;
mod tokens;

use std::path::Path;

/// Crates whose folders are layers: their imports have no cycle either.
const LAYERED: [&str; 1] = ["host-stub/src/main.rs"];

fn none(troubles: &[String]) {
    assert!(troubles.is_empty(), "\n{}", troubles.join("\n"));
}

#[test]
fn files_have_no_import_cycles() {
    let (sources, roots) = (crates::sources(), crates::roots());
    assert!(roots.len() > 10, "only {} crates", roots.len());
    let all: Vec<_> = roots.iter().flat_map(|root| rules::cycles(root, &sources)).collect();
    none(&rules::judge("cycle", all, allowed::CYCLES));
}

#[test]
fn layers_have_no_import_cycles() {
    let sources = crates::sources();
    for root in LAYERED {
        none(&rules::judge("layers", rules::layers(Path::new(root), &sources), &[]));
    }
}

#[test]
fn folders_have_few_files() {
    none(&rules::judge("folder", rules::folders(&crates::sources()), allowed::FOLDERS));
}

#[test]
fn files_and_functions_are_short() {
    let sources = crates::sources();
    let mut troubles = rules::judge("file", rules::files(&sources), &[]);
    troubles.extend(rules::judge("function", rules::functions(&sources), &[]));
    none(&troubles);
}
