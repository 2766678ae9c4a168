//! `mote-bench`, the program of `scripts/bench`: measures, prints the table, stores the samples, writes the pages.

use std::process::ExitCode;

use mote_tests::Column;
use mote_tests::bench::book::{CPU, Results};
use mote_tests::bench::{Options, page, rows, run};

const HELP: &str = "\
scripts/bench: compares mote with Debian's lxd-agent and incus-agent

  --rounds N        boot and measure each agent N times (5)
  --only ROW,...    measure only these rows, and write no page
  --before COMMIT   measure that older build of mote, too
  --own             skip the Go agents; needs --only
  --hold            measure five rows in three rounds; fail if mote's lead shrank to half of docs/results/bench.json
  --again           write the pages from docs/results/bench.json, without measuring
";

/// What `--hold` measures: a start, both ways of a call, a command, a file.
const HELD: [&str; 5] = ["answered", "config", "root", "exec", "put"];
/// The share of the recorded ratio that must remain; low, because of few rounds on busy machines.
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
    let mut options = Options { rounds: 5, only: Vec::new(), columns: &[] };
    let (mut again, mut hold, mut before, mut own) = (false, false, false, false);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds N".to_owned())?,
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            // scripts/bench has built it.
            "--before" => (before, _) = (true, value()?),
            "--own" => own = true,
            "--hold" => {
                (hold, options.rounds, options.only) = (true, 3, HELD.map(str::to_owned).into())
            }
            "--again" => again = true,
            _ => return Err(format!("{HELP}\nRows: {}", rows::names())),
        }
    }
    if let Some(unknown) = options.only.iter().find(|only| rows::find(only).is_none()) {
        return Err(format!("no row {unknown}; there are: {}", rows::names()));
    }
    options.columns = Column::benched(own, before);
    if own && options.only.is_empty() {
        return Err("--own needs --only, because the pages show the Go agents".to_owned());
    }
    let mut results = Results::load();
    if again {
        return results.write();
    }
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
