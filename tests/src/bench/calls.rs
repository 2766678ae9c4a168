//! Calls to devlxd by `mote-calls` in the guest, the same client for all agents.

use std::time::Duration;

use super::book::Found;
use super::rows::FLOOR;
use super::visit::Visit;

const LIMIT: Duration = Duration::from_secs(180);
/// Target of the calls that the host answers.
pub(super) const CONFIG: &str = "/1.0/config";

struct Said(String);

impl Said {
    fn get(&self, name: &str) -> f64 {
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        let found = self.0.split_whitespace().find_map(value);
        found.unwrap_or_else(|| panic!("no {name}: {}", self.0))
    }

    /// Median of the calls' times, ms.
    fn median(&self) -> f64 {
        self.get("p50") / 1e3
    }
}

/// Makes `calls` calls one after another, all of which must be answered.
fn all(visit: &mut Visit, target: &str, calls: u32) -> Said {
    let socket = visit.column.socket();
    let said = run_at(visit, socket, target, calls);
    assert!(said.get("failed") < 0.5, "calls failed: {}", said.0.trim());
    said
}

fn run_at(visit: &mut Visit, socket: &str, target: &str, calls: u32) -> Said {
    let command = format!("/opt/calls {socket} {target} 1 {calls}");
    let (code, output) = visit.guest.sh_within(&command, LIMIT);
    let said = Said(output);
    assert_eq!(code, 0, "{}", said.0);
    said
}

/// Makes calls by one client without recording their times.
pub(super) fn make(visit: &mut Visit, target: &str, calls: u32) {
    let _times = all(visit, target, calls);
}

/// Rows of one client: 300 calls.
pub(super) fn sequential(visit: &mut Visit) -> Found {
    let config = all(visit, CONFIG, 200);
    let root = all(visit, "/", 100);
    vec![("config", Ok(config.median())), ("root", Ok(root.median()))]
}

/// Measures the row of a program that only answers, called like `root`.
pub(super) fn floor(visit: &mut Visit) -> Found {
    const SOCKET: &str = "/run/floor";
    // The page has this row only for mote's VMs.
    if visit.column.program().is_some() {
        return Vec::new();
    }
    let start = "start-stop-daemon -S -b -m -p /run/floor.pid -x /opt/calls -- --answer";
    let there = format!("until [ -S {SOCKET} ]; do sleep 0.1; done");
    let _started = visit.guest.ok(&format!("{start} {SOCKET}; {there}"));
    let said = run_at(visit, SOCKET, "/", 100);
    let _ended = visit.guest.ok(&format!("kill $(cat /run/floor.pid); rm {SOCKET}"));
    vec![(FLOOR, Ok(said.median()))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_clients_values_by_name() {
        let said = Said("answered=20 failed=1 seconds=0.500000 p50=1500 p99=2000 why=x\n".into());
        assert_eq!(format!("{} {}", said.median(), said.get("failed")), "1.5 1");
    }
}
