//! Results whose error is a text: whoever calls can only say it, or look for words in it.

use std::path::Path;

use mote_tests::source::Sources;
use proc_macro2::{TokenStream, TokenTree};

/// Each `Result<.., String>` below a folder, tests included.
pub(crate) fn with_text(below: &str, sources: &Sources) -> Vec<String> {
    let mut all = Vec::new();
    for (path, text) in sources.iter().filter(|(path, _)| path.starts_with(below)) {
        let parsed = text.parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        find(parsed, path, &mut all);
    }
    all
}

fn find(stream: TokenStream, path: &Path, all: &mut Vec<String>) {
    let mut words = Vec::new();
    for tree in stream {
        words.push(tree.to_string());
        if let TokenTree::Group(group) = tree {
            find(group.stream(), path, all);
        }
    }
    let results = words.iter().enumerate().filter(|(_, word)| *word == "Result");
    let types = results.filter_map(|(at, _)| arguments(&words[at + 1..]));
    let texts = types.filter(|types| is_text(types));
    all.extend(texts.map(|types| format!("{}: Result<{}>", path.display(), types.join(" "))));
}

/// What is in the angle brackets that come first, those of a turbofish included. What is in other brackets is one word.
fn arguments(words: &[String]) -> Option<&[String]> {
    let start = words.iter().take_while(|word| *word == ":").count();
    let mut depth = 0;
    for (at, word) in words.iter().enumerate().skip(start) {
        match word.as_str() {
            "<" => depth += 1,
            // An arrow closes nothing.
            ">" if at == 0 || words[at - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return words.get(start + 1..at);
        }
    }
    None
}

/// Whether the second type is a `String`, by whatever path it is named.
fn is_text(types: &[String]) -> bool {
    let mut back = types.iter().rev().skip_while(|word| *word == ",").map(String::as_str);
    let mut before = if back.next() == Some("String") { back.next() } else { None };
    while before == Some(":") {
        // Its other half, and a word.
        before = back.nth(2);
    }
    before == Some(",")
}
