//! The rules on made-up sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::rules::{self, FILE, FOLDER, FUNCTION, Sources};

fn sources(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect()
}

/// The cycles of a crate whose first file is `main.rs`, each with a way round.
fn cycles(files: &[(&str, &str)]) -> Vec<(String, String)> {
    let all = rules::cycles(Path::new("main.rs"), &sources(files));
    all.into_iter().map(|one| (one.place, one.about)).collect()
}

/// Whether `a` and `b`, with these texts, are a cycle.
fn is_cycle(a: &str, b: &str) -> bool {
    let found = cycles(&[("main.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", b)]);
    assert!(found.iter().all(|(place, _)| place == "a.rs b.rs"), "{found:?}");
    !found.is_empty()
}

#[test]
fn two_files_that_import_each_other_are_a_cycle() {
    assert!(is_cycle("use crate::b::B; pub struct A;", "use super::a::A; pub struct B;"));
    assert!(!is_cycle("use crate::b::B; pub struct A;", "pub struct B;"));
    assert!(!is_cycle("", ""));
}

#[test]
fn a_module_of_another_crate_is_judged_there() {
    let main = "#[path = \"../other/a.rs\"] mod a; mod b;";
    assert_eq!(cycles(&[("main.rs", main), ("b.rs", "use crate::a::A; pub struct B;")]), []);
}

#[test]
fn paths_in_code_attributes_and_macros_count_as_imports_do() {
    let b = "pub fn b() { crate::a::a() }";
    for a in [
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
    ] {
        assert!(is_cycle(a, b), "{a}");
    }
}

#[test]
fn what_is_no_code_is_no_edge() {
    let b = "use crate::a::a; pub fn b() { a() }";
    for a in [
        "// use crate::b::b;\n/* crate::b::b() */\n/// [`crate::b::b`]\npub fn a() {}",
        "pub fn a() { \"crate::b::b\"; r#\"\" crate::b::b()\"#; '\"'; b\"crate::b::b\" }",
        "use std::b::b; use ::b::c; pub fn a() { other.b::<u8>(); other::b::b() }",
        "pub(in crate::b) fn a() {}",
        // The module, and nothing of it.
        "use crate::b; pub fn a() {}",
    ] {
        assert!(!is_cycle(a, b), "{a}");
    }
}

#[test]
fn what_only_tests_need_is_no_edge() {
    let b = "use crate::a::a; pub fn b() { a() }";
    for a in [
        "pub fn a() {} #[cfg(test)] mod tests { use crate::b::b; fn t() { crate::b::b() } }",
        "#[cfg(test)] #[allow(x)] pub(crate) use crate::b::{b, c}; pub fn a() {}",
        "#[cfg(all(test, unix))] fn t<A, B>() -> [u8; 3] { crate::b::b() } pub fn a() {}",
        "pub struct A { #[cfg(test)] x: crate::b::B, y: u8 } pub fn a() {}",
        "#[cfg(test)] const X: [u8; 2] = { crate::b::b() }; pub fn a() {}",
    ] {
        assert!(!is_cycle(a, b), "{a}");
    }
    // It ends with the item.
    for a in [
        "#[cfg(test)] mod tests { } pub fn a() { crate::b::b() }",
        "#[cfg(test)] use std::{x, y}; pub fn a() { crate::b::b() }",
        "pub struct A { #[cfg(test)] x: u8, y: crate::b::B } pub fn a() {}",
        "#[cfg(not(test))] pub fn a() { crate::b::b() }",
    ] {
        assert!(is_cycle(a, b), "{a}");
    }
    let files = [("main.rs", "#[cfg(test)] mod tests; pub fn a() {}"), ("x.rs", "")];
    assert_eq!(cycles(&files), []);
}

#[test]
fn a_re_export_is_no_cycle_and_leads_to_the_file_behind_it() {
    let facade = "mod x; mod y; pub(crate) use x::X; pub use self::y::{Y, make as build};";
    let x = "use super::Y; pub struct X(Y);";
    let (main, y) = ("mod room; fn main() { room::build() }", "pub struct Y; pub fn make() {}");
    let files =
        |y| [("main.rs", main), ("room/mod.rs", facade), ("room/x.rs", x), ("room/y.rs", y)];
    assert_eq!(cycles(&files(y)), []);
    // Behind the re-exports the two need each other.
    let y = "pub struct Y; pub fn make() -> crate::room::X {}";
    let found = cycles(&files(y));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, "room/x.rs room/y.rs");
}

#[test]
fn a_child_may_use_its_parents_item_unless_the_parent_uses_the_child() {
    let child = ("room/child.rs", "use super::Parent; pub fn make() -> Parent {}");
    let with = |room| cycles(&[("main.rs", "mod room;"), ("room/mod.rs", room), child]);
    assert_eq!(with("mod child; pub struct Parent;"), []);
    assert_eq!(with("mod child; pub use child::make; pub struct Parent;"), []);
    let way = "round: room/child.rs > room/mod.rs > room/child.rs".to_owned();
    let found = [("room/child.rs room/mod.rs".to_owned(), way)];
    assert_eq!(with("mod child; use child::make; pub struct Parent;"), found);
    assert_eq!(with("mod child; pub struct Parent; fn f() { child::make() }"), found);
    // Handed on, it is somebody else's all the same.
    let main = ("main.rs", "mod a; mod b;");
    let found = cycles(&[main, ("a.rs", "pub use crate::b::B;"), ("b.rs", "use crate::a::A;")]);
    assert_eq!(found.len(), 1, "{found:?}");
}

#[test]
fn a_function_may_be_called_as_its_module_is() {
    let main = ("main.rs", "mod pair; mod user;");
    let pair = ("pair.rs", "pub fn pair() { crate::user::f() }");
    for user in
        ["use crate::pair::pair; fn f() { pair() }", "use crate::pair; fn f() { pair::pair() }"]
    {
        let found = cycles(&[main, pair, ("user.rs", user)]);
        assert_eq!(found.len(), 1, "{user}");
    }
}

#[test]
fn each_cycle_is_named_with_the_shortest_way_round() {
    let main = "mod a; mod b; mod c; mod d; mod e; mod f { pub mod g; }";
    let found = cycles(&[
        ("main.rs", main),
        ("a.rs", "use crate::b::B;"),
        ("b.rs", "use crate::c::C;"),
        ("c.rs", "use crate::{a::A, d::D}; pub struct C;"),
        ("d.rs", "use crate::e::E;"),
        ("e.rs", "use super::f::g::G; use crate::d::D;"),
        ("f/g.rs", "use std::f; use serde::g::h;"),
    ]);
    let expected = [
        ("a.rs b.rs c.rs", "round: a.rs > b.rs > c.rs > a.rs"),
        ("d.rs e.rs", "round: d.rs > e.rs > d.rs"),
    ];
    assert_eq!(found, expected.map(|(place, about)| (place.to_owned(), about.to_owned())));
}

#[test]
fn folders_may_have_a_cycle_where_files_have_none() {
    let files = [
        ("main.rs", "mod high; mod low;"),
        ("high/mod.rs", "pub mod a; pub mod b;"),
        ("high/a.rs", "use crate::low::c::C;"),
        ("high/b.rs", "pub struct B;"),
        ("low/mod.rs", "pub mod c;"),
        ("low/c.rs", "use crate::high::b::B; pub struct C(B);"),
    ];
    assert_eq!(cycles(&files), []);
    let layers = |files| rules::layers(Path::new("main.rs"), &sources(files));
    let found = layers(&files);
    assert_eq!((found.len(), found[0].place.as_str()), (1, "high low"));
    assert_eq!(layers(&[&files[..5], &[("low/c.rs", "pub struct C;")]].concat()), []);
}

#[test]
fn layers_are_drawn_with_the_highest_first() {
    let files = [
        ("main.rs", "mod high; mod low; use crate::low::Low;"),
        ("high/mod.rs", "mod part;"),
        ("high/part.rs", "use crate::low::Low;"),
        ("low.rs", "pub struct Low;"),
    ];
    let upward = |drawn: &[&str]| {
        let drawn: Vec<_> = drawn.iter().map(|name| (*name).to_owned()).collect();
        rules::upward(Path::new("main.rs"), &sources(&files), &drawn)
    };
    assert!(upward(&["high", "low"]).is_empty());
    assert_eq!(upward(&["low", "high"]), ["high/part.rs needs low.rs, which is not below"]);
    assert_eq!(upward(&["high", "low", "old"]), ["old: drawn, and no module"]);
    assert!(upward(&["low"]).contains(&"high: not drawn".to_owned()));
}

#[test]
#[should_panic(expected = "modules without a file: [\"lost/mod.rs\"]")]
fn a_module_that_is_not_found_fails() {
    cycles(&[("main.rs", "mod lost;")]);
}

#[test]
fn limits_are_the_most_that_is_allowed() {
    let file = |lines: usize| "\n".repeat(lines);
    let function = |lines: usize| format!("fn f() {{{}}}\n", "\n".repeat(lines - 1));
    let fits = sources(&[("a/x.rs", &file(FILE)), ("a/y.rs", &function(FUNCTION))]);
    assert_eq!((rules::files(&fits).len(), rules::functions(&fits).len()), (0, 0));
    let long = sources(&[("a/x.rs", &file(FILE + 1)), ("a/y.rs", &function(FUNCTION + 1))]);
    assert_eq!(rules::files(&long)[0].place, "a/x.rs");
    assert_eq!(rules::functions(&long)[0].place, "a/y.rs:1 f");
    let folder = |count: usize| -> Sources {
        (0..count).map(|number| (format!("a/b/{number}.rs").into(), String::new())).collect()
    };
    assert_eq!(rules::folders(&folder(FOLDER)), []);
    assert_eq!(rules::folders(&folder(FOLDER + 1))[0].place, "a/b with 15 files");
}

#[test]
fn exceptions_may_only_become_fewer() {
    let files =
        [("main.rs", "mod a; mod b;"), ("a.rs", "use crate::b::B;"), ("b.rs", "use crate::a::A;")];
    let judge = |allowed: &[&[&str]]| {
        let all = rules::cycles(Path::new("main.rs"), &sources(&files));
        rules::judge("cycle", all, allowed).into_iter().collect::<BTreeSet<_>>()
    };
    assert_eq!(judge(&[&["a.rs", "b.rs"]]), BTreeSet::new());
    let new = "cycle: a.rs b.rs: round: a.rs > b.rs > a.rs".to_owned();
    assert_eq!(judge(&[]), [new.clone()].into());
    let old = |place: &str| format!("cycle: {place}: no more so; take it out of allowed.rs");
    assert_eq!(judge(&[&["a.rs", "b.rs"], &["c.rs", "d.rs"]]), [old("c.rs d.rs")].into());
    // Another file has joined, or one has left.
    assert_eq!(judge(&[&["a.rs", "b.rs", "c.rs"]]), [new, old("a.rs b.rs c.rs")].into());
}
