//! Calls to devlxd by `mote-calls` in the guest, the same client for all agents.

use std::time::Duration;

use super::book::Found;
use super::rows::FLOOR;
use super::start::Visit;

const LIMIT: Duration = Duration::from_secs(180);
/// Target of the calls that the host answers.
pub(super) const CONFIG: &str = "/1.0/config";

/// Makes `calls` calls one after another. Returns the median of their times, ms.
fn median(visit: &mut Visit, socket: &str, target: &str, calls: u32) -> f64 {
    let command = format!("/opt/calls {socket} {target} {calls}");
    let (code, output) = visit.guest.sh_within(&command, LIMIT);
    assert_eq!(code, 0, "{output}");
    output.trim().parse::<f64>().expect("a time") / 1e3
}

/// Makes calls whose times do not count.
pub(super) fn make(visit: &mut Visit, target: &str, calls: u32) {
    let socket = visit.column.socket();
    let _time = median(visit, socket, target, calls);
}

/// Rows of one client: 300 calls.
pub(super) fn sequential(visit: &mut Visit) -> Found {
    let socket = visit.column.socket();
    let rows = [("config", CONFIG, 200), ("root", "/", 100)];
    rows.map(|(row, target, calls)| (row, Ok(median(visit, socket, target, calls)))).into()
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
    let time = median(visit, SOCKET, "/", 100);
    let _ended = visit.guest.ok(&format!("kill $(cat /run/floor.pid); rm {SOCKET}"));
    vec![(FLOOR, Ok(time))]
}
