//! The rooms of the agent, that is the modules of its root, as ARCHITECTURE.md shows them: read from the code, by layers.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use mote_tests::source::Sources;

use crate::graph::{Edges, grouped};

/// Of each room, those it needs. The root itself, which needs all, is none.
pub(crate) fn rooms(root: &Path, files: &Edges) -> Edges<String> {
    grouped(files, |file| {
        let below = file.strip_prefix(root.parent()?).ok()?;
        let name = Path::new(below.components().next()?.as_os_str()).file_stem()?.to_str()?;
        (file != root).then(|| name.to_owned())
    })
}

/// How many layers are below a room, where there is no cycle.
fn height(rooms: &Edges<String>, room: &str) -> usize {
    rooms[room].iter().map(|below| height(rooms, below) + 1).max().unwrap_or_default()
}

/// What a room is: the first sentence of its file.
fn about(root: &Path, room: &str, sources: &Sources) -> String {
    let folder = root.parent().unwrap_or(Path::new(""));
    let files = [format!("{room}.rs"), format!("{room}/mod.rs")];
    let text =
        files.iter().find_map(|file| sources.get(&folder.join(file))).expect("a room's file");
    let head = text.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let head = head.collect::<Vec<_>>().join(" ");
    head.split(". ").next().unwrap_or_default().trim_end_matches('.').to_owned()
}

/// The table, the highest layer first.
pub(crate) fn table(root: &Path, rooms: &Edges<String>, sources: &Sources) -> String {
    let mut layers = BTreeMap::<_, Vec<_>>::new();
    for room in rooms.keys() {
        layers.entry(height(rooms, room)).or_default().push(room);
    }
    let mut table =
        "\n| layer | room | what it is | needs |\n| ---: | --- | --- | --- |\n".to_owned();
    for (height, all) in layers.iter().rev() {
        for room in all {
            let needs: Vec<_> = rooms[*room].iter().map(|name| format!("`{name}`")).collect();
            let about = about(root, room, sources);
            let _fits = writeln!(table, "| {height} | `{room}` | {about} | {} |", needs.join(" "));
        }
    }
    table
}
