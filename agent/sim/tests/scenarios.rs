//! The agent against a simulated host, guests, network and clock. A seed determines a whole
//! scenario.
//!
//! A failed scenario is reported with its seed; `MOTE_SEED=n` repeats it with its events.
//! `MOTE_SEEDS=n` sets the number of scenarios, `MOTE_DAYS=n` that of days.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use mote_sim::{Dice, MILLI, Outcome, SECOND, day, run_seed, run_with};

/// Default number of scenarios and of days. `scripts/test sim` runs more.
const SCENARIOS: u64 = 1000;
const DAYS: u64 = 1;
/// Number of failures that are printed.
const SHOWN: usize = 20;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs this many seeds on all processors, each on one thread.
fn run_all(count: u64) -> Vec<(u64, Outcome)> {
    let next = AtomicU64::new(0);
    let work = || {
        let mut outcomes = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= count {
                return outcomes;
            }
            outcomes.push((seed, run_seed(seed, false)));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..processors).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|one| one.join().expect("no panic")).collect()
    })
}

#[test]
fn every_scenario_obeys_the_oracle() {
    if let Some(seed) = number("MOTE_SEED") {
        let outcome = run_seed(seed, true);
        assert_eq!(outcome.failure, None, "MOTE_SEED={seed}");
        return;
    }
    let begun = Instant::now();
    let outcomes = run_all(number("MOTE_SEEDS").unwrap_or(SCENARIOS));
    let failed = outcomes.iter().filter_map(|(seed, one)| Some((seed, one.failure.as_deref()?)));
    let mut failed: Vec<_> = failed.collect();
    failed.sort_unstable();
    for (seed, why) in failed.iter().take(SHOWN) {
        eprintln!("MOTE_SEED={seed}: {why}");
    }
    assert!(failed.is_empty(), "{} of {} scenarios break a rule", failed.len(), outcomes.len());
    let sum =
        |of: fn(&Outcome) -> u64| outcomes.iter().map(|(_, outcome)| of(outcome)).sum::<u64>();
    println!(
        "{} scenarios, {} h of virtual time, {} answers to guests, {} times CONNECTED, in {} s",
        outcomes.len(),
        sum(|outcome| outcome.length) / SECOND / 3600,
        sum(|outcome| outcome.answers),
        sum(|outcome| outcome.connects),
        begun.elapsed().as_secs()
    );
}

#[test]
fn a_seed_repeats_its_scenario() {
    for seed in 0..20 {
        assert_eq!(run_seed(seed, false), run_seed(seed, false), "seed {seed}");
    }
    assert_ne!(run_seed(0, false).hash, run_seed(1, false).hash);
}

#[test]
fn decided_throws_precede_random_ones() {
    let decided = |throws| run_with(Dice::decided(throws), false);
    assert_eq!(decided(&[]), run_seed(0, false));
    assert_eq!(decided(&[0; 99]), decided(&[0; 99]));
    // The first decision is the kind of server.
    assert_ne!(decided(&[0]).hash, decided(&[2]).hash);
}

#[test]
fn a_host_that_dies_every_minute_finds_agent_and_ready() {
    let days = 0..number("MOTE_DAYS").unwrap_or(DAYS);
    let (seeds, is_loud) = number("MOTE_SEED").map_or((days, false), |seed| (seed..seed + 1, true));
    for seed in seeds {
        let (outcome, longest) = day(seed, 24 * 60, is_loud);
        assert_eq!(outcome.failure, None, "MOTE_SEED={seed}");
        assert!(outcome.length >= 24 * 3600 * SECOND);
        println!(
            "24 h, {} times CONNECTED, {} answers to guests; known again after {} ms at most",
            outcome.connects,
            outcome.answers,
            longest / MILLI
        );
    }
}
