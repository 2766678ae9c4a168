//! `mote-bench`, the program of `scripts/bench`: measures, prints the table, stores the samples, writes the pages.

use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use mote_tests::Column;
use mote_tests::bench::book::{CPU, Results};
use mote_tests::bench::rows::all;
use mote_tests::bench::{Options, page, rows, run};

#[derive(Debug, Parser)]
#[expect(clippy::struct_excessive_bools, reason = "one for each option")]
#[command(bin_name = "scripts/bench")]
struct Asked {
    /// Boots and measures each agent N times
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: u32,
    /// Measures only these rows, and writes no page
    #[arg(long, value_delimiter = ',', value_parser = PossibleValuesParser::new(all().map(|row| row.id)))]
    only: Vec<String>,
    /// Also measures an older mote, which scripts/bench has built from COMMIT
    #[arg(long, value_name = "COMMIT")]
    before: Option<String>,
    /// Skips the Go agents; needs --only, because the pages show them
    #[arg(long, requires = "only")]
    own: bool,
    /// Measures five rows in three rounds; fails if mote's lead shrank to half of the recorded one
    #[arg(long)]
    hold: bool,
    /// Writes the pages from docs/results/bench.json, without measuring
    #[arg(long)]
    again: bool,
}

/// What `--hold` measures: a start, both ways of a call, a command, a file.
const HELD: [&str; 5] = ["answered", "config", "root", "exec", "put"];
/// The share of the recorded ratio that must remain; low, because rounds are few and machines busy.
const SHARE: f64 = 0.5;

fn main() -> ExitCode {
    match bench() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}

fn bench() -> Result<(), String> {
    let Asked { mut rounds, mut only, before, own, hold, again } = Asked::parse();
    if hold {
        (rounds, only) = (3, HELD.map(str::to_owned).into());
    }
    let mut results = Results::load();
    if again {
        return results.write();
    }
    let options = Options { rounds, only, columns: Column::benched(own, before.is_some()) };
    let book = run(&options);
    println!("{}\n{}", page::table(&book, &rows::COUNTED), page::table(&book, &rows::MEASURED));
    print!("{}", page::older(&book));
    for miss in &book.misses {
        println!("{}, {}: {}", miss.row, miss.agent, miss.why);
    }
    if hold {
        let recorded =
            results.of(book.said(CPU)).ok_or("docs/results/bench.json has no such CPU")?;
        let below = book.below(SHARE, recorded);
        return if below.is_empty() { Ok(()) } else { Err(below.join("\n")) };
    }
    if options.only.is_empty() {
        results.keep(book);
        results.write()?;
    }
    Ok(())
}
