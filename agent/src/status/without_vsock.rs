//! The status channel without vsock under Incus (P§2.4). The host cannot call, so mote writes the
//! guest's state to the status port after every STARTED; Incus 7.0.1 and later read it there. If
//! the policy denies the state, mote writes only STARTED.

use std::rc::Rc;
use std::time::Duration;

use mote_core::hostapi::policy::Capability;
use mote_core::status::{STARTED_LINE, STOPPED_LINES, State};
use smol::future::FutureExt;

use crate::agent::{About, Agent};
use crate::runtime::{log, now, sleep};
use crate::status::port::{self, Port};
use crate::status::pump::waits;
use crate::status::status_file;
use crate::workers::run;

/// Interval between announcements, as in the Go agents (P§2.2).
const PACE: Duration = Duration::from_secs(5);
/// Size of the host's ring, in bytes (P§2.1). A longer state would overwrite its STARTED.
const RING: usize = 16 * 1024;

pub(crate) enum Outcome {
    Stopped,
    /// The guest has vsock after all, so the host can call.
    Listening,
}

/// Announces the agent with its state until STOPPED is written, or until `listens` returns that the
/// host can call.
pub(crate) async fn run(agent: Rc<Agent>, mut listens: impl FnMut() -> bool) -> Outcome {
    let mut reported = String::new();
    loop {
        let seen = agent.status_changed.seen();
        // Discard the state machine's actions; only whether it has stopped matters.
        while agent.status.borrow_mut().poll(now()).is_some() {}
        let found = port::find(&agent.options);
        let path = found.as_ref().map(|found| found.path.clone()).ok();
        match found {
            Ok(_) => agent.clear_error(About::Port),
            Err(why) => {
                let known = agent.errors.borrow_mut().about(About::Port).clone();
                if known.is_none_or(|known| !known.ends_with(&why)) {
                    waits(&agent, &why);
                }
            }
        }
        status_file::update(&agent, path.as_deref(), &mut reported);
        let stopped = agent.status.borrow().state() == State::Stopped;
        if !stopped && listens() {
            return Outcome::Listening;
        }
        let text = if stopped { STOPPED_LINES.to_vec() } else { started(&agent).await };
        if let Some(path) = path
            && let Err(error) = Port::open(&path).and_then(|port| port.write(&text))
        {
            log::debug(format_args!("cannot write to {}: {error}", path.display()));
        }
        if stopped {
            return Outcome::Stopped;
        }
        sleep(PACE).or(agent.status_changed.after(seen)).await;
        agent.woken.raise();
    }
}

/// Returns STARTED, followed by the state if the policy allows it and it is available.
async fn started(agent: &Agent) -> Vec<u8> {
    let mut text = STARTED_LINE.to_vec();
    if !agent.policy.allows(Capability::State) {
        return text;
    }
    let most = RING - text.len() - 1;
    match run::report(agent, "state", most).await {
        Ok(json) => {
            text.extend_from_slice(json.trim_ascii());
            text.push(b'\n');
        }
        Err(why) => log::warn(format_args!("no state: {why}")),
    }
    text
}
