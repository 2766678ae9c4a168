//! The tables: the whole one for `docs/bench.md` and the terminal, the short one for README.

use std::fmt::Write;

use super::book::{BEFORE, Book, COMMIT, CPU, rows_of};
use super::rows::{Goal, LIMITS, Row, find};
use super::stats::{Summary, number, times};
use crate::column::Column;

/// Marks around the generated part of README.
const BEGIN: &str = "<!-- bench:begin -->\n";
const END: &str = "<!-- bench:end -->";

/// Notes on the method, below the table.
const HOW: &str = "\
mote is measured twice, as LXD's agent and as Incus', and held against the Go agent of the same server.
The Go agents are Debian's packages, unpacked. A ratio is that of the medians and says how many times
better mote is, whichever way is better. In each round each agent gets a VM of its own, in turn: mote
as LXD's, lxd-agent, mote as Incus', incus-agent, and back from the last to the first in the next
round, as who comes second finds a faster machine. All boot the same image; the host is
`mote-host`, the clients are the same program for all, without keep-alive, as the servers' own clients.

- **Binary**: the file as it ships, static and stripped.
- **Memory, threads**: `/proc/PID/smaps_rollup` and `/proc/PID/task`. The 300 calls are 200 `GET
  /1.0/config` and 100 `GET /`, one after another.
- **Smallest VM**: by bisection in steps of 2 MiB, with an image that holds just that agent. Once.
- **Start**: from a line that the guest's shell writes before it starts the agent, to what the host saw,
  by the host's clock. The Go agents' set-up (modules, links, a copy of the config share), which a script
  does before them, is counted; mote does that by itself. The kernel's random numbers are ready before:
  without a device for them, which real VMs have, the first to ask waits for a second, whoever it is.
- **Told to CONNECTED**: how long the host's `PUT /1.0` took, in which the agent calls the host back;
  under LXD with the `GET /1.0` that comes before it.
- **After the host was down**: killed, 2 s later started again on another port; from then on until the
  agent has answered the host's new `PUT`.
- **devlxd**: a client in the guest, a new connection for each call. 200 calls one after another, 64 by 8
  clients, 128 by 64 clients.
- **Instructions**: QEMU's `-icount` makes the guest's clock count instructions, and the kernel counts
  that clock for each thread of the agent (`schedstat`): user space and kernel together, also when idle,
  and hardly different on a busy machine. For calls: 50 after 20 others, once.
- **Image export**: 32 MiB, read by a client in the guest. LXD 5.0.2 and Incus have none.
- **Commands, files, metrics**: `mote-host` as a process of its own for each call, TLS included: 8 x `exec
  true`; `dd` of 16 MiB; 16 MiB put into a tmpfs and got from it; the middle one of 5 calls for metrics.
- **Idle**: all agents side by side, each in its VM, from 10 s after CONNECTED on, as many times 30 s
  as there are rounds. Wake-ups are context switches of all threads, asked for or not.
";

/// Composition of the time of a start.
const START: &str = "\
- **Start**: half goes by before STARTED, in which modules are loaded and the config share is found, mounted and read
  (the Go agents' script does the same). Then the host's call and ours back are one full handshake each, of 20 million
  instructions on our side; nine tenths of them are signatures with P-384, made and checked by ring (docs/cost.md). A
  faster P-384, or a second CPU, is what would be needed.
";

/// Composition of the time of a call to the host.
const CALL: &str = "\
- **`GET /1.0/config`**: a call is a TLS 1.3 handshake with the host, resumed. Of what the agent executes in user mode 59 %
  is X25519 and 14 % the key schedule's SHA-256 (callgrind, docs/cost.md); the rest is spread thin. The row of
  instructions says the same without the machine's noise. ring's large tables for X25519 would take 13 % off
  for 32 KB, which the goals for size and memory do not have. The first half of it, the keys, is made while the
  host is dialled.
";

/// Composition of the time of a local answer.
const ROOT: &str = "\
- **`GET /`**: connecting, switching and closing, which are the kernel's, are nearly all of it. A program that does nothing
  but accept, read, write and close, asked by the same client, shows how far an agent could get:
";

/// Composition of the time of what takes full handshakes.
const HANDSHAKES: &str = "\
- **Told to CONNECTED, `exec true`**: they are full TLS handshakes, two and four, and those are signatures with P-384: 79 of
  the 80 million instructions of a command. incus-agent makes and checks them with Go's P-384 on the same emulated CPU.
  A faster P-384 was tried, and is more than half of the agent's size (docs/optimizations.md).
";

/// Composition of the time of a file that is put.
const PUT: &str = "\
- **SFTP put**: the guest's CPU is busy throughout, and four sevenths of that in the kernel (`/proc/stat`: 0.6 s of user and
  0.8 s of system for 16 MiB). vsock's buffers hold 4 KiB, so 16 MiB are about 9,500 interrupts and as many wake-ups; and
  files are written by a process of their own, so that a file system that hangs holds up nothing else, which costs a pipe
  between both. A program that takes as many bytes from vsock, in records sealed beforehand as TLS seals them, opens them
  with ring and writes them to the same file system, and does nothing else, shows how far an agent could get:
";

/// Renders `docs/bench.md`: the book of QEMU's default CPU, and those of other CPUs.
#[must_use]
pub fn whole(book: &Book, others: &[&Book]) -> String {
    let mut page = format!(
        "# mote beside the Go agents\n\nMade by `scripts/bench` at {}, from [bench.json](bench.json).\n\n\
         Median, and (smallest - largest) where they differ.\n\n",
        book.said(COMMIT)
    );
    page += &table(book);
    page += &older(book);
    for other in others {
        let _ok = write!(
            page,
            "\n## On another CPU: {}\n\nAt {}; rounds: {}.\n\n{}",
            other.said(CPU),
            other.said(COMMIT),
            other.said("rounds"),
            table(other)
        );
    }
    page += &shortfalls(book);
    page += "\n## On what\n\n| | |\n| --- | --- |\n";
    for (name, value) in &book.machine {
        let _ok = writeln!(page, "| {name} | {value} |");
    }
    page += "\n## How\n\n";
    page += HOW;
    let misses: Vec<_> = book.misses().collect();
    if !misses.is_empty() {
        page += "\n## What failed\n\n";
        for (row, column, why) in misses {
            let why = why.lines().next().unwrap_or_default();
            let title = find(row).map_or(row, |row| row.title);
            let _ok = writeln!(page, "- {title}, {}: {}", column.title(), shortened(why));
        }
    }
    page
}

/// Known reasons for missed goals.
fn shortfalls(book: &Book) -> String {
    let missed = |id| find(id).is_some_and(|row| book.reached(row) == Some(false));
    let mut text = String::new();
    if missed("answered") {
        text += START;
    }
    if missed("config") {
        text += CALL;
    }
    if missed("root") {
        text += ROOT;
        text += &limit_of("root", book);
    }
    if missed("told") || missed("exec") {
        text += HANDSHAKES;
    }
    if missed("put") {
        text += PUT;
        text += &limit_of("put", book);
    }
    if text.is_empty() { text } else { format!("\n## Short of a goal\n\n{text}") }
}

/// How much better than the Go agents any agent could be in this row.
fn limit_of(id: &str, book: &Book) -> String {
    let (Some(row), Some((limit, _))) = (find(id), LIMITS.iter().find(|(_, of)| *of == id)) else {
        return String::new();
    };
    let mut text = String::new();
    for theirs in [Column::LxdAgent, Column::IncusAgent] {
        let ours = theirs.pick(Column::MoteLxd, Column::MoteIncus);
        let (limit, agent) = (book.summary(limit, ours), book.summary(id, theirs));
        let (Some(limit), Some(agent)) = (limit, agent) else { continue };
        let _ok = writeln!(
            text,
            "  Beside {} it has {} {} in mote's VM, so that no agent there could be more than {} better.",
            theirs.title(),
            number(limit.median),
            row.unit,
            times(row.ratio(limit.median, agent.median))
        );
    }
    text
}

/// The rows of agents.
fn agents_rows(book: &Book) -> impl Iterator<Item = &'static Row> {
    let is_limit = |row: &Row| LIMITS.iter().any(|(limit, _)| *limit == row.id);
    rows_of(book).into_iter().filter(move |row| !is_limit(row))
}

/// mote beside an older build of it, if that was measured.
#[must_use]
pub fn older(book: &Book) -> String {
    let commit = book.said(BEFORE);
    if commit.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\n## Beside an older build\n\nThat of {commit}, in the same run. Above 1 is better than it was.\n\n\
         | | | now | {commit} | ratio |\n| --- | --- | --: | --: | --: |\n"
    );
    for row in agents_rows(book) {
        let Some(before) = book.summary(row.id, Column::Before) else { continue };
        let now = book.summary(row.id, Column::MoteLxd).map_or("-".into(), spread);
        let ratio = ratio(book, row, Column::Before);
        let before = spread(before);
        let _ok = writeln!(text, "| {} | {} | {now} | {before} | {ratio} |", row.title, row.unit);
    }
    text
}

/// The table of all rows.
#[must_use]
pub fn table(book: &Book) -> String {
    let mut table = String::from("| | |");
    for theirs in [Column::LxdAgent, Column::IncusAgent] {
        let ours = theirs.pick(Column::MoteLxd, Column::MoteIncus);
        let _ok = write!(table, " {} | {} | ratio |", ours.title(), theirs.title());
    }
    table += " goal |\n| --- | --- | --: | --: | --: | --: | --: | --: | --- |\n";
    for row in agents_rows(book) {
        let _ok = write!(table, "| {} | {} |", row.title, row.unit);
        for theirs in [Column::LxdAgent, Column::IncusAgent] {
            let ours = theirs.pick(Column::MoteLxd, Column::MoteIncus);
            let cell = |column| book.summary(row.id, column).map_or("-".into(), spread);
            let _ok = write!(
                table,
                " {} | {} | {} |",
                cell(ours),
                cell(theirs),
                ratio(book, row, theirs)
            );
        }
        let _ok = writeln!(table, " {} |", goal(book, row));
    }
    table
}

/// Rows of README's table; the page beside it has all.
const FRONT: [&str; 8] = ["bytes", "pss", "answered", "config", "root", "exec", "put", "wakeups"];

/// README's table.
#[must_use]
pub fn short(book: &Book) -> String {
    let mut table = String::from(
        "| median | mote | lxd-agent 5.0.2 | | incus-agent 6.0.4 | |\n\
         | --- | --: | --: | --: | --: | --: |\n",
    );
    for row in rows_of(book).into_iter().filter(|row| FRONT.contains(&row.id)) {
        let cell = |column| {
            book.summary(row.id, column).map_or("-".into(), |summary| number(summary.median))
        };
        let unit = if row.unit.is_empty() { String::new() } else { format!(", {}", row.unit) };
        let _ok = writeln!(
            table,
            "| {}{unit} | {} | {} | {} | {} | {} |",
            row.title,
            cell(Column::MoteLxd),
            cell(Column::LxdAgent),
            ratio(book, row, Column::LxdAgent),
            cell(Column::IncusAgent),
            ratio(book, row, Column::IncusAgent)
        );
    }
    table
}

/// README with its generated part replaced.
pub fn into_readme(readme: &str, book: &Book) -> Result<String, String> {
    let (before, rest) = readme.split_once(BEGIN).ok_or("README has no mark for the beginning")?;
    let (_, after) = rest.split_once(END).ok_or("README has no mark for the end")?;
    Ok(format!(
        "{before}{BEGIN}{}\nBy `scripts/bench` at {}: rounds: {}; {} CPUs, QEMU {} with an emulated CPU ({}, {}; KVM was not \
         measured), kernel {}.\nmote's column is as LXD's agent; ratios to incus-agent are mote's as Incus'. \
         More rows, spreads, methods: \
         [docs/bench.md](docs/bench.md).\n{END}{after}",
        short(book),
        book.said(COMMIT),
        book.said("rounds"),
        book.said("CPUs of the machine"),
        book.said("QEMU"),
        book.said("accelerator"),
        book.said(CPU),
        book.said("kernel of the VM"),
    ))
}

fn spread(summary: Summary) -> String {
    let [min, median, max] = [summary.min, summary.median, summary.max].map(number);
    if min == max { median } else { format!("{median} ({min} - {max})") }
}

fn ratio(book: &Book, row: &Row, theirs: Column) -> String {
    book.ratio(row, theirs).map_or("-".into(), times)
}

fn goal(book: &Book, row: &Row) -> String {
    let wanted = match row.goal {
        Goal::None => return String::new(),
        Goal::Times(wanted) => format!("{wanted}×"),
        Goal::AtMost(wanted) => format!("{wanted}"),
        Goal::As(_) => "as idle".into(),
    };
    let reached = match book.reached(row) {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "not known",
    };
    format!("{wanted}: {reached}")
}

fn shortened(why: &str) -> String {
    why.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::super::book::tests::book;
    use super::*;

    #[test]
    fn a_row_of_readme_has_medians_and_ratios() {
        let table = short(&book());
        let row = "| binary, bytes | 2 | 30 | 15.0× | 24 | 12.0× |\n";
        assert!(table.contains(row), "{table}");
        let row = "| start to the host having seen it answer, ms | 2 | 30 | 15.0× | 24 | 12.0× |\n";
        assert!(table.contains(row), "{table}");
    }

    #[test]
    fn the_page_shows_the_spread_and_what_is_missing() {
        let mut book = book();
        book.add(Column::LxdAgent, vec![("bytes", Ok(31.0)), ("bytes", Ok(40.5))]);
        let page = whole(&book, &[]);
        assert!(page.contains("| binary | bytes | 2 | 30.5 (30 - 40.5) | 15.2× |"), "{page}");
        assert!(page.contains("\n- image export, incus-agent 6.0.4: 404\n"), "{page}");
        // A row without samples is left out.
        assert!(!page.contains("| image export |"), "{page}");
    }

    #[test]
    fn an_older_build_and_another_cpu_have_tables_of_their_own() {
        let mut book = book();
        book.machine.push((BEFORE.into(), "037de6b".into()));
        book.add(Column::Before, vec![("root", Ok(3.0))]);
        let mut other = Book::on(vec![(CPU.into(), "1 x max".into())]);
        other.add(Column::MoteLxd, vec![("root", Ok(0.5))]);
        let page = whole(&book, &[&other]);
        assert!(page.contains("| `GET /`, p50 | ms | 2 | 3 | 1.50× |"), "{page}");
        assert!(page.contains("\n## On another CPU: 1 x max\n"), "{page}");
        assert!(
            page.contains("| `GET /`, p50 | ms | 0.500 | - | - | - | - | - | 5×: not known |"),
            "{page}"
        );
    }

    #[test]
    fn a_missed_goal_is_explained_with_the_floor() {
        let mut book = book();
        assert!(!whole(&book, &[]).contains("a good half goes by"));
        assert!(!whole(&book, &[]).contains("- **`GET /`**: connecting"));
        book.add(Column::MoteLxd, vec![("root", Ok(20.0)); 9]);
        book.add(Column::MoteLxd, vec![(LIMITS[0].0, Ok(10.0))]);
        let page = whole(&book, &[]);
        let said = "Beside lxd-agent 5.0.2 it has 10 ms in mote's VM, so that no agent there could be more \
                    than 3.00× better.";
        assert!(page.contains(said), "{page}");
        assert!(!page.contains("nothing else, p50"), "{page}");
    }

    #[test]
    fn only_the_part_between_the_marks_of_readme_changes() {
        let readme = format!("a\n{BEGIN}stale\n{END}\nz\n");
        let new = into_readme(&readme, &book()).unwrap();
        assert!(
            new.starts_with(&format!("a\n{BEGIN}| median |"))
                && new.ends_with(&format!("{END}\nz\n"))
        );
        assert!(!new.contains("stale"));
        assert_eq!(into_readme(&new, &book()).unwrap(), new);
        assert!(into_readme("no marks", &book()).is_err());
    }
}
