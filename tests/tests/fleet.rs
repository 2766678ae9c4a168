//! A fleet in simulation: what `docs/fleet.md` promises, held with 1,000 agents. The page has 10,000:
//! `MOTE_WRITE_DOCS=1 cargo test --release -p mote-tests --test fleet` writes it.

use std::path::PathBuf;

use mote_tests::fleet::clock::{MILLI, Micros, SECOND};
use mote_tests::fleet::model::{Channel, Plan};
use mote_tests::fleet::study::{Figures, Scenario, figures};
use mote_tests::fleet::{page, picture};

const AGENTS: u32 = 1_000;

fn look(scenario: Scenario, channel: Channel) -> Figures {
    figures(&scenario.plan(AGENTS, channel))
}

#[test]
fn all_come_back_whatever_happened() {
    let limits: [(Scenario, Micros); 6] = [
        // The host's own look every 10 s, and the second it takes to take up all.
        (Scenario::BLINK, 11_500 * MILLI),
        (Scenario::RESTART, 1_500 * MILLI),
        // Those that noticed announce themselves, and are told then.
        (Scenario::UPGRADE, 3_500 * MILLI),
        // Agents do not try each second for ever.
        (Scenario::FAILING, 10 * SECOND),
        (Scenario::BOOT, SECOND),
        (Scenario::SPREAD, 10_500 * MILLI),
    ];
    for (scenario, limit) in limits {
        for channel in [Channel::Ring, Channel::Line] {
            let seen = look(scenario, channel);
            let all = seen.back[2].expect(scenario.name);
            assert!(all <= limit, "{} {channel:?}: {all} us", scenario.name);
            assert_eq!(seen.at_end, AGENTS, "{} {channel:?}", scenario.name);
        }
    }
}

#[test]
fn one_agent_is_back_within_a_tenth_of_a_second_of_a_restarted_host() {
    for channel in [Channel::Ring, Channel::Line] {
        for seed in 0..50 {
            let plan = Plan { seed, ..Scenario::RESTART.plan(1, channel) };
            let back = figures(&plan).back[2].expect("back");
            assert!(back <= 100 * MILLI, "{channel:?}, seed {seed}: {back} us");
        }
    }
}

#[test]
fn a_quiet_fleet_costs_the_host_little() {
    let ring = look(Scenario::QUIET, Channel::Ring);
    // Two events in 30 s and the host's own readings every 10 s: LXD's floor is 0.1 an agent.
    assert!((50.0..140.0).contains(&ring.reads.0), "{ring:?}");
    assert!(ring.cores.0 < 0.1 && ring.failed == 0, "{ring:?}");
    let line = look(Scenario::QUIET, Channel::Line);
    assert!((40.0..80.0).contains(&line.reads.0), "{line:?}");
    assert!(line.cores.0 < 0.1 && line.failed == 0, "{line:?}");
}

#[test]
fn a_host_in_trouble_is_not_overrun() {
    for channel in [Channel::Ring, Channel::Line] {
        // It is asked by those that it has told, not by all at once.
        let restart = look(Scenario::RESTART, channel);
        assert!(restart.calls <= 50, "{channel:?}: {restart:?}");
        let failing = look(Scenario::FAILING, channel);
        assert!(failing.cores.1 < 8.0, "{channel:?}: {failing:?}");
        // No more than five failed calls a second from each, at any time in these 30 s.
        assert!(failing.failed <= u64::from(AGENTS) * 5 * 30, "{channel:?}: {failing:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let plan = Scenario::FAILING.plan(100, Channel::Ring);
    let other = Plan { seed: plan.seed + 1, ..plan.clone() };
    assert_eq!(figures(&plan), figures(&plan));
    assert_ne!(figures(&plan), figures(&other));
}

/// Only what takes little time is compared, unless all is written.
#[test]
fn the_page_says_what_is_simulated() {
    let docs = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs");
    if std::env::var_os("MOTE_WRITE_DOCS").is_some() {
        std::fs::write(docs.join("fleet.md"), page::page()).unwrap();
        std::fs::write(docs.join("fleet.svg"), picture::picture()).unwrap();
    }
    let committed = std::fs::read_to_string(docs.join("fleet.md")).unwrap();
    for line in page::load(AGENTS).lines() {
        assert!(committed.lines().any(|old| old == line), "docs/fleet.md does not say: {line}");
    }
}
