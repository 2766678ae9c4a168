//! Instructions of a process, counted by valgrind's callgrind. The numbers vary only with
//! randomness and timing, and are the same on every machine with AVX2 (valgrind emulates one CPU
//! for all).

use std::process::Command;
use std::time::Duration;

use crate::{Scratch, wait};

/// Counts the instructions of processes that were started with [`Counter::by`].
#[derive(Debug)]
pub struct Counter {
    pipes: Scratch,
    by: [String; 5],
}

impl Counter {
    pub fn new(pipes: Scratch) -> Self {
        let prefix = format!("--vgdb-prefix={}", pipes.0.join("vgdb").display());
        let words = ["valgrind", "--quiet", "--tool=callgrind", "--callgrind-out-file=/dev/null"];
        let [valgrind, quiet, tool, out] = words.map(str::to_owned);
        Self { pipes, by: [valgrind, quiet, tool, out, prefix] }
    }

    /// Words to put before a command.
    pub fn by(&self) -> [&str; 5] {
        self.by.each_ref().map(String::as_str)
    }

    /// Instructions so far, once the process is idle.
    pub fn count(&self, pid: u32) -> u64 {
        let mut last = None;
        wait("an idle process", Duration::from_secs(60), || {
            let now = asleep(pid);
            (now.is_some() && std::mem::replace(&mut last, now.clone()) == now).then_some(())
        });
        self.look(pid)
    }

    /// Instructions of one of `times` actions, the least of three runs: occasional other work of
    /// the process does not count.
    pub fn of(&self, pid: u32, times: u64, mut action: impl FnMut()) -> u64 {
        let mut last = self.count(pid);
        let mut cheapest = u64::MAX;
        for _ in 0..3 {
            (0..times).for_each(|_| action());
            let now = self.count(pid);
            cheapest = cheapest.min((now - last) / times);
            last = now;
        }
        cheapest
    }

    pub fn once(&self, pid: u32, action: impl FnOnce()) -> u64 {
        let begun = self.count(pid);
        action();
        self.count(pid) - begun
    }

    fn look(&self, pid: u32) -> u64 {
        let output = Command::new("vgdb")
            .arg(format!("--vgdb-prefix={}", self.pipes.0.join("vgdb").display()))
            .arg(format!("--pid={pid}"))
            // A process that sleeps in a system call must be interrupted to answer.
            .arg("--max-invoke-ms=1")
            .args(["status", "internal"])
            .output()
            .expect("vgdb");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // `events-THREAD: COUNT`; lines with a second number are about frames.
        let of = |line: &str| -> Option<u64> {
            let (thread, count) = line.strip_prefix("events-")?.split_once(": ")?;
            thread.parse::<u32>().ok()?;
            count.trim().parse().ok()
        };
        let counts: Vec<_> = text.lines().filter_map(of).collect();
        assert!(!counts.is_empty(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        counts.iter().sum()
    }
}

/// The scheduler's statistics of each thread, if all of them sleep.
fn asleep(pid: u32) -> Option<Vec<String>> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("a living process");
    let thread = |entry: std::fs::DirEntry| {
        let read = |name: &str| std::fs::read_to_string(entry.path().join(name)).ok();
        let sleeps = read("stat")?.rsplit(") ").next()?.starts_with('S');
        sleeps.then(|| read("schedstat"))?
    };
    threads.flatten().map(thread).collect()
}
