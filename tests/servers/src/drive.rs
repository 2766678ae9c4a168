//! Boots outer VMs until each check has a result with each agent. Emulated virtualisation is
//! unstable: an outer VM may be reset at any time, which says nothing about an agent. Results up to
//! then are kept, and another boot runs the rest.

use crate::outer::{self, End, Outer};
use crate::page;
use crate::prelude::*;
use crate::seen::{self, Column, Run};
use crate::server::{self};

/// Exit code if no check fails, but some have no result.
const NOT_KNOWN: u8 = 75;

pub fn drive(options: &Options) -> Try<ExitCode> {
    let wanted = server::wanted(options)?;
    if options.list {
        wanted.iter().for_each(|check| println!("{check}"));
        return Ok(ExitCode::SUCCESS);
    }
    let columns = options.agents.iter().map(|&agent| column(options, agent, &wanted));
    let columns = columns.collect::<Result<Vec<_>, _>>()?;
    println!("\n{}", page::rows(options.server, &columns, false));
    Ok(ExitCode::from(verdict(options.server, &columns)))
}

fn record(options: &Options, column: &Column) -> Try {
    if std::env::var_os("MOTE_WRITE_DOCS").is_none() {
        return Ok(());
    }
    let mut record = seen::load(options.server)?;
    let known = record.iter_mut().filter(|known| known.agent == column.agent);
    known.for_each(|known| known.take_over(column));
    seen::store(options.server, &mut record)?;
    page::write(options.server, &record)
}

/// Prints failures and returns the exit code. A check has failed if it failed twice.
fn verdict(server: Server, columns: &[Column]) -> u8 {
    let (mut fails, mut unknown) = (0, 0);
    for (column, row) in columns.iter().flat_map(|c| c.rows.iter().map(move |row| (c, row))) {
        let who = format!("{} {}", column.agent.name(), row.check);
        match (&row.verdict, page::find(server, column.agent, &row.check)) {
            (Verdict::Holds(_), _) => {}
            (Verdict::Differs(_) | Verdict::Fails(_), Some(reason)) => {
                println!("no, known: {who}: {}", reason.why)
            }
            (Verdict::Differs(why) | Verdict::Fails(why), None) if row.tries < seen::TRIES => {
                println!("failed once, no time for another try: {who}: {why}");
                unknown += 1;
            }
            (Verdict::Differs(why) | Verdict::Fails(why), None) => {
                println!("without a reason: {who}: {why}");
                fails += 1;
            }
            (Verdict::NotRun(why) | Verdict::Unknown(why), _) => {
                println!("not known: {who}: {why}");
                unknown += 1;
            }
        }
    }
    match (fails, unknown) {
        (0, 0) => 0,
        (0, _) => NOT_KNOWN,
        (_, _) => 1,
    }
}

fn column(options: &Options, agent: Agent, wanted: &[String]) -> Try<Column> {
    let run = Run { run: options.at.clone(), build: options.build.clone() };
    let mut column = Column::new(agent, run);
    let server = options.server;
    println!("{} with {}: {} checks", server.title(), agent.title(server), wanted.len());
    for number in 0..options.boots {
        let left: Vec<_> = wanted.iter().filter(|id| !column.is_settled(id)).cloned().collect();
        if left.is_empty() || Instant::now() > options.until {
            break;
        }
        boot(options, &mut column, number, &left)?;
    }
    for id in wanted {
        if column.row(id).is_none() {
            let why = format!("not reached in {} outer VMs", options.boots);
            column.note(id, Verdict::Unknown(why), 0.0);
        }
    }
    column.rows.sort_by_key(|row| wanted.iter().position(|id| *id == row.check));
    Ok(column)
}

type Payload = (String, [PathBuf; 4]);

fn payload(options: &Options, agent: &str, left: &[String]) -> Try<Payload> {
    let (server, slow, left) = (options.server.name(), options.slow, left.join(","));
    let start = format!("#!/bin/sh\nexec ./mote-servers check {server} {agent} {slow} {left}\n");
    let file = |name: &str| options.images.join(name);
    let files = [
        std::env::current_exe().map_err(|error| error.to_string())?,
        file("linux"),
        file(&format!("{agent}.initrd")),
        file(&format!("{agent}.tar")),
    ];
    Ok((start, files))
}

fn boot(options: &Options, column: &mut Column, number: usize, left: &[String]) -> Try {
    let agent = column.agent.name();
    let (start, files) = payload(options, agent, left)?;
    let files: Vec<_> = files.iter().map(PathBuf::as_path).collect();
    let work = options.work.join(format!("{}-{agent}-{number}", options.server.name()));
    let from = match outer::begin(options, &work) {
        Ok(from) => from,
        // The VM may be lost like any other. If the reason is permanent, each attempt reports it.
        Err(why) => {
            println!("  {why}");
            return Ok(());
        }
    };
    let mut outer = Outer::start(&options.spec, &work, &start, &files, &from)?;
    let begun = outer.begun;
    let mut running = None;
    let end = outer.hear(options.until, |line| match line {
        Line::Step(text, at) => println!("  {at:6.1} s  {text}"),
        Line::Begin(check) => running = Some(check),
        Line::End(check, seen, took) => {
            running = None;
            let word = if seen.is_ok() { "PASS" } else { "FAIL" };
            let (Ok(text) | Err(text)) = &seen;
            println!("{word} {took:6.1} s  {agent} {check}  {}", text.replace('\n', " "));
            column.note(&check, seen.map_or_else(Verdict::Fails, Verdict::Holds), took);
            // Record after each check, because a long run may be interrupted.
            if let Err(why) = record(options, column) {
                println!("  {why}");
            }
        }
        Line::Over(_) => {}
    });
    say_end(&end, running.as_deref(), begun.elapsed().as_secs());
    record(options, column)
}

fn say_end(end: &End, running: Option<&str>, after: u64) {
    match end {
        End::Over(why) if why.is_empty() => println!("  {after:6} s  done"),
        End::Over(why) => println!("  {after:6} s  stopped: {why}"),
        End::Lost(why) => {
            let during = running.map_or_else(String::new, |check| format!(" during {check}"));
            println!("  {after:6} s  {why}{during}: nothing is said about the agent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit_code(agent: Agent, noted: &[(&str, Verdict)]) -> u8 {
        let mut column = Column::new(agent, Run::default());
        noted.iter().for_each(|(check, verdict)| column.note(check, verdict.clone(), 1.0));
        verdict(Server::Incus60, &[column])
    }

    #[test]
    fn counts_failures_seen_twice_without_a_reason() {
        let holds = || ("exec.uname", Verdict::Holds(String::new()));
        let fails = |check| (check, Verdict::Fails("no".into()));
        let unknown = || ("state.top", Verdict::Unknown("lost".into()));
        let mote = |noted: &[_]| exit_code(Agent::Mote, noted);
        assert_eq!(mote(&[holds()]), 0);
        assert_eq!(mote(&[holds(), unknown()]), NOT_KNOWN);
        assert_eq!(mote(&[holds(), fails("exec.signals")]), NOT_KNOWN);
        assert_eq!(mote(&[unknown(), fails("exec.signals"), fails("exec.signals")]), 1);
        let known = fails("exec.exit_codes");
        assert_eq!(exit_code(Agent::Own, &[known.clone(), known]), 0);
    }
}
