//! `scripts/bench`: the same measurements of mote and of Debian's Go agents in turn, with the same
//! VM, host and clients. `rows` lists them; `steps`, `counted` and `native` measure; `page`
//! shows the results.

pub mod book;
mod calls;
pub mod counted;
mod from_host;
mod native;
pub mod page;
pub mod results;
pub mod rows;
mod start;
mod steps;

use std::process::Command;
use std::time::Instant;

use book::Book;

use crate::{Column, Spec, attempt, vm, world};

#[derive(Clone, Debug)]
pub struct Options {
    /// Number of times that each agent is booted and measured.
    pub rounds: u32,
    /// Names of the rows to measure; all if empty.
    pub only: Vec<String>,
    pub columns: &'static [Column],
}

impl Options {
    fn wants(&self, row: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == row)
    }
}

/// Measures all rows that are wanted; failures are in the book too.
pub fn run(options: &Options) -> Book {
    // A failing row prints one line, and the run continues.
    std::panic::set_hook(Box::new(|failure| eprintln!("{failure}")));
    let mut book = Book::on(machine(options));
    let begun = Instant::now();
    let say = |what: &str| eprintln!("[{:4.0} s] {what}", begun.elapsed().as_secs_f64());
    let wants = |row: &str| options.wants(row);
    let wants_any = |rows: &[rows::Row]| rows.iter().any(|row| wants(row.id));
    for round in 1..=options.rounds {
        // The order alternates: the position changed the start of the same build by 8 %.
        let mut columns = options.columns.to_vec();
        if round % 2 == 0 {
            columns.reverse();
        }
        for column in columns {
            if steps::is_wanted(&wants) {
                say(&format!("round {round} of {}: {}", options.rounds, column.title()));
                book.add(column, steps::visit(column, &wants));
            }
        }
    }
    for column in options.columns.iter().copied() {
        if wants("bytes") {
            book.add(column, native::bytes(column));
        }
        if wants_any(&rows::COUNTED) {
            say(&format!("instructions: {}", column.title()));
            book.add(column, counted::found(column));
        }
    }
    if wants_any(&rows::NATIVE) {
        say("without a VM");
        book.add(Column::MoteLxd, native::found());
    }
    say("done");
    book
}

/// Describes the machine and the run.
fn machine(options: &Options) -> Vec<(String, String)> {
    let say = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
    };
    let variable =
        |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let kernel = attempt(|| {
        let spec = Spec { memory: start::MEMORY, ..world::spec(Column::MoteLxd) };
        start::Visit::boot(Column::MoteLxd, &spec).guest.ok("uname -r")
    });
    let qemu = say("qemu-system-x86_64", &["--version"]);
    let qemu = qemu.split(" version ").last().unwrap_or_default().split(' ').next();
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let pairs = [
        (book::COMMIT, variable("MOTE_COMMIT", "")),
        (book::BEFORE, variable("MOTE_COMMIT_BEFORE", "")),
        ("rounds", options.rounds.to_string()),
        ("CPUs of the machine", cpus.to_string()),
        ("QEMU", qemu.unwrap_or_default().to_owned()),
        ("QEMU's machine", vm::PC.to_owned()),
        ("accelerator", variable("MOTE_ACCEL", "tcg")),
        (book::CPU, format!("1 x {}", variable("MOTE_CPU", "qemu64"))),
        ("CPU where instructions are counted", counted::CPU.to_owned()),
        ("memory of the VM", format!("{} MiB", start::MEMORY)),
        // For judging the figures: those of a busy machine are less reliable.
        ("load average before", load.split(' ').next().unwrap_or_default().to_owned()),
        ("kernel of the VM", kernel.unwrap_or_default().trim().to_owned()),
    ];
    let known = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
