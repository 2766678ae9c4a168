//! Runs clients on agents and records their output.

use std::process::Stdio;
use std::thread;
use std::time::Instant;

use super::world::{self, World};
use super::{Client, NOT_HERE, Place, Seen, Subject, page};

pub fn run(subject: Subject, clients: &[&'static Client]) -> Seen {
    let begun = Instant::now();
    let mut clients = clients.iter().filter(|client| client.speaks_to(subject)).peekable();
    if clients.peek().is_none() {
        return Seen::new();
    }
    let mut world = World::new(subject);
    println!("{}: up after {:.1} s", subject.name(), begun.elapsed().as_secs_f64());
    let mut seen = Seen::new();
    for client in clients {
        let begun = Instant::now();
        let mut lines = cases(&mut world, client, 1);
        let mut end = world.ended();
        let unexplained = lines.iter().filter(|(case, seen)| {
            seen != "ok"
                && !seen.starts_with(NOT_HERE)
                && !page::explained(client.heading, case, subject.column.title())
        });
        let unexplained: Vec<_> = unexplained.collect();
        // A busy machine may exceed a deadline, so a failure counts only if it repeats.
        if !unexplained.is_empty() && end.is_none() {
            println!("{}: {}: once more after {unexplained:?}", subject.name(), client.heading);
            lines = cases(&mut world, client, 2);
            end = world.ended();
        }
        if end.is_some() {
            // The next client uses a new agent.
            drop(world);
            world = World::new(subject);
        }
        lines.push(("the agent lives on".into(), end.unwrap_or("ok".into())));
        let bad = lines.iter().filter(|(_, seen)| seen != "ok").count();
        println!(
            "{}: {}: {} cases, {bad} not ok, {:.1} s",
            subject.name(),
            client.heading,
            lines.len(),
            begun.elapsed().as_secs_f64()
        );
        for (case, what) in &lines {
            if what != "ok" {
                println!("    {case}: {what}");
            }
        }
        seen.extend(lines.into_iter().map(|(case, what)| ((client.heading, case), what)));
    }
    println!("{}: done after {:.1} s", subject.name(), begun.elapsed().as_secs_f64());
    seen
}

/// Runs these clients on several agents. Agents without a VM run in parallel, because they mostly
/// wait: one for the host's clients and one for the guest's.
pub fn run_all(all: &[Subject], clients: &[&'static Client]) -> Vec<(Subject, Seen)> {
    let (light, heavy): (Vec<Subject>, Vec<Subject>) =
        all.iter().copied().partition(|subject| !subject.in_vm);
    let halves: (Vec<_>, Vec<_>) =
        clients.iter().copied().partition(|client| client.place != Place::Guest);
    let mut seen: Vec<_> = thread::scope(|scope| {
        let start = |one| [&halves.0, &halves.1].map(|half| scope.spawn(move || run(one, half)));
        let runs: Vec<_> = light.into_iter().map(|one| (one, start(one))).collect();
        let ended = runs.into_iter().map(|(subject, runs)| {
            (subject, runs.into_iter().flat_map(|run| run.join().expect("a run")).collect())
        });
        ended.collect()
    });
    seen.extend(heavy.into_iter().map(|subject| (subject, run(subject, clients))));
    // In the requested order.
    let at = |subject: &Subject| all.iter().position(|one| one == subject);
    seen.sort_by_key(|(subject, _)| at(subject));
    seen
}

/// Runs a client and returns its cases in order, with one more if the client failed.
fn cases(world: &mut World, client: &Client, attempt: u32) -> Vec<(String, String)> {
    if let Some(missing) = world::missing(client) {
        return vec![("the program is there".into(), format!("{NOT_HERE}{missing}"))];
    }
    let (lines, end) = match client.place {
        Place::Inside => {
            let (code, lines) = world.inside(client);
            (lines, (code != 0).then(|| format!("exit status: {code}")))
        }
        Place::Guest | Place::Host | Place::Machine => on_this_machine(world, client, attempt),
    };
    let mut cases: Vec<_> = lines
        .lines()
        .map(|line| line.split_once(": ").unwrap_or((line, "no `: ` in it")))
        .map(|(case, seen)| (case.to_owned(), seen.replace('\t', " ")))
        .collect();
    if let Some(end) = end {
        cases.push(("the program ends well".into(), end));
    }
    cases
}

/// Returns its output, and its failure if there was one.
fn on_this_machine(world: &World, client: &Client, attempt: u32) -> (String, Option<String>) {
    let output =
        world.command(client, attempt).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", client.heading));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (lines, errors) = (text(&output.stdout), text(&output.stderr));
    if !errors.is_empty() {
        eprint!("{}: {errors}", client.heading);
    }
    (lines, (!output.status.success()).then(|| output.status.to_string()))
}
