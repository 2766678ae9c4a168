//! Shared directories (P§1.8, P§4.3): starts one worker process (`workers/mount`) per share and limits its time, so
//! that a mount that hangs blocks no other.

use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::mount::{MAX_MOUNTS, Wanted, wanted};
use mote_core::hostapi::policy::Capability;
use mote_core::json::Value;

use crate::agent::Agent;
use crate::runtime::clock::within;
use crate::runtime::digest::sha256;
use crate::runtime::log;
use crate::runtime::log::audit::{self, Quoted};
use crate::workers::run;

/// A worker's time limits: how long a device may take to appear, and when the worker is killed.
type Patience = (Duration, Duration);
/// At start: the devices exist, but their drivers may still be loading. STARTED waits for the mounts.
const START: Patience = (Duration::from_secs(2), Duration::from_secs(5));
/// After hotplug: Incus' own limit, 20 attempts 500 ms apart.
const PLUGGED: Patience = (Duration::from_millis(9500), Duration::from_secs(10));
/// Longest delay of the answer to LXD, which expects the share to be mounted then and waits 3 s (P§3.2).
const ANSWER: Duration = Duration::from_millis(2500);
/// Longest output of a worker, bytes; it is one line.
const LINE: usize = 16 * 1024;

/// Mounts the shares of `agent-mounts.json`; returns once each is mounted, failed or timed out.
///
/// # Cancellation
/// Workers still running are killed.
pub(crate) async fn at_start(agent: Rc<Agent>, list: Vec<u8>) {
    if !agent.policy.allows(Capability::Mounts) {
        return log::info(format_args!("policy: agent-mounts.json is not read"));
    }
    let list = match Value::parse(&list) {
        Ok(list) => list,
        Err(why) => return agent.report_error(format_args!("agent-mounts.json: {why}")),
    };
    let count = list.elements().count();
    if count > MAX_MOUNTS {
        agent.report_error(format_args!(
            "agent-mounts.json: only {MAX_MOUNTS} of {count} are mounted"
        ));
    }
    let tasks: Vec<_> = list
        .elements()
        .take(MAX_MOUNTS)
        .map(|entry| {
            let (task, entry) = (agent.clone(), entry.raw().to_owned());
            agent.task(async move { send(&task, entry.as_bytes(), START).await })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

/// Mounts or unmounts as a device event asks. Under LXD this is waited for, at most [`ANSWER`]; under
/// Incus it is not.
///
/// # Cancellation
/// Under LXD the worker is killed, under Incus it goes on.
pub(crate) async fn event(agent: &Rc<Agent>, event: Value<'_>) {
    match wanted(agent.flavour, event, sha256) {
        Ok(Wanted::Nothing) => return,
        Ok(_) => {}
        Err(why) => return agent.report_error(format_args!("device event: {why}")),
    }
    let (task, document) = (agent.clone(), event.raw().to_owned());
    let work = agent.task(async move {
        // One at a time and in order: a device that is added and removed must end up removed.
        let _permit = task.device_event_lock.clone().take().await;
        if !task.policy.allows(Capability::Mounts) {
            return log::info(format_args!("policy: a device event mounts nothing"));
        }
        send(&task, document.as_bytes(), PLUGGED).await;
    });
    match agent.flavour {
        Flavour::Lxd | Flavour::LxdOld => {
            let mut work = work;
            if within(ANSWER, &mut work).await.is_none() {
                log::info(format_args!("device {} is still being set up", name(event)));
                work.detach();
            }
        }
        Flavour::Incus => work.detach(),
    }
}

/// The device's name in the event; empty if there is none.
fn name(event: Value<'_>) -> String {
    let name = event.member("metadata").and_then(|device| device.member("name"));
    name.and_then(|name| name.string().ok()).unwrap_or_default()
}

async fn send(agent: &Rc<Agent>, document: &[u8], (patience, limit): Patience) {
    let millis = patience.as_millis().to_string();
    let done = run::run(agent, &["mount-worker", &millis], document, LINE, limit).await;
    match done {
        Ok(line) => {
            let line = String::from_utf8_lossy(&line);
            audit::note(format_args!("mount {}", Quoted(line.trim_end())));
        }
        Err(why) => agent.report_error(format_args!("mount: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_name_that_its_event_gives_it() {
        let name = |event: &str| name(Value::parse(event.as_bytes()).unwrap());
        assert_eq!(name(r#"{"type":"device","metadata":{"name":"d1"}}"#), "d1");
        assert_eq!(name(r#"{"type":"device","metadata":null}"#), "");
    }
}
