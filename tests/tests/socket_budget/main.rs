//! The memory that peers can make the agent use is limited: attacks in a memory cgroup of 8 MiB, if
//! this machine allows one.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod answers;
mod commands;
mod events;

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use mote_tests::attack::{Cgroup, more_descriptors};
use mote_tests::conform::exec::{plain, run};
use mote_tests::{Client, Pair};

const PEAK: u64 = 6 * 1024;
/// Just below the limit of an event.
const MEGABYTE: usize = 1_000_000;
const LIMIT: Duration = Duration::from_secs(60);

/// An agent under attack. The fields' order matters: the cgroup must be empty when it is dropped.
struct Victim {
    pair: Pair,
    host: Client,
    cgroup: Cgroup,
    idle: u64,
}

impl Victim {
    fn start() -> Self {
        more_descriptors();
        let cgroup = Cgroup::new();
        let pair = cgroup.start(&["user.foo=bar"]);
        let host = pair.client();
        assert_eq!(run(&host, &plain(&["true"]), b"").unwrap().code, 0);
        Self::forget_peak(&pair);
        let idle = pair.memory("VmRSS");
        Self { pair, host, cgroup, idle }
    }

    /// Resets `VmHWM`.
    fn forget_peak(pair: &Pair) {
        fs::write(format!("/proc/{}/clear_refs", pair.agent.0.id()), "5").unwrap();
    }

    /// Checks that the agent runs, serves both sides and stayed within the limit.
    fn survived(&mut self, attack: &str) {
        if let Ok(Some(end)) = self.pair.agent.0.try_wait() {
            panic!("{attack}: the agent died: {end}; {}", self.pair.log());
        }
        self.host.forget();
        assert_eq!(run(&self.host, &plain(&["echo", "hi"]), b"").unwrap().out, "hi\n", "{attack}");
        assert_eq!(self.pair.ask("GET", "/1.0/config/user.foo").1, "bar", "{attack}");
        self.pair.assert_alive();
        // The agent may read data after the attack has ended, so measure last.
        let (idle, peak) = (self.idle, self.pair.memory("VmHWM"));
        let charged = self.cgroup.peak();
        println!("{attack}: {idle} kB idle, {peak} kB at its peak; charged: {charged}");
        assert!(peak < PEAK, "{attack}: {peak} kB");
    }
}

fn at_once<T: Send>(threads_of: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, work) = (AtomicU32::new(0), &work);
    let next = &next;
    std::thread::scope(|threads| {
        let threads: Vec<_> = (0..threads_of)
            .map(|_| {
                threads.spawn(move || {
                    let numbers = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
                    let numbers = numbers.map(|number| number as usize);
                    numbers.take_while(|number| *number < count).map(work).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}
