//! Renders the tables of `docs/results/bench.md`, the terminal and README.

use super::book::{BEFORE, Book, COMMIT, CPU, Summary};
use super::rows::{COUNTED, Goal, MEASURED, Row, all, find};
use crate::pages::{between, number, times};
use crate::prelude::*;

const MARKS: [&str; 2] = ["<!-- bench:begin -->\n", "<!-- bench:end -->"];

pub fn whole(book: &Book) -> String {
    let machine = book.machine.iter().map(|(name, value)| vec![name.clone(), value.clone()]);
    let misses = book.misses.iter().map(|miss| {
        let why: String = miss.why.lines().next().unwrap_or_default().chars().take(160).collect();
        let title = find(&miss.row).map_or(miss.row.as_str(), |row| row.title);
        format!("\n  - {title}, {}: {why}", miss.agent)
    });
    let failed = Some(misses.collect::<String>()).filter(|all| !all.is_empty());
    let parts = [
        ("{commit}", book.said(COMMIT).to_owned()),
        ("{rows}", all().filter(|row| book.has(row)).count().to_string()),
        ("{counted}", table(book, &COUNTED)),
        ("{measured}", table(book, &MEASURED)),
        ("{machine}", markdown::table(&markdown::texts(["", ""]), machine)),
        ("{failed}", failed.unwrap_or_else(|| "none.".into())),
    ];
    let page = include_str!("page.md").to_owned();
    parts.iter().fold(page, |page, (name, text)| page.replace(name, text))
}

pub fn older(book: &Book) -> String {
    let commit = book.said(BEFORE);
    if commit.is_empty() {
        return String::new();
    }
    let rows = all().filter_map(|row| {
        let before = spread(book.summary(row.id, Column::Before)?);
        let now = cell(book, row, Column::MoteLxd);
        Some(vec![named(row), now, before, ratio(book, row, Column::Before)])
    });
    let head = [markdown::texts([""]), markdown::numbers(["now", commit, "ratio"])].concat();
    let table = markdown::table(&head, rows);
    format!("\nCompared with {commit} in the same run; above 1 is better.\n\n{table}")
}

pub fn table(book: &Book, rows: &[Row]) -> String {
    // The column of mote with Incus precedes that of the first of its two agents.
    let columns = Column::GO.map(|theirs| {
        let ours = Some(theirs.ours()).filter(|_| theirs != Column::IncusAgent7);
        (ours, theirs)
    });
    let rows: Vec<_> = rows.iter().filter(|row| book.has(row)).collect();
    let cpu = |row: &Row| {
        let id = row.id.strip_prefix("i-")?;
        Some(spread(book.summary(&format!("n-{id}"), Column::MoteLxd)?))
    };
    let has_cpu = rows.iter().any(|row| cpu(row).is_some());
    let mut head = markdown::texts([""]);
    for (ours, theirs) in columns {
        head.extend(markdown::numbers(ours.map(Column::title)));
        head.extend(markdown::numbers([theirs.title(), "ratio"]));
    }
    head.extend(markdown::numbers(has_cpu.then_some("mote without a VM, µs of CPU")));
    head.extend(markdown::texts(["goal"]));
    let cells = rows.into_iter().map(|row| {
        let mut cells = vec![named(row)];
        for (ours, theirs) in columns {
            cells.extend(ours.map(|ours| cell(book, row, ours)));
            cells.extend([cell(book, row, theirs), ratio(book, row, theirs)]);
        }
        cells.extend(has_cpu.then(|| cpu(row).unwrap_or_default()));
        cells.push(goal(book, row));
        cells
    });
    markdown::table(&head, cells)
}

/// The title with the unit, which the table of instructions has above it.
fn named(row: &Row) -> String {
    if row.unit.is_empty() { row.title.to_owned() } else { format!("{}, {}", row.title, row.unit) }
}

const FRONT: [&str; 6] = ["bytes", "pss", "answered", "config", "exec", "put"];

pub fn into_readme(readme: &str, book: &Book) -> String {
    let titles = ["mote", "lxd-agent 5.0.2", "", "incus-agent 7.0.2", ""];
    let head = [markdown::texts([""]), markdown::numbers(titles), markdown::texts(["goal"])];
    let median = |row: &Row, column| {
        book.summary(row.id, column).map_or("-".into(), |summary| number(summary.median))
    };
    let rows = MEASURED.iter().filter(|row| book.has(row) && FRONT.contains(&row.id));
    let rows = rows.map(|row| {
        let mut cells = vec![named(row), median(row, Column::MoteLxd)];
        for theirs in [Column::LxdAgent, Column::IncusAgent7] {
            cells.extend([median(row, theirs), ratio(book, row, theirs)]);
        }
        cells.push(goal(book, row));
        cells
    });
    let text = format!(
        "{}\nMeasured by `scripts/bench` at {}: {} rounds, {} CPUs, QEMU {} with an emulated CPU ({}, {}), kernel {}. KVM was \
         not measured.\nThe mote column shows mote as LXD's agent; the ratio to incus-agent compares mote as Incus' agent. More rows and the method:\n[docs/results/bench.md](docs/results/bench.md).\n",
        markdown::table(&head.concat(), rows),
        book.said(COMMIT),
        book.said("rounds"),
        book.said("CPUs of the machine"),
        book.said("QEMU"),
        book.said("accelerator"),
        book.said(CPU),
        book.said("kernel of the VM"),
    );
    between(readme, MARKS, &text)
}

fn cell(book: &Book, row: &Row, column: Column) -> String {
    book.summary(row.id, column).map_or("-".into(), spread)
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
        Goal::As(_) => "as idle".into(),
    };
    let reached = match book.reached(row) {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "not known",
    };
    format!("{wanted}: {reached}")
}

#[cfg(test)]
mod tests {
    use super::super::book::tests::book;
    use super::*;

    #[test]
    fn compares_with_an_older_build() {
        let mut book = book();
        book.machine.push((BEFORE.into(), "037de6b".into()));
        book.add(Column::Before, vec![("root", Ok(3.0))]);
        assert!(older(&book).contains("| `GET /`, p50, ms | 2 | 3 | 1.50× |"));
    }
}
