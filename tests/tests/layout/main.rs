//! The shape of the source: the files of a crate have no import cycles, nor have the rooms that ARCHITECTURE.md shows;
//! folders have few files, and files are short; the agent's errors are types. (How long a function may be is clippy's:
//! clippy.toml.)

mod graph;
mod modules;
mod results;
mod rooms;
mod samples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use mote_tests::pages::file;
use mote_tests::source::{self, Sources, none};

/// The agent, whose rooms are shown.
const AGENT: &str = "agent/src/main.rs";
/// Crates whose folders are layers: their imports have no cycle either.
const LAYERED: [&str; 1] = ["host-stub/src/main.rs"];
/// The table's marks.
const MARKS: [&str; 2] = ["<!-- layers:begin -->\n", "<!-- layers:end -->\n"];
/// Most source files in one folder.
const FOLDER: usize = 14;
/// Most lines of a file.
const FILE: usize = 420;

fn sources() -> Sources {
    let mut all = source::tracked();
    all.retain(|path, _| path.extension().is_some_and(|kind| kind == "rs"));
    all
}

/// The first file of each crate.
fn roots() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut metadata = Command::new(cargo);
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let said: serde_json::Value =
        serde_json::from_str(&source::printed(&mut metadata)).expect("JSON");
    let above = said["workspace_root"].as_str().expect("the workspace's root");
    let packages = said["packages"].as_array().expect("packages").iter();
    let targets = packages.flat_map(|one| one["targets"].as_array().into_iter().flatten());
    let paths = targets.filter_map(|one| one["src_path"].as_str());
    let all: Vec<_> =
        paths.filter_map(|path| Some(Path::new(path).strip_prefix(above).ok()?.into())).collect();
    assert!(all.len() > 10, "only {} crates", all.len());
    all
}

/// What each file of a crate needs.
fn edges(root: &Path, sources: &Sources) -> graph::Edges {
    graph::edges(&modules::load(root, sources))
}

/// Of each folder, those it needs.
fn folders(files: &graph::Edges) -> graph::Edges {
    graph::grouped(files, |file| Some(file.parent()?.to_owned()))
}

/// A folder or file with more than there may be.
fn large(sources: &Sources) -> Vec<String> {
    let mut counts = BTreeMap::<&Path, usize>::new();
    for path in sources.keys() {
        *counts.entry(path.parent().unwrap_or(Path::new(""))).or_default() += 1;
    }
    let full = counts.into_iter().filter(|(_, count)| *count > FOLDER);
    let full =
        full.map(|(path, count)| format!("{}: {count} files, {FOLDER} are enough", path.display()));
    let lines = sources.iter().map(|(path, text)| (path, text.lines().count()));
    let long = lines.filter(|(_, lines)| *lines > FILE);
    let long =
        long.map(|(path, lines)| format!("{}: {lines} lines, {FILE} are enough", path.display()));
    full.chain(long).collect()
}

#[test]
fn files_have_no_import_cycles() {
    let sources = sources();
    let cycles = roots().into_iter().filter_map(|root| graph::cycle(&edges(&root, &sources)));
    none("cycles", cycles.map(|way| format!("{way:?}")));
}

#[test]
fn layers_have_no_import_cycles() {
    let sources = sources();
    for root in LAYERED {
        assert_eq!(graph::cycle(&folders(&edges(Path::new(root), &sources))), None);
    }
}

#[test]
fn the_agents_rooms_are_layers_and_the_page_shows_them() {
    let (sources, root) = (sources(), Path::new(AGENT));
    let rooms = rooms::rooms(root, &edges(root, &sources));
    assert_eq!(graph::cycle(&rooms), None);
    let page = file::between(&file::committed(PAGE), MARKS, &rooms::table(root, &rooms, &sources));
    file::write(PAGE, &page);
    file::hold(PAGE, &page);
}

/// From the folder of pages.
const PAGE: &str = "../ARCHITECTURE.md";

#[test]
fn the_agents_errors_are_types() {
    none("a String for an error; make it a type", results::with_text("agent", &sources()));
}

#[test]
fn folders_have_few_files_and_files_are_short() {
    none("too large", large(&sources()));
}
