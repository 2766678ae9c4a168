//! Calls to devlxd by `mote-calls` in the guest, the same client for all agents.

use std::time::Duration;

use super::book::Found;
use super::rows::FLOOR;
use super::visit::{IMAGE, Visit};
use crate::column::Column;

/// Time limit of one run of the client.
const LIMIT: Duration = Duration::from_secs(180);
/// Target of the calls that the host answers.
pub(super) const CONFIG: &str = "/1.0/config";

/// Output of the client.
struct Said(String);

impl Said {
    fn get(&self, name: &str) -> f64 {
        let value = |word: &str| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        let found = self.0.split_whitespace().find_map(value);
        found.unwrap_or_else(|| panic!("no {name}: {}", self.0))
    }

    /// Reason of the last failed call.
    fn why(&self) -> &str {
        self.0.trim().split_once(" why=").map_or("", |(_, why)| why)
    }

    /// Answered calls per second.
    fn rate(&self) -> f64 {
        self.get("answered") / self.get("seconds")
    }

    /// A quantile of the calls' times, ms, such as `p99`.
    fn quantile(&self, percent: &str) -> f64 {
        self.get(percent) / 1e3
    }
}

/// Makes `calls` calls, all of which must be answered.
fn all(visit: &mut Visit, target: &str, clients: u32, calls: u32) -> Said {
    let said = run(visit, target, clients, calls);
    assert!(said.get("failed") < 0.5, "calls failed: {}", said.0.trim());
    said
}

/// Makes `calls` calls by `clients` clients at once.
fn run(visit: &mut Visit, target: &str, clients: u32, calls: u32) -> Said {
    let socket = visit.column.socket();
    run_at(visit, socket, target, clients, calls)
}

fn run_at(visit: &mut Visit, socket: &str, target: &str, clients: u32, calls: u32) -> Said {
    let command = format!("/opt/calls {socket} {target} {clients} {calls}");
    let (code, output) = visit.guest.sh_within(&command, LIMIT);
    let said = Said(output);
    assert_eq!(code, 0, "{}", said.0);
    said
}

/// Makes calls by one client without recording their times.
pub(super) fn make(visit: &mut Visit, target: &str, calls: u32) {
    let _times = all(visit, target, 1, calls);
}

/// Rows of one client: 300 calls.
pub(super) fn sequential(visit: &mut Visit) -> Found {
    let config = all(visit, CONFIG, 1, 200);
    let root = all(visit, "/", 1, 100);
    vec![
        ("config", Ok(config.quantile("p50"))),
        ("config99", Ok(config.quantile("p99"))),
        ("rate1", Ok(config.rate())),
        ("root", Ok(root.quantile("p50"))),
        ("root99", Ok(root.quantile("p99"))),
    ]
}

/// The row of calls like `root` that are answered by a program that does nothing else.
pub(super) fn floor(visit: &mut Visit) -> Found {
    const SOCKET: &str = "/run/floor";
    // The page has this row only for mote's VMs.
    if visit.column.program().is_some() {
        return Vec::new();
    }
    let start = "start-stop-daemon -S -b -m -p /run/floor.pid -x /opt/calls -- --answer";
    let there = format!("until [ -S {SOCKET} ]; do sleep 0.1; done");
    let _started = visit.guest.ok(&format!("{start} {SOCKET}; {there}"));
    let said = run_at(visit, SOCKET, "/", 1, 100);
    let _ended = visit.guest.ok(&format!("kill $(cat /run/floor.pid); rm {SOCKET}"));
    vec![(FLOOR, Ok(said.quantile("p50")))]
}

/// Rows of several clients at once. Failed calls are noted, and only answered ones are counted.
pub(super) fn at_once(visit: &mut Visit) -> Found {
    let mut found = Vec::new();
    for (clients, calls, rate, late) in [(8, 64, "rate8", "late8"), (64, 128, "rate64", "late64")] {
        let said = run(visit, CONFIG, clients, calls);
        found.push((rate, Ok(said.rate())));
        found.push((late, Ok(said.quantile("p99"))));
        if said.get("failed") > 0.5 {
            let why = format!("{} of {calls} calls failed: {}", said.get("failed"), said.why());
            found.push((rate, Err(why)));
        }
    }
    found
}

/// The row of an image export, discarded as it arrives. Incus' and LXD 5.0.2's agents lack it.
pub(super) fn image(visit: &mut Visit) -> Found {
    if visit.column != Column::MoteLxd {
        return Vec::new();
    }
    let said = all(visit, "/1.0/images/any/export", 1, 1);
    assert_eq!(format!("{}", said.get("bytes")), IMAGE.to_string(), "{}", said.0);
    vec![("image", Ok(said.get("bytes") / said.get("seconds") / 1e6))]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_client_says_is_read_by_its_names() {
        let said = Said("answered=20 failed=1 seconds=0.500000 p50=1500 p99=2000 why=x\n".into());
        assert_eq!(format!("{} {}", said.rate(), said.quantile("p50")), "40 1.5");
        assert_eq!(format!("{} {}", said.get("failed"), said.why()), "1 x");
    }
}
