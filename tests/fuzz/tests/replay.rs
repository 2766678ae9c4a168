//! Replays every stored input without libFuzzer, so that fixed bugs stay fixed. Checks that each
//! file of the core has a target, and each target inputs, a count and a place in the page.

use std::collections::BTreeSet;
use std::fs::{read_dir, read_to_string};
use std::path::{Path, PathBuf};

use mote_fuzz::tally::{self, page, table};
use mote_fuzz::{TARGETS, about, corpus, run, subjects};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a target with all its inputs, each also truncated.
fn replay(target: &str) {
    for (number, input) in corpus::kept(target).iter().enumerate() {
        for input in [&input[..], &input[..input.len() / 2]] {
            let result = std::panic::catch_unwind(|| run(target, input));
            assert!(result.is_ok(), "{target}: input {number}: {}", input.escape_ascii());
        }
    }
}

#[test]
fn survives_all_kept_inputs() {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        while let Some(target) =
            TARGETS.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            replay(target);
        }
    };
    std::thread::scope(|scope| {
        (0..2).map(|_| scope.spawn(work)).for_each(drop);
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

#[test]
fn each_file_of_the_core_has_a_target() {
    let mut found = BTreeSet::new();
    sources(&here("../../agent/core/src"), "", &mut found);
    let targets = TARGETS.iter().copied().chain(["none"]);
    let named: BTreeSet<String> = targets.flat_map(subjects::of).map(Into::into).collect();
    assert_eq!(found, named, "found in the core, and named in tests/fuzz/src/subjects.txt");
}

#[test]
fn the_page_matches_tally_and_targets() {
    let all = tally::read(&read_to_string(tally::file()).unwrap());
    let targets: BTreeSet<&str> = TARGETS.iter().copied().collect();
    assert_eq!(all.keys().map(String::as_str).collect::<BTreeSet<_>>(), targets);
    let text = read_to_string(here("../../docs/results/fuzzing.md")).unwrap();
    let expected = page(&text, &(table(&all) + &about())).unwrap();
    assert!(text == expected, "docs/results/fuzzing.md is out of date: run `scripts/fuzz --page`");
}
