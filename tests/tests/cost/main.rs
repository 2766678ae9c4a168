//! Cost of one more of each resource in the shipped agent: limited by `tests/budgets/cost`, listed
//! in `docs/results/cost.md`.
//!
//! `MOTE_RECORD=1` writes the budget, `MOTE_LONG=1` also measures 1,000 where that takes minutes,
//! and `MOTE_WRITE_DOCS=1` does that and writes the page.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod bytes;
mod calls;
mod others;
mod sftp;

use mote_tests::cost::{Row, Table, budget, render};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn measured(what: &str, measure: impl FnOnce() -> Vec<Row>) -> Vec<Row> {
    let begun = std::time::Instant::now();
    let rows = measure();
    println!("{what}, in {:.0} s", begun.elapsed().as_secs_f64());
    for row in &rows {
        println!("  {}: {:?}", row.name, row.cost);
    }
    rows
}

#[test]
fn no_cost_exceeds_its_budget() {
    allow_descriptors();
    let (bytes, calls, others, sftp) = std::thread::scope(|scope| {
        let bytes = scope.spawn(|| (measured("bytes", bytes::all), measured("SFTP", sftp::all)));
        let counted = calls::Counted::new();
        let calls = measured("calls", || calls::all(&counted));
        let others = measured("calls beside others", || others::all(&counted));
        let (bytes, sftp) = bytes.join().unwrap();
        (bytes, calls, others, sftp)
    });
    let mut rows = [bytes.clone(), calls.clone(), others.clone(), sftp.clone()].concat();
    if !std::fs::read_to_string("/proc/cpuinfo").unwrap().contains(" avx2 ") {
        println!(
            "This CPU has no AVX2: the counts of instructions are other ones, and not compared."
        );
        rows = bytes.clone();
    }
    if set("MOTE_WRITE_DOCS") {
        let table = |text, what, rows| Table { text, what, rows };
        let page = render(&[
            table(bytes::TEXT, "bytes for each", &bytes),
            table(calls::TEXT, "instructions", &calls),
            table(others::TEXT, "instructions, with so many", &others),
            table(sftp::TEXT, "instructions, with so many", &sftp),
        ]);
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/results/cost.md");
        std::fs::write(path, page).unwrap();
    }
    budget::COST.hold(&rows);
}

/// A thousand connections need more descriptors than the default limit.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

fn set(variable: &str) -> bool {
    std::env::var_os(variable).is_some()
}

/// Returns the page's steps up to `most`, or fewer in a short run.
fn steps(most: usize, short: usize) -> Vec<usize> {
    let long = set("MOTE_LONG") || set("MOTE_WRITE_DOCS");
    let most = if long { most } else { most.min(short) };
    let mut steps: Vec<_> =
        mote_tests::cost::STEPS.into_iter().filter(|step| *step <= most).collect();
    if !steps.contains(&most) {
        steps.push(most);
    }
    steps
}
