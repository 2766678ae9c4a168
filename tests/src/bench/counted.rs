//! Guest instructions of an agent, including the kernel's. The guest's clock advances by 1 ns per
//! instruction, so CPU times are numbers of instructions, whatever the machine's load.

use super::book::Found;
use super::rows::{self, COUNTED};
use super::steps::{self, MEMORY, Visit};
use crate::prelude::*;

/// The CPU of the VMs: the newest that QEMU emulates, with AES and AVX2 like today's hosts.
pub const CPU: &str = "max";

/// Size of a counted transfer, MiB; the cost of an empty one is subtracted.
const MIB: u32 = 4;
/// Wait after CONNECTED, until the start is complete.
const SETTLED: Duration = Duration::from_secs(3);
/// Wait after the host has its answer, until the guest has closed sockets and reaped children.
const TRAILING: Duration = Duration::from_millis(300);
/// Repetitions. The smallest result is used, because the kernel's own work only adds to it.
const TIMES: usize = 3;
const MINUTE: Duration = Duration::from_secs(60);

/// Title of a row, and its number of instructions.
pub type Row = (&'static str, u64);

/// Measures the bench's rows in their units: millions of instructions, or a number of wake-ups.
pub(super) fn found(column: Column) -> Found {
    let rows = match attempt(|| all(column)) {
        Ok((_, rows)) => rows,
        Err(why) => return COUNTED.map(|row| (row.id, Err(why.clone()))).into(),
    };
    let found = |row: rows::Row| {
        let count = rows.iter().find(|(title, _)| *title == row.title);
        let unit = if row.id.starts_with("i-") { 1e6 } else { 1.0 };
        let count = count.map(|(_, count)| *count as f64 / unit);
        (row.id, count.ok_or_else(|| "not counted".to_owned()))
    };
    COUNTED.map(found).into()
}

/// Measures all rows. Returns the guest's kernel too, such as `6.1`, which causes most of the cost.
pub fn all(column: Column) -> (String, Vec<Row>) {
    let mut visit = Visit::boot(column, &counting(column));
    let kernel = visit.guest.ok("uname -r").split('.').take(2).collect::<Vec<_>>().join(".");
    let mut rows = Vec::new();
    let begun = busy(&mut visit);
    let _times = steps::start(&mut visit);
    thread::sleep(SETTLED);
    rows.push(("start to CONNECTED", busy(&mut visit) - begun));
    for (row, target) in [("`GET /1.0/config`", steps::CONFIG), ("`GET /`", "/")] {
        rows.push((row, of_calls(&mut visit, target)));
    }
    rows.push(("`exec true`", least(&mut visit, &|visit| run(visit, &["true"], 0))));
    let transfers: [(&str, &Transfer); 4] = [
        ("`exec`, 1 MiB of input", &|visit, bytes| {
            run(visit, &["dd", "of=/dev/null", "bs=64k"], bytes)
        }),
        ("`exec`, 1 MiB of output", &|visit, bytes| {
            let count = format!("count={}", bytes >> 16);
            run(visit, &["dd", "if=/dev/zero", "bs=64k", &count], 0);
        }),
        ("SFTP, 1 MiB put", &|visit, bytes| {
            let file = visit.world.scratch.0.join(format!("{bytes}"));
            visit.world.host.ok(&["file", "push", NAME, plain(&file), &format!("/tmp/{bytes}")]);
        }),
        ("SFTP, 1 MiB got", &|visit, bytes| {
            let back = visit.world.scratch.0.join("back");
            visit.world.host.ok(&["file", "pull", NAME, &format!("/tmp/{bytes}"), plain(&back)]);
        }),
    ];
    for bytes in [0, MIB << 20] {
        let file = visit.world.scratch.0.join(format!("{bytes}"));
        fs::write(file, noise(usize::try_from(bytes).expect("a few MiB"))).expect("a file");
    }
    for (row, transfer) in transfers {
        let mut of = |bytes| least(&mut visit, &|visit| transfer(visit, bytes));
        rows.push((row, of(MIB << 20).saturating_sub(of(0)) / u64::from(MIB)));
    }
    rows.push(("metrics", least(&mut visit, &|visit| visit.world.host.ok(&["metrics", NAME]))));
    let idle = idle(&mut visit);
    rows.push(("an idle minute", idle.instructions));
    rows.push(("wake-ups in an idle minute", idle.switches));
    (kernel, rows)
}

/// A VM whose clock advances by 1 ns per instruction, and in real time while it sleeps. The
/// kernel's CPU times use that clock, so they do not depend on the load of the machine.
fn counting(column: Column) -> Spec {
    // The RTC uses the same clock. Otherwise the guest's clock would fall behind on a busy machine,
    // and the agent would detect a pause.
    let words = ["-icount", "shift=0,sleep=on", "-rtc", "clock=vm", "-cpu", CPU];
    let extra = words.map(str::to_owned).into();
    Spec { memory: MEMORY, extra, ..world::spec(column) }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Spent {
    /// Instructions in user space and kernel: CPU time in ns of the guest's clock.
    instructions: u64,
    /// Context switches, voluntary and not.
    switches: u64,
}

impl Spent {
    fn read(visit: &mut Visit) -> Self {
        Self::parse(&visit.proc("task/*/schedstat"), &visit.proc("task/*/status"))
    }

    fn parse(schedstat: &str, status: &str) -> Self {
        let number = |word: Option<&str>| word.and_then(|word| word.parse::<u64>().ok());
        let first = |line: &str| number(line.split_whitespace().next());
        let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
        Self {
            instructions: schedstat.lines().filter_map(first).sum(),
            switches: switches.filter_map(|line| number(line.split_whitespace().last())).sum(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            instructions: self.instructions - before.instructions,
            switches: self.switches - before.switches,
        }
    }
}

type Transfer = dyn Fn(&mut Visit, u32);

fn run(visit: &Visit, command: &[&str], bytes: u32) {
    let file = File::open(visit.world.scratch.0.join(format!("{bytes}")));
    let args = [&["exec", "-T", NAME, "--"], command].concat();
    let mut mote_host = visit.world.host.command(&args);
    // For 0 bytes there is no file, so the command gets no input, like `exec true`.
    mote_host.stdin(file.map_or_else(|_| Stdio::null(), Into::into));
    let output = mote_host.output().expect("mote-host");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Counts the instructions of the whole guest, including the kernel threads that move packets.
fn least(visit: &mut Visit, action: &dyn Fn(&mut Visit)) -> u64 {
    action(visit);
    let mut count = |act: bool| {
        let before = busy(visit);
        if act {
            action(visit);
        }
        thread::sleep(TRAILING);
        busy(visit) - before
    };
    let nothing = (0..TIMES).map(|_| count(false)).min().unwrap_or(0);
    (0..TIMES).map(|_| count(true)).min().unwrap_or(0).saturating_sub(nothing)
}

/// Instructions of the agent for one call: the smallest mean of several batches. Whether the host's
/// records arrive together decides how often the agent wakes, and a busy host splits them.
fn of_calls(visit: &mut Visit, target: &str) -> u64 {
    const WARM: u32 = 150;
    const CALLS: u32 = 20;
    visit.calls(target, WARM);
    let mut batch = || {
        let before = Spent::read(visit);
        visit.calls(target, CALLS);
        Spent::read(visit).since(before).instructions / u64::from(CALLS)
    };
    (0..TIMES).map(|_| batch()).min().unwrap_or(0)
}

fn idle(visit: &mut Visit) -> Spent {
    let before = Spent::read(visit);
    thread::sleep(MINUTE);
    Spent::read(visit).since(before)
}

fn busy(visit: &mut Visit) -> u64 {
    total(&visit.guest.ok("cat /proc/schedstat"))
}

/// Returns the tasks' time on each CPU: the seventh figure (Documentation/scheduler/sched-stats).
fn total(schedstat: &str) -> u64 {
    let cpus = schedstat.lines().filter(|line| line.starts_with("cpu"));
    cpus.filter_map(|line| line.split_whitespace().nth(7)?.parse::<u64>().ok()).sum()
}

/// Size of a file or an output, MiB: long enough for a clock of 10 ms.
const LONG: u32 = 128;

/// Measures all rows of mote without a VM, over unix sockets: what its own code costs on this
/// machine's CPU, in µs for one operation or one MiB. Workers and commands that it waited for are
/// included.
pub(super) fn native() -> Found {
    let pair = Pair::start("lxd", &["user.foo=bar"]);
    let sent = pair.scratch.0.join("sent");
    fs::write(&sent, noise(usize::try_from(LONG).expect("small") << 20)).expect("a file");
    let path = |name: &str| pair.scratch.0.join(name).to_str().expect("a plain path").to_owned();
    let (sent, there, back) = (path("sent"), path("there"), path("back"));
    let count = format!("count={}", LONG << 4);
    let (pid, pair) = (pair.agent.0.id(), &pair);
    let cost = |id, times: u32, operations: u32, act: &dyn Fn()| {
        let cost = attempt(|| {
            let before = proc::ticks_with_children(pid);
            (0..times).for_each(|_| act());
            (proc::ticks_with_children(pid) - before) as f64 * 1e4 / f64::from(operations)
        });
        (id, cost)
    };
    let ask = |target: &'static str| move || assert_eq!(pair.ask("GET", target).0, 200);
    let host = |args: &[&str]| drop(pair.host.run(args));
    vec![
        cost("n-root", 5_000, 5_000, &ask("/")),
        cost("n-config", 1_000, 1_000, &ask("/1.0/config")),
        cost("n-exec", 60, 60, &|| host(&["exec", "-T", "-n", NAME, "--", "true"])),
        cost("n-out", 1, LONG, &|| {
            host(&["exec", "-T", "-n", NAME, "--", "dd", "if=/dev/zero", "bs=64k", &count]);
        }),
        cost("n-put", 1, LONG, &|| host(&["file", "push", NAME, &sent, &there])),
        cost("n-get", 1, LONG, &|| host(&["file", "pull", NAME, &there, &back])),
        cost("n-metrics", 60, 60, &|| host(&["metrics", NAME])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_the_times_of_all_cpus() {
        let text = "version 15\ntimestamp 4294\ncpu0 0 0 0 0 0 0 7000 1 2\ndomain0 1 2 3 4 5 6 7 8\n\
                    cpu1 0 0 0 0 0 0 50 1 2\n";
        assert_eq!(total(text), 7050);
    }

    #[test]
    fn adds_the_counters_of_all_threads() {
        let status = "Name:\ta\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t2\n\
                      Name:\ta\nvoluntary_ctxt_switches:\t10\nnonvoluntary_ctxt_switches:\t0\n";
        let spent = Spent::parse("1000 7 3\n500 1 1\n", status);
        assert_eq!(spent, Spent { instructions: 1500, switches: 17 });
        let before = Spent { instructions: 500, switches: 7 };
        assert_eq!(spent.since(before), Spent { instructions: 1000, switches: 10 });
    }
}
