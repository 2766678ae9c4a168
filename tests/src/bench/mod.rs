//! `scripts/bench`: the same measurements of mote and of Debian's Go agents in turn, in the same
//! VM. `rows` lists them; `steps` and `counted` measure; `page` shows the results.

use book::Book;

use crate::prelude::*;

pub mod book;
pub mod counted;
pub mod page;
pub mod rows;
mod steps;

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

pub fn run(options: &Options) -> Book {
    // A failing row prints one line, and the run continues.
    std::panic::set_hook(Box::new(|failure| eprintln!("{failure}")));
    let mut book = Book::on(machine(options));
    let begun = Instant::now();
    let say = |what: &str| eprintln!("[{:4.0} s] {what}", begun.elapsed().as_secs_f64());
    let wants = |row: &str| options.wants(row);
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
            book.add(column, vec![("bytes", bytes(column))]);
        }
        if rows::COUNTED.iter().any(|row| wants(row.id)) {
            say(&format!("instructions: {}", column.title()));
            book.add(column, counted::found(column));
        }
    }
    if rows::NATIVE.iter().any(|row| wants(row.id)) {
        say("without a VM");
        book.add(Column::MoteLxd, counted::native());
    }
    say("done");
    book
}

fn bytes(column: Column) -> Result<f64, String> {
    let binary = match column {
        Column::LxdAgent => tool("MOTE_LXD_AGENT", "target/lxd-agent"),
        Column::IncusAgent => tool("MOTE_INCUS_AGENT", "target/incus-agent"),
        Column::IncusAgent7 => tool("MOTE_INCUS_AGENT_7", "target/incus-agent-7"),
        Column::Before => tool("MOTE_AGENT_BEFORE", "target/mote-agent-before"),
        Column::MoteLxd | Column::MoteIncus | Column::MoteOldLxd => agent(),
    };
    let file = fs::metadata(binary).map_err(|error| error.to_string())?;
    Ok(file.len() as f64)
}

fn machine(options: &Options) -> Vec<(String, String)> {
    let say = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).output().ok();
        let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        text.and_then(|text| text.lines().next().map(str::to_owned)).unwrap_or_default()
    };
    let variable =
        |name: &str, otherwise: &str| std::env::var(name).unwrap_or_else(|_| otherwise.to_owned());
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let kernel = attempt(|| {
        let spec = Spec { memory: steps::MEMORY, ..world::spec(Column::MoteLxd) };
        steps::Visit::boot(Column::MoteLxd, &spec).guest.ok("uname -r")
    });
    let qemu = say("qemu-system-x86_64", &["--version"]);
    let qemu = qemu.split(" version ").last().unwrap_or_default().split(' ').next();
    let cpus = thread::available_parallelism().map_or(0, usize::from);
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
        ("memory of the VM", format!("{} MiB", steps::MEMORY)),
        // Helps to judge the figures: those of a busy machine are less reliable.
        ("load average before", load.split(' ').next().unwrap_or_default().to_owned()),
        ("kernel of the VM", kernel.unwrap_or_default().trim().to_owned()),
    ];
    let known = pairs.into_iter().filter(|(_, value)| !value.is_empty());
    known.map(|(name, value)| (name.to_owned(), value)).collect()
}
