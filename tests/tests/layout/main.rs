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

/// The layers of `agent/src` as ARCHITECTURE.md draws them, the highest first: the code between the marks' first words.
fn drawn() -> Vec<String> {
    let page = std::fs::read_to_string(crates::root().join("ARCHITECTURE.md")).expect("the page");
    let table = page.split("<!-- layers:begin -->").nth(1).expect("a begin");
    let table = table.split("<!-- layers:end -->").next().expect("an end");
    let names = table.split('`').skip(1).step_by(2);
    names.map(|name| name.trim_end_matches('/').to_owned()).collect()
}

#[test]
fn the_agents_layers_are_as_they_are_drawn() {
    let sources = crates::sources();
    none(&rules::upward(Path::new("agent/src/main.rs"), &sources, &drawn()));
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
