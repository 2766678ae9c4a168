//! `mote-mutants`, behind `scripts/mutants`: puts each fault of `tests/mutants/list` into a copy of
//! the sources and runs the tests that must notice it.

use std::collections::HashSet;
use std::process::ExitCode;

use mote_tests::mutants::{Mutant, all};
use mote_tests::prelude::*;

/// Limit for one test target. A fault may make it hang, which counts as noticed.
const LIMIT: Duration = Duration::from_secs(120);

enum Outcome {
    Noticed(String),
    Unnoticed,
    NotBuilt(String),
}

struct Tree {
    root: PathBuf,
    target: PathBuf,
}

fn main() -> ExitCode {
    let filters: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |mutant: &Mutant| {
        let name = mutant.name.to_lowercase();
        filters.is_empty() || filters.iter().any(|filter| name.contains(&filter.to_lowercase()))
    };
    let chosen: Vec<Mutant> = all().into_iter().filter(wanted).collect();
    if chosen.is_empty() {
        eprintln!(
            "mote: no fault in tests/mutants/list has one of these words: {}",
            filters.join(" ")
        );
        return ExitCode::from(2);
    }
    let tree = Tree {
        root: source::root().join("target/mutants/tree"),
        target: source::root().join("target/mutants/target"),
    };
    let (mut asked, mut bad) = (HashSet::new(), 0);
    for mutant in &chosen {
        // A test that fails even without the fault proves nothing.
        if asked.insert(&mutant.noticed_by) && !matches!(tree.ask(mutant), Outcome::Unnoticed) {
            println!("UNSOUND         {} fails without a fault", mutant.noticed_by);
            bad += 1;
            continue;
        }
        let begun = Instant::now();
        let outcome = tree.try_out(mutant);
        let seconds = begun.elapsed().as_secs();
        match outcome {
            Outcome::Noticed(ref by) => println!("noticed   {seconds:3} s  {}: {by}", mutant.name),
            Outcome::Unnoticed => println!("UNNOTICED {seconds:3} s  {}", mutant.name),
            Outcome::NotBuilt(ref why) => {
                println!("NOT BUILT {seconds:3} s  {}\n{why}", mutant.name)
            }
        }
        bad += u8::from(!matches!(outcome, Outcome::Noticed(_)));
    }
    if bad == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Tree {
    fn try_out(&self, mutant: &Mutant) -> Outcome {
        let file = self.root.join(&mutant.file);
        let text = fs::read_to_string(&file).expect("a source");
        let faulty = mutant.put_into(&text).expect("a fault that fits");
        fs::write(&file, faulty).expect("the copy");
        let outcome = self.ask(mutant);
        fs::write(&file, text).expect("the copy");
        outcome
    }

    fn ask(&self, mutant: &Mutant) -> Outcome {
        let (target, filter) =
            mutant.noticed_by.split_once(' ').unwrap_or((&mutant.noticed_by, ""));
        let test = match target {
            "core" => vec!["-p", "mote-core", "--lib"],
            "sim" => vec!["-p", "mote-sim", "--test", "scenarios"],
            "agent" => vec!["-p", "mote-agent"],
            _ => vec!["-p", "mote-tests", "--test", target],
        };
        // The builds have no limit.
        let mut builds = vec![[&["test", "--no-run"], &test[..]].concat()];
        if test[1] == "mote-tests" {
            builds.push(vec!["build", "-p", "mote-agent", "--bin", "mote-agent"]);
        }
        for build in builds {
            let built = self.cargo(&build);
            if !built.status.success() {
                return Outcome::NotBuilt(String::from_utf8_lossy(&built.stderr).into_owned());
            }
        }
        let output = self.cargo(&[&["test"], &test[..], &["--", filter]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        // Only a time-out or a failed test counts. Other errors, such as a failed build, do not.
        let failed =
            said.lines().find_map(|line| line.strip_prefix("---- ")?.strip_suffix(" stdout ----"));
        match (failed, output.status.code()) {
            (Some(failed), _) => Outcome::Noticed(format!("{target} {failed}")),
            (None, Some(124)) => Outcome::Noticed(format!("{target}, which does not end")),
            (None, Some(0)) => Outcome::Unnoticed,
            (None, _) => {
                Outcome::NotBuilt(format!("{said}{}", String::from_utf8_lossy(&output.stderr)))
            }
        }
    }

    /// Runs cargo: the faulty sources in the copy, and for `tests/` the original, which contains no
    /// code of the agent.
    fn cargo(&self, args: &[&str]) -> Output {
        let is_outside = args.contains(&"mote-tests");
        let builds = args[0] == "build" || args.contains(&"--no-run");
        let limit = if builds { Duration::from_secs(600) } else { LIMIT };
        let mut command = Command::new("timeout");
        command.arg(limit.as_secs().to_string()).args(["cargo", args[0], "--locked", "--quiet"]);
        command.args(&args[1..]).env("MOTE_SEEDS", "1000").env("MOTE_DAYS", "1");
        if is_outside {
            if !builds {
                command.args(["floods::", "sandbox::"].iter().flat_map(|name| ["--skip", name]));
                command.args(["--test-threads", "6"]);
            }
            command.env("MOTE_AGENT", self.target.join("debug/mote-agent"));
            command.current_dir(source::root());
        } else {
            command.current_dir(&self.root).env("CARGO_TARGET_DIR", &self.target);
        }
        command.output().expect("cargo")
    }
}
