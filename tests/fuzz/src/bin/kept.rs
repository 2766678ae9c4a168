//! Commands for `scripts/fuzz`:
//!   unpack TARGET DIRECTORY   writes the stored inputs of a target as files
//!   pack TARGET DIRECTORY     stores the inputs of a directory, the smallest first, up to the limits
//!   ran TARGET EXECUTIONS SECONDS EDGES OF    adds a run to the tally
//!   page                      writes the table into docs/results/fuzzing.md
//!   targets                   lists the targets

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use mote_checks::markdown::between;
use mote_fuzz::tally::{MARKS, Tally, file, read, table, write};
use mote_fuzz::{TARGETS, about, corpus};

/// Maximum number of inputs per target, and of bytes per file.
const INPUTS: usize = 400;
const BYTES: usize = 20 * 1024;
/// Maximum size of a stored input, in bytes: a file has room for ten of them.
const LONGEST: usize = 2048;

fn unpack(target: &str, folder: &Path) -> std::io::Result<()> {
    for (number, input) in corpus::kept(target).iter().enumerate() {
        fs::write(folder.join(format!("kept-{number}")), input)?;
    }
    Ok(())
}

fn pack(target: &str, folder: &Path) -> std::io::Result<()> {
    let mut inputs = Vec::new();
    for entry in fs::read_dir(folder)? {
        let input = fs::read(entry?.path())?;
        if input.len() <= LONGEST {
            inputs.push(input);
        }
    }
    inputs.sort_by_key(|input| (input.len(), input.clone()));
    inputs.dedup();
    // A sample of all lengths: short inputs reach errors, long ones the code behind.
    let step = inputs.len().div_ceil(INPUTS).max(1);
    let mut chosen: Vec<_> = inputs.into_iter().rev().step_by(step).collect();
    while corpus::pack(&chosen).len() > BYTES {
        chosen.remove(0);
    }
    chosen.reverse();
    fs::create_dir_all(corpus::folder())?;
    fs::write(corpus::folder().join(target), corpus::pack(&chosen))
}

fn ran(target: &str, [executions, seconds, edges, of]: [&str; 4]) -> std::io::Result<()> {
    let number = |word: &str| word.parse::<u64>().unwrap_or_else(|_| panic!("no number: {word}"));
    let mut all = fs::read_to_string(file()).map_or_else(|_| Tally::new(), |text| read(&text));
    let count = all.entry(target.to_owned()).or_default();
    let [before, time, ..] = *count;
    *count = [before + number(executions), time + number(seconds), number(edges), number(of)];
    fs::write(file(), write(&all))
}

fn write_page() -> std::io::Result<()> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/results/fuzzing.md");
    let table = table(&read(&fs::read_to_string(file())?)) + &about();
    let page = between(&fs::read_to_string(&place)?, MARKS, &table);
    fs::write(place, page)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    if let [_, target, ..] = words[..]
        && !TARGETS.contains(&target)
    {
        eprintln!("kept: no target {target}; `kept targets` lists them");
        return ExitCode::from(2);
    }
    let result = match words[..] {
        ["unpack", target, folder] => unpack(target, folder.as_ref()),
        ["pack", target, folder] => pack(target, folder.as_ref()),
        ["ran", target, executions, seconds, edges, of] => {
            ran(target, [executions, seconds, edges, of])
        }
        ["page"] => write_page(),
        ["targets"] => {
            TARGETS.iter().for_each(|target| println!("{target}"));
            Ok(())
        }
        _ => {
            eprintln!("kept: unpack, pack, ran, page or targets");
            return ExitCode::from(2);
        }
    };
    result.map_or_else(
        |error| {
            eprintln!("kept: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    )
}
