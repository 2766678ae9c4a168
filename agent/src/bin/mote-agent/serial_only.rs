//! Life without vsock under Incus (P§2.4): the host can call nothing, so its instance state goes
//! through the status port with every STARTED. Incus 7.0.1 and later read it there. A guest that
//! denies its host the state says STARTED alone.

use std::rc::Rc;
use std::time::Duration;

use futures_lite::FutureExt;
use mote_agent::policy::Capability;
use mote_agent::status::{GONE, HERE, State};

use crate::agent::Agent;
use crate::clock::{now, sleep};
use crate::log;
use crate::port::{self, Port};
use crate::report;
use crate::worker;

/// Between two lines, as the Go agents have it (P§2.2).
const PACE: Duration = Duration::from_secs(5);
/// The host's ring, bytes (P§2.1). What does not fit into it, with STARTED, would push it out.
const RING: usize = 16 * 1024;

/// Tells the state until STOPPED is said.
pub(crate) async fn run(agent: Rc<Agent>) {
    let mut reported = String::new();
    loop {
        let seen = agent.status_changed.seen();
        // The status machine has nobody to talk to here; only its end counts.
        while agent.status.borrow_mut().poll(now()).is_some() {}
        let found = port::discover(&agent.options.root);
        let path = agent.options.port.clone().or(found.map(|found| found.path));
        report::update(&agent, path.as_deref(), &mut reported);
        let stopped = agent.status.borrow().state() == State::Stopped;
        let text = if stopped { GONE.to_vec() } else { started(&agent).await };
        if let Some(path) = path
            && let Err(error) = Port::open(&path).and_then(|port| port.write(&text))
        {
            log::debug(format_args!("cannot write to {}: {error}", path.display()));
        }
        if stopped {
            return;
        }
        sleep(PACE).or(agent.status_changed.after(seen)).await;
    }
}

/// STARTED, and the state if the host may have it and it can be had.
async fn started(agent: &Agent) -> Vec<u8> {
    let mut text = HERE.to_vec();
    if !agent.policy.allows(Capability::State) {
        return text;
    }
    let most = RING - text.len() - 1;
    match worker::report(agent, "state", most).await {
        Ok(json) => {
            text.extend_from_slice(json.trim_ascii());
            text.push(b'\n');
        }
        Err(why) => log::warn(format_args!("no state: {why}")),
    }
    text
}
