//! `mote-bench`, behind `scripts/bench`: measures, prints the table, saves the samples, writes the pages.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use mote_tests::bench::book::Book;
use mote_tests::bench::{Options, page, picture, rows, run};

const HELP: &str = "\
scripts/bench: mote beside Debian's lxd-agent and incus-agent

  --rounds N        boot and measure each agent so often (5)
  --only ROW,...    only these; prints, and writes no page
  --again           write the pages from the last samples, measure nothing
";

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
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let saved = root.join("target/bench/samples.json");
    let mut options = Options { rounds: 5, only: Vec::new() };
    let mut again = false;
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds N".to_owned())?,
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--again" => again = true,
            _ => return Err(format!("{HELP}\nRows: {}", rows::ROWS.map(|row| row.id).join(" "))),
        }
    }
    if let Some(unknown) = options.only.iter().find(|only| rows::find(only).is_none()) {
        return Err(format!(
            "no row {unknown}; there are: {}",
            rows::ROWS.map(|row| row.id).join(" ")
        ));
    }
    let book = if again { load(&saved)? } else { run(&options) };
    println!("{}", page::table(&book));
    for (row, column, why) in book.misses() {
        println!("{row}, {}: {why}", column.title());
    }
    if !options.only.is_empty() {
        return Ok(());
    }
    if !again {
        write(&saved, &format!("{:#}\n", book.to_json()))?;
    }
    write(&root.join("docs/bench.md"), &page::whole(&book))?;
    write(&root.join("docs/bench.svg"), &picture::draw(&book))?;
    let readme = root.join("README.md");
    let text = std::fs::read_to_string(&readme).map_err(|error| error.to_string())?;
    write(&readme, &page::into_readme(&text, &book)?)
}

fn load(path: &Path) -> Result<Book, String> {
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    serde_json::from_str(&text)
        .map(|json| Book::from_json(&json))
        .map_err(|error| error.to_string())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    made.and_then(|()| std::fs::write(path, text))
        .map_err(|error| format!("{}: {error}", path.display()))
}
