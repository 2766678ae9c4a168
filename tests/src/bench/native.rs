//! CPU time of mote without a VM, over unix sockets: what its own code costs on this machine's CPU.
//! Workers and commands that it waited for are included.

use super::book::Found;
use crate::prelude::*;

/// Size of a file or an output, MiB: long enough for a clock of 10 ms.
const MIB: u32 = 128;

/// Measures all rows, µs for one operation or one MiB.
pub(super) fn found() -> Found {
    let pair = Pair::start("lxd", &["user.foo=bar"]);
    let sent = pair.scratch.0.join("sent");
    fs::write(&sent, noise(usize::try_from(MIB).expect("small") << 20)).expect("a file");
    let path = |name: &str| pair.scratch.0.join(name).to_str().expect("a plain path").to_owned();
    let (sent, there, back) = (path("sent"), path("there"), path("back"));
    let count = format!("count={}", MIB << 4);
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
        cost("n-out", 1, MIB, &|| {
            host(&["exec", "-T", "-n", NAME, "--", "dd", "if=/dev/zero", "bs=64k", &count]);
        }),
        cost("n-put", 1, MIB, &|| host(&["file", "push", NAME, &sent, &there])),
        cost("n-get", 1, MIB, &|| host(&["file", "pull", NAME, &there, &back])),
        cost("n-metrics", 60, 60, &|| host(&["metrics", NAME])),
    ]
}
