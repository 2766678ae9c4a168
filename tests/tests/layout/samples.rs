//! The rules on made-up sources.

use std::path::{Path, PathBuf};

use mote_tests::source::Sources;

use crate::{FILE, FOLDER, edges, folders, graph, large, results, rooms};

const MAIN: &str = "main.rs";

fn sources(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
}

/// The shortest way round in a crate whose first file is `main.rs`; empty if there is none.
fn cycle(files: &[(&str, &str)]) -> String {
    let way = graph::cycle(&edges(Path::new(MAIN), &sources(files))).unwrap_or_default();
    way.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(" > ")
}

/// Whether `a` and `b`, with these texts, are a cycle.
fn is_cycle(a: &str, b: &str) -> bool {
    let found = cycle(&[(MAIN, "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]);
    assert!(["", "a.rs > b.rs > a.rs"].contains(&found.as_str()), "{found}");
    !found.is_empty()
}

#[test]
fn what_one_file_names_of_the_other_is_an_edge() {
    let b = "pub fn b() { crate::a::a() }";
    for a in [
        "use super::b::b; pub fn a() {}",
        "use crate::b; pub fn a() { b::b() }",
        "use crate::{b as other}; pub fn a() { other::b() }",
        "use crate::{std::{x, y}, b::{self, c::{d, e}}}; pub fn a() {}",
        "pub fn a() { fn inner() { use crate::b::b; } }",
        "pub fn a(x: &dyn Fn(crate::b::B)) {}",
        "pub fn a() { println!(\"{}\", crate::b::b()) }",
        "pub fn a() { for x in crate::b::b() {} }",
        "#[default(crate::b::b)] pub fn a() {}",
        "pub mod inner { pub fn a() { super::super::b::b() } } pub fn a() {}",
        "impl crate::b::Trait for X { fn f() -> Option<crate::b::B> {} } pub fn a() {}",
        "use crate::b::*; pub fn a() {} pub struct C(self::inner::D); mod inner { use crate::b::b; }",
        // What only tests need ends with its item.
        "#[cfg(test)] mod tests { } pub fn a() { crate::b::b() }",
        "#[cfg(test)] use std::{x, y}; pub fn a() { crate::b::b() }",
        "#[cfg(test)] const X: [u8; 2] = { x() }; pub fn a() { crate::b::b() }",
        "#[cfg(not(test))] pub fn a() { crate::b::b() }",
        "pub struct A { #[cfg(test)] x: u8, y: crate::b::B } pub fn a() {}",
    ] {
        assert!(is_cycle(a, b), "{a}");
    }
}

#[test]
fn what_is_no_code_or_only_for_tests_is_no_edge() {
    let b = "use crate::a::a; pub fn b() { a() }";
    for a in [
        "",
        "// use crate::b::b;\n/* crate::b::b() */\n/// [`crate::b::b`]\npub fn a() {}",
        "pub fn a() { \"crate::b::b\"; r#\"\" crate::b::b()\"#; '\"'; b\"crate::b::b\" }",
        "use std::b::b; use ::b::c; pub fn a() { other.b::<u8>(); other::b::b() }",
        "pub(in crate::b) fn a() {}",
        // The module, and nothing of it.
        "use crate::b; pub fn a() {}",
        "pub fn a() {} #[cfg(test)] mod tests { use crate::b::b; fn t() { crate::b::b() } }",
        "#[cfg(test)] #[allow(x)] pub(crate) use crate::b::{b, c}; pub fn a() {}",
        "#[cfg(all(test, unix))] fn t<A, B>() -> [u8; 3] { crate::b::b() } pub fn a() {}",
        "#[cfg(test)] const X: [u8; 2] = { crate::b::b() }; pub fn a() {}",
        "#[path = \"../other/b.rs\"] mod b; pub fn a() {}",
    ] {
        assert!(!is_cycle(a, b), "{a}");
    }
    assert_eq!(cycle(&[(MAIN, "#[cfg(test)] mod tests; mod x;"), ("x.rs", "")]), "");
}

#[test]
fn a_re_export_is_no_cycle_and_leads_to_the_file_behind_it() {
    let facade = "mod x; mod y; pub(crate) use x::X; pub use self::y::{Y, make as build};";
    let x = "use super::Y; pub struct X(Y);";
    let main = "mod room; fn main() { room::build() }";
    let with =
        |y| cycle(&[(MAIN, main), ("room/mod.rs", facade), ("room/x.rs", x), ("room/y.rs", y)]);
    assert_eq!(with("pub struct Y; pub fn make() {}"), "");
    // Behind the re-exports the two need each other.
    let round = "room/x.rs > room/y.rs > room/x.rs";
    assert_eq!(with("pub struct Y; pub fn make() -> crate::room::X {}"), round);
    // Handed on, it is somebody else's all the same.
    assert!(is_cycle("pub use crate::b::B;", "use crate::a::A;"));
}

#[test]
fn a_child_may_use_its_parents_item_unless_the_parent_uses_the_child() {
    let child = ("room/child.rs", "use super::Parent; pub fn make() -> Parent {}");
    let with = |room| cycle(&[(MAIN, "mod room;"), ("room/mod.rs", room), child]);
    assert_eq!(with("mod child; pub struct Parent;"), "");
    assert_eq!(with("mod child; pub use child::make; pub struct Parent;"), "");
    let round = "room/child.rs > room/mod.rs > room/child.rs";
    assert_eq!(with("mod child; use child::make; pub struct Parent;"), round);
    assert_eq!(with("mod child; pub struct Parent; fn f() { child::make() }"), round);
}

#[test]
fn a_function_may_be_called_as_its_module_is() {
    let b = "pub fn b() { crate::a::f() }";
    for a in ["use crate::b::b; fn f() { b() }", "use crate::b; fn f() { b::b() }"] {
        assert!(is_cycle(a, b), "{a}");
    }
}

#[test]
fn a_cycle_is_shown_by_the_shortest_way_round() {
    let main = "mod a; mod b; mod c; mod d; mod e; mod f { pub mod g; }";
    let (a, c) = ("use crate::b::B;", "use crate::{a::A, d::D}; pub struct C;");
    let with = |e| {
        cycle(&[
            (MAIN, main),
            ("a.rs", a),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", c),
            ("d.rs", "use crate::e::E;"),
            ("e.rs", e),
            ("f/g.rs", "use std::f; use serde::g::h;"),
        ])
    };
    assert_eq!(with("use super::f::g::G;"), "a.rs > b.rs > c.rs > a.rs");
    assert_eq!(with("use super::f::g::G; use crate::d::D;"), "d.rs > e.rs > d.rs");
}

#[test]
#[should_panic(expected = "lost/mod.rs: no file")]
fn a_module_that_is_not_found_fails() {
    cycle(&[(MAIN, "mod lost;")]);
}

#[test]
fn folders_may_have_a_cycle_where_files_have_none() {
    let files = [
        (MAIN, "mod high; mod low;"),
        ("high/mod.rs", "//! What decides. And more.\npub mod a; pub mod b;"),
        ("high/a.rs", "use crate::low::c::C;"),
        ("high/b.rs", "pub struct B;"),
        ("low/mod.rs", "//! What\n//! moves\npub mod c;"),
        ("low/c.rs", "use crate::high::b::B; pub struct C(B);"),
    ];
    assert_eq!(cycle(&files), "");
    let edges = |files| edges(Path::new(MAIN), &sources(files));
    let names = ["high", "low", "high"].map(str::to_owned).to_vec();
    assert_eq!(
        graph::cycle(&folders(&edges(&files))),
        Some(names.iter().map(PathBuf::from).collect())
    );
    let rooms = |files| rooms::rooms(Path::new(MAIN), &edges(files));
    assert_eq!(graph::cycle(&rooms(&files)), Some(names));
    let files = [&files[..5], &[("low/c.rs", "pub struct C;")]].concat();
    assert_eq!(
        (graph::cycle(&folders(&edges(&files))), graph::cycle(&rooms(&files))),
        (None, None)
    );
    let table = rooms::table(Path::new(MAIN), &rooms(&files), &sources(&files));
    let lines: Vec<_> = table.lines().skip(3).collect();
    assert_eq!(lines, ["| 1 | `high` | What decides | `low` |", "| 0 | `low` | What moves |  |"]);
}

#[test]
fn limits_are_the_most_that_is_allowed() {
    let found = |lines: usize, files: usize| {
        let mut all: Sources =
            (1..files).map(|number| (format!("a/{number}.rs").into(), String::new())).collect();
        all.insert("a/0.rs".into(), "\n".repeat(lines));
        large(&all)
    };
    assert_eq!(found(FILE, FOLDER), [""; 0]);
    assert_eq!(found(FILE + 1, FOLDER), ["a/0.rs: 421 lines, 420 are enough"]);
    assert_eq!(found(FILE, FOLDER + 1), ["a: 15 files, 14 are enough"]);
}

/// The results with a text for an error in a file of this text.
fn with_text(text: &str) -> Vec<String> {
    results::with_text("agent", &sources(&[("agent/a.rs", text), ("b.rs", "Result<(), String>")]))
}

#[test]
fn a_text_for_an_error_is_found_however_it_is_written() {
    for text in [
        "fn f() -> Result<u8, String> {}",
        "fn f() -> core::result::Result<Vec<u8>, std::string::String> {}",
        "fn f(g: &mut dyn FnMut(&[u8]) -> Result<(), String>) {}",
        "type Read<T> = Result<Option<T>, String>;",
        "fn f() -> Result<\n    Box<dyn Fn(u8) -> u8>,\n    String,\n> {}",
        "fn f() { x.collect::<Result<_, String>>() }",
        "fn f() { Result::<u8, String>::Ok(1) }",
        "mod tests { fn f() -> Result<u8, String> {} }",
    ] {
        assert_eq!(with_text(text).len(), 1, "{text}");
    }
    assert_eq!(with_text("fn f() -> Result<(), String> {}"), ["agent/a.rs: Result<() , String>"]);
}

#[test]
fn an_error_that_has_a_text_is_none() {
    for text in [
        "fn f() -> io::Result<String> {}",
        "fn f() -> Result<String, Missing> {}",
        "fn f() -> Result<(u8, String), io::Error> {}",
        "fn f() -> Result<u8, Box<String>> {}",
        "fn f() -> Result<u8, (u8, String)> {}",
        "fn f() -> Result<Map<u8, String>> {}",
        "use a::Result; fn f(x: Map<u8, String>) {} // Result<u8, String>",
        "const TEXT: &str = \"Result<u8, String>\";",
        "fn f() { Result::Ok(1) }",
    ] {
        assert_eq!(with_text(text), [""; 0], "{text}");
    }
}
