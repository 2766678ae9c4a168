//! Replays every stored input, and mutations of each, without libFuzzer, so that fixed bugs stay
//! fixed. Checks that each file of the core has a target, and each target inputs, a count and a
//! place in the page.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use mote_checks::markdown::between;
use mote_fuzz::tally::{self, MARKS, table};
use mote_fuzz::{TARGETS, about, corpus, run};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Number of mutations of each input, the same in every run.
const CHANGES: usize = 12;

/// Returns an input with up to four pieces replaced: by a byte, a token of the dictionary, the end
/// of another input, or nothing.
fn changed(input: &[u8], others: &[Vec<u8>], tokens: &[Vec<u8>], seed: &mut u64) -> Vec<u8> {
    let mut random = |below: usize| {
        *seed =
            seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*seed >> 33).expect("31 bits") % below.max(1)
    };
    let mut out = input.to_vec();
    for _ in 0..=random(4) {
        let at = random(out.len() + 1);
        let end = (at + random(12)).min(out.len());
        let other = &others[random(others.len())];
        let piece = match random(4) {
            0 => vec![u8::try_from(random(256)).expect("a byte")],
            1 => tokens[random(tokens.len())].clone(),
            2 => other[random(other.len() + 1)..].to_vec(),
            _ => Vec::new(),
        };
        out.splice(at..end, piece);
    }
    out
}

fn replay(target: &str, tokens: &[Vec<u8>]) {
    let (inputs, mut seed) = (corpus::kept(target), 7);
    for (number, input) in inputs.iter().enumerate() {
        let changed = (0..CHANGES).map(|_| changed(input, &inputs, tokens, &mut seed));
        for input in [input.clone(), input[..input.len() / 2].to_vec()].into_iter().chain(changed) {
            let result = std::panic::catch_unwind(|| run(target, &input));
            assert!(result.is_ok(), "{target}: input {number}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn survives_all_kept_inputs() {
    // libFuzzer uses different escapes.
    let escapes = [("\\\"", "\""), ("\\x0d", "\\r"), ("\\x0a", "\\n")];
    let words = read_to_string(here("tokens.dict")).unwrap();
    let words = escapes.iter().fold(words, |words, (theirs, ours)| words.replace(theirs, ours));
    let words = words.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let tokens = corpus::unpack(&words.collect::<Vec<_>>().join("\n")).unwrap();
    let (even, odd): (Vec<_>, Vec<_>) = (0..).zip(TARGETS).partition(|(number, _)| number % 2 == 0);
    std::thread::scope(|scope| {
        for half in [even, odd] {
            scope.spawn(|| half.into_iter().for_each(|(_, target)| replay(target, &tokens)));
        }
    });
}

#[test]
fn each_target_has_a_limited_number_of_inputs() {
    let mut whole = 0;
    for target in TARGETS {
        let (inputs, text) = (corpus::kept(target), read_to_string(corpus::folder().join(target)));
        let text = text.unwrap_or_default();
        assert!((5..=400).contains(&inputs.len()), "{target}: {}", inputs.len());
        assert!(text.len() <= 20 * 1024, "{target}");
        assert_eq!(corpus::pack(&inputs), text, "{target} is as scripts/fuzz writes it");
        whole += text.len();
    }
    assert!(whole <= 600_000, "{whole} bytes");
    assert_eq!(read_dir(corpus::folder()).unwrap().count(), TARGETS.len());
}

#[test]
fn each_target_is_a_program_of_libfuzzer() {
    let manifest = read_to_string(here("libfuzzer/Cargo.toml")).unwrap();
    let named =
        manifest.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let named: BTreeSet<&str> = named.filter(|name| *name != "mote-fuzz-libfuzzer").collect();
    assert_eq!(named, TARGETS.iter().copied().collect());
}

fn sources(folder: &Path, below: &str, found: &mut BTreeSet<String>) {
    for entry in read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
        if path.is_dir() && name != "tests" {
            sources(&path, &format!("{below}{name}/"), found);
        } else if name.ends_with(".rs") && name != "tests.rs" {
            let text = read_to_string(&path).expect("a source");
            if text.contains("fn ") || text.contains("const ") {
                found.insert(format!("{below}{name}"));
            }
        }
    }
}

/// Returns the core's files that a target tests; those of `none` need no target.
fn subjects(target: &str) -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../src/subjects.txt").lines().filter(|line| !line.starts_with('#'));
    let rows = lines.map(|line| line.split_once(": ").expect("TARGET: FILES"));
    rows.filter(move |(name, _)| *name == target)
        .flat_map(|(_, files)| files.split(" (").next().unwrap_or_default().split(' '))
}

#[test]
fn each_file_of_the_core_has_a_target() {
    let mut found = BTreeSet::new();
    sources(&here("../../agent/core/src"), "", &mut found);
    let targets = TARGETS.iter().copied().chain(["none"]);
    let named: BTreeSet<String> = targets.flat_map(subjects).map(Into::into).collect();
    assert_eq!(found, named, "found in the core, and named in tests/fuzz/src/subjects.txt");
}

#[test]
fn the_page_matches_tally_and_targets() {
    let text = read_to_string(tally::file()).unwrap();
    let all = tally::read(&text);
    assert_eq!(tally::write(&all), text, "as scripts/fuzz writes it");
    let targets: BTreeSet<&str> = TARGETS.iter().copied().collect();
    assert_eq!(all.keys().map(String::as_str).collect::<BTreeSet<_>>(), targets);
    let text = read_to_string(here("../../docs/results/fuzzing.md")).unwrap();
    let expected = between(&text, MARKS, &(table(&all) + &about()));
    assert!(text == expected, "docs/results/fuzzing.md is out of date: run `scripts/fuzz --page`");
}
