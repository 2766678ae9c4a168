//! Cost of an idle agent, and guest instructions of one call: growth of the kernel's own counters
//! of all threads of the agent.

pub mod counted;

use std::time::Duration;

use super::attempt::attempt;
use super::book::Found;
use super::visit::{MEMORY, Visit};
use super::{calls, start};
use crate::column::Column;
use crate::vm::Spec;
use crate::world;

/// Wait after CONNECTED before idleness is measured: garbage collectors and first heartbeats.
const SETTLED: Duration = Duration::from_secs(10);
/// Length of a measurement of idleness; figures are per minute.
const WINDOW: Duration = Duration::from_secs(30);
/// Number of calls before counting.
const WARM: u32 = 20;
/// Number of calls counted.
const CALLS: u32 = 50;

/// Rows of instructions, and the targets of their calls.
const CONFIG: (&str, &str) = ("instructions", calls::CONFIG);
const ROOT: (&str, &str) = ("instructions0", "/");

/// Sums of the counters of all threads.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spent {
    /// Instructions in user space and kernel: CPU time in ns of the guest's clock.
    instructions: f64,
    /// Context switches, voluntary and not.
    switches: f64,
}

impl Spent {
    pub(super) fn read(visit: &mut Visit) -> Self {
        Self::parse(&visit.proc("task/*/schedstat"), &visit.proc("task/*/status"))
    }

    fn parse(schedstat: &str, status: &str) -> Self {
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<f64>().ok());
        let first = |line: &str| number(line.split_whitespace().next());
        let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
        Self {
            instructions: schedstat.lines().filter_map(first).sum(),
            switches: switches.filter_map(|line| number(line.split_whitespace().last())).sum(),
        }
    }

    /// The instructions, a whole number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of u64")]
    pub(super) fn count(self) -> u64 {
        self.instructions as u64
    }

    /// The context switches, a whole number.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of u64")]
    pub(super) fn wakeups(self) -> u64 {
        self.switches as u64
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            instructions: self.instructions - before.instructions,
            switches: self.switches - before.switches,
        }
    }
}

/// Measures idleness in CONNECTED, `windows` times: all agents at once, each in its VM, which
/// mostly sleeps.
pub(super) fn idle(columns: &[Column], windows: u32) -> Vec<(Column, Found)> {
    let failed = |why: &String| vec![("idle", Err(why.clone())), ("wakeups", Err(why.clone()))];
    let mut visits: Vec<(Column, Result<Visit, String>)> = Vec::new();
    for column in columns {
        let spec = counting(*column);
        visits.push((*column, attempt(|| started(Visit::boot(*column, &spec)))));
    }
    std::thread::sleep(SETTLED);
    let mut found = Vec::new();
    let minutes = WINDOW.as_secs_f64() / 60.0;
    for _ in 0..windows {
        let mut read = || -> Vec<_> {
            let ready = |visit: &mut Result<Visit, String>| {
                let visit = visit.as_mut().map_err(|why| why.clone())?;
                attempt(|| Spent::read(visit))
            };
            visits.iter_mut().map(|(_, visit)| ready(visit)).collect()
        };
        let before = read();
        std::thread::sleep(WINDOW);
        for ((column, before), after) in columns.iter().zip(before).zip(read()) {
            let spent = before.and_then(|before| Ok(after?.since(before)));
            found.push((
                *column,
                match spent {
                    Ok(spent) => vec![
                        ("idle", Ok((spent.instructions / minutes).round())),
                        ("wakeups", Ok((spent.switches / minutes).round())),
                    ],
                    Err(why) => failed(&why),
                },
            ));
        }
    }
    found
}

/// A VM whose clock advances by 1 ns per instruction, and in real time while it sleeps. The
/// kernel's CPU times use that clock, so they do not depend on the load of the machine.
pub(super) fn counting(column: Column) -> Spec {
    // The RTC uses the same clock. Otherwise the guest's clock would fall behind on a busy machine, and the agent would see a pause.
    let words = ["-icount", "shift=0,sleep=on", "-rtc", "clock=vm"];
    let extra = words.map(str::to_owned).into();
    Spec { memory: MEMORY, extra, ..world::spec(column) }
}

fn started(mut visit: Visit) -> Visit {
    let _times = start::start(&mut visit);
    visit
}

/// Measures guest instructions of the agent's threads per call.
pub(super) fn instructions(column: Column) -> Found {
    let spec = counting(column);
    let mut visit = match attempt(|| started(Visit::boot(column, &spec))) {
        Ok(visit) => visit,
        Err(why) => return [CONFIG, ROOT].map(|(row, _)| (row, Err(why.clone()))).into(),
    };
    let mut count = |target: &str| {
        calls::make(&mut visit, target, WARM);
        let before = Spent::read(&mut visit);
        calls::make(&mut visit, target, CALLS);
        (Spent::read(&mut visit).since(before).instructions / f64::from(CALLS)).round()
    };
    [CONFIG, ROOT].map(|(row, target)| (row, attempt(|| count(target)))).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_all_threads_are_added() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n\
                      Name:\ta\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t0\n";
        let spent = Spent::parse("1000 7 3\n500 1 1\n", status);
        assert_eq!(spent, Spent { instructions: 1500.0, switches: 17.0 });
        let before = Spent { instructions: 500.0, switches: 7.0 };
        assert_eq!(spent.since(before), Spent { instructions: 1000.0, switches: 10.0 });
    }
}
