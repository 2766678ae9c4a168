//! Measures one agent in one VM, row by row. A failed step returns its reason; the next one runs.

use crate::prelude::*;

use chrono::DateTime;

use super::book::Found;

pub(super) const MEMORY: u32 = 384;
pub(super) const CONFIG: &str = "/1.0/config";
const BYTES: usize = 16 << 20;

struct Step {
    rows: &'static [&'static str],
    run: fn(&mut Visit) -> Found,
}

/// The steps in their order. The first step starts the agent and always runs. Memory is measured
/// when the agent is idle: 2 s after CONNECTED, and 1 s after the calls.
const STEPS: [Step; 5] = [
    Step { rows: &["answered", "told"], run: start },
    Step { rows: &["pss"], run: |visit| visit.memory(Duration::from_secs(2), "pss") },
    // After this step the agent has answered 300 calls.
    Step { rows: &["config", "root"], run: sequential },
    Step { rows: &["pss300"], run: |visit| visit.memory(Duration::from_secs(1), "pss300") },
    Step { rows: &["exec", "put", "get"], run: from_host },
];

pub(super) fn is_wanted(wanted: &dyn Fn(&str) -> bool) -> bool {
    STEPS.iter().flat_map(|step| step.rows).any(|row| wanted(row))
}

pub(super) fn visit(column: Column, wanted: &dyn Fn(&str) -> bool) -> Found {
    let all = || STEPS.iter().flat_map(|step| step.rows).filter(|row| wanted(row));
    let boot = || Visit::boot(column, &Spec { memory: MEMORY, ..world::spec(column) });
    let mut visit = match attempt(boot) {
        Ok(visit) => visit,
        Err(why) => return all().map(|row| (*row, Err(why.clone()))).collect(),
    };
    let mut found = Vec::new();
    for (index, step) in STEPS.iter().enumerate() {
        // The memory "after 300 calls" must follow 300 calls, even if their times are not wanted.
        let calls = step.rows.contains(&"config") && wanted("pss300");
        if index > 0 && !calls && !step.rows.iter().any(|row| wanted(row)) {
            continue;
        }
        found.extend(match attempt(|| (step.run)(&mut visit)) {
            Ok(found) => found,
            Err(why) => step.rows.iter().map(|row| (*row, Err(why.clone()))).collect(),
        });
    }
    found.retain(|(row, _)| wanted(row));
    found
}

pub(super) struct Visit {
    pub(super) column: Column,
    pub(super) guest: Guest,
    pub(super) world: World,
}

impl Visit {
    /// Boots the VM up to its shell, with the agent not yet started.
    pub(super) fn boot(column: Column, spec: &Spec) -> Self {
        let words = format!("{} mote.agent=later", spec.words);
        let mut world = World::boot(column, &Spec { words, ..spec.clone() }, &["user.foo=bar"]);
        let guest = world.vm.guest();
        Self { column, guest, world }
    }

    /// Reads a file of the agent's /proc; of all threads if the name begins with `task/*/`.
    pub(super) fn proc(&mut self, name: &str) -> String {
        self.guest.ok(&format!("cat /proc/$(cat /run/agent.pid)/{name}"))
    }

    /// The proportional set size, kB.
    fn memory(&mut self, settled: Duration, row: &'static str) -> Found {
        thread::sleep(settled);
        let text = self.proc("smaps_rollup");
        let pss = proc::kilobytes(&text, "Pss:").map(|kilobytes| kilobytes as f64);
        vec![(row, pss.ok_or_else(|| format!("no Pss in {text}")))]
    }

    /// Makes `calls` calls to devlxd one after another, by `mote-calls` in the guest, the same
    /// client for all agents. Returns the median of their times, ms.
    pub(super) fn calls(&mut self, target: &str, calls: u32) -> f64 {
        let command = format!("/opt/calls {} {target} {calls}", self.column.socket());
        let (code, output) = self.guest.sh_within(&command, Duration::from_secs(180));
        assert_eq!(code, 0, "{output}");
        output.trim().parse::<f64>().expect("a time") / 1e3
    }
}

/// Interval of polling the host. Long, as polling slows the guest; the stamps do not depend on it.
const LOOK: Duration = Duration::from_millis(200);
/// Prints a line, then does a service manager's work: a Go agent's set-up, and the agent's start.
const START: &str = "echo begin; [ ! -e /run/agent.setup ] || sh /run/agent.setup; \
                     start-stop-daemon -S -b -x /run/agent.start";

/// Waits for the kernel's random numbers, so that no agent's start includes that wait: the first
/// request takes a second without a hardware RNG, which the VMs of LXD and Incus have.
const RANDOM: &str = "head -c 1 /dev/random >/dev/null";

/// Start-up time on the host's clock. The host timestamps what it receives; a line on the guest's
/// serial port just before the agent's start marks the beginning.
pub(super) fn start(visit: &mut Visit) -> Found {
    let _none = visit.guest.ok(RANDOM);
    visit.guest.send(START);
    visit.guest.until("begin\n", BOOT);
    let begun = SystemTime::now();
    let (code, said) = visit.guest.reply(BOOT);
    assert_eq!(code, 0, "{said}");
    let look = || {
        thread::sleep(LOOK);
        Some(visit.world.host.state()).filter(|state| !state["last_put"].is_null())
    };
    let (state, _) = wait("PUT /1.0", BOOT, look);
    let put = &state["last_put"];
    let mut answered = millis(begun, &put["at"]);
    let mut told = put["ms"].as_f64().ok_or_else(|| state.to_string());
    if put["ok"] != true {
        let why = format!("the first PUT failed: {}", put["error"]);
        (answered, told) = (Err(why.clone()), Err(why));
        visit.world.connected(BOOT);
    }
    vec![("answered", answered), ("told", told)]
}

/// Returns the milliseconds up to `to`, a time of `mote-host`: `2026-11-21T10:55:38.123Z`.
fn millis(from: SystemTime, to: &Value) -> Result<f64, String> {
    let at = DateTime::parse_from_rfc3339(to.as_str().unwrap_or_default());
    let at = SystemTime::from(at.map_err(|error| format!("no time: {to}: {error}"))?);
    let time = at.duration_since(from).map(|time| time.as_secs_f64());
    Ok(1e3 * time.unwrap_or_else(|error| -error.duration().as_secs_f64()))
}

/// Measures 300 calls of a single devlxd client, one after another.
fn sequential(visit: &mut Visit) -> Found {
    let rows = [("config", CONFIG, 200), ("root", "/", 100)];
    rows.map(|(row, target, calls)| (row, Ok(visit.calls(target, calls)))).into()
}

/// Calls from the host (commands, files) by `mote-host`, the same client for all agents. The time
/// of a call is that of its process, TLS connections included. Failed commands are noted and not
/// counted: on a busy machine LXD 5.0.2 loses some that end before all of their sockets are
/// connected.
fn from_host(visit: &mut Visit) -> Found {
    const COMMANDS: usize = 8;
    let (host, scratch) = (&visit.world.host, visit.world.scratch.0.as_path());
    let (file, back) = (scratch.join("sent"), scratch.join("back"));
    fs::write(&file, noise(BYTES)).expect("a file");
    let begun = Instant::now();
    let failed: Vec<_> = (0..COMMANDS).filter_map(|_| host.exec(&["true"]).err()).collect();
    let done = (COMMANDS - failed.len()) as f64 / begun.elapsed().as_secs_f64();
    let put = attempt(|| rate(|| host.ok(&["file", "push", NAME, plain(&file), "/tmp/sent"])));
    let get = attempt(|| {
        rate(|| {
            host.ok(&["file", "pull", NAME, "/tmp/sent", plain(&back)]);
            let same = fs::read(&file).expect("the file") == fs::read(&back).expect("it");
            assert!(same, "the file came back changed");
        })
    });
    let mut found = vec![("exec", Ok(done)), ("put", put), ("get", get)];
    if let Some(why) = failed.last() {
        let failed = failed.len();
        found.push(("exec", Err(format!("{failed} of {COMMANDS} commands failed: {why}"))));
    }
    found
}

fn rate(moves: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    moves();
    BYTES as f64 / begun.elapsed().as_secs_f64() / 1e6
}

#[cfg(test)]
mod tests {
    use super::super::rows::MEASURED;
    use super::STEPS;

    #[test]
    fn each_row_of_a_vm_has_one_step() {
        let mut steps: Vec<&str> = STEPS.iter().flat_map(|step| step.rows).copied().collect();
        let mut rows = MEASURED.map(|row| row.id).to_vec();
        rows.retain(|row| *row != "bytes");
        steps.sort_unstable();
        rows.sort_unstable();
        assert_eq!(steps, rows);
    }
}
