//! Start, by the host's clock. The host stamps what it receives; a line on the guest's
//! serial port just before the agent's start gives its beginning.

use std::time::{Duration, SystemTime};

use chrono::DateTime;
use serde_json::Value;

use super::book::Found;
use crate::{BOOT, Column, Guest, Spec, World, wait};

/// Interval of polling the host. Long, as polling slows the guest; the stamps do not depend on it.
const LOOK: Duration = Duration::from_millis(200);
/// Prints a line, then does a service manager's work: a Go agent's set-up, and the agent's start.
const START: &str = "echo begin; [ ! -e /run/agent.setup ] || sh /run/agent.setup; \
                     start-stop-daemon -S -b -x /run/agent.start";

/// Waits for the kernel's random numbers. Without a device for them, which LXD's and Incus' VMs
/// have, the first request takes a second, which every agent's start would include.
const RANDOM: &str = "head -c 1 /dev/random >/dev/null";

pub(super) fn start(visit: &mut Visit) -> Found {
    let _none = visit.guest.ok(RANDOM);
    visit.guest.send(START);
    visit.guest.until("begin\n", BOOT);
    let begun = SystemTime::now();
    let (code, said) = visit.guest.reply(BOOT);
    assert_eq!(code, 0, "{said}");
    let look = || {
        std::thread::sleep(LOOK);
        Some(visit.world.host.state()).filter(|state| !state["last_put"].is_null())
    };
    let (state, _) = wait("PUT /1.0", BOOT, look);
    let put = &state["last_put"];
    let mut answered = moment(&put["at"]).map(|at| millis(begun, at));
    let mut told = put["ms"].as_f64().ok_or_else(|| state.to_string());
    if put["ok"] != true {
        let why = format!("the first PUT failed: {}", put["error"]);
        (answered, told) = (Err(why.clone()), Err(why));
        visit.world.connected(BOOT);
    }
    vec![("answered", answered), ("told", told)]
}

/// Reads a time as `mote-host` writes it: `2026-11-21T10:55:38.123Z`.
fn moment(value: &Value) -> Result<SystemTime, String> {
    let at = DateTime::parse_from_rfc3339(value.as_str().unwrap_or_default());
    at.map(Into::into).map_err(|error| format!("no time: {value}: {error}"))
}

fn millis(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(time) => time.as_secs_f64() * 1e3,
        Err(error) => -error.duration().as_secs_f64() * 1e3,
    }
}

/// Memory of the VM, MiB.
pub(super) const MEMORY: u32 = 384;

#[derive(Debug)]
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
}
