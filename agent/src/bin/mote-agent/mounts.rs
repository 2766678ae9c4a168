//! Shared directories (P§1.8, 4.3): who is sent to mount them, and how long that is waited for. The
//! work is done by `mount_worker`, one process a share, so that one that hangs keeps no other.

use std::rc::Rc;
use std::time::Duration;

use mote_agent::flavour::Flavour;
use mote_agent::json;
use mote_agent::mount::{MOST, Wanted, wanted};
use mote_agent::policy::Capability;

use crate::agent::Agent;
use crate::clock::within;
use crate::mount_worker::hash;
use crate::{log, worker};

/// A worker's patience: how long a device may take to appear, and when it is killed at last.
type Patience = (Duration, Duration);
/// At start devices were there before us; but their drivers are loaded just now. STARTED waits.
const START: Patience = (Duration::from_secs(2), Duration::from_secs(5));
/// For what was plugged in: Incus' own limit, 20 times 500 ms.
const PLUGGED: Patience = (Duration::from_millis(9500), Duration::from_secs(10));
/// How long LXD waits for our answer is 3 s (P§3.2); it wants the share to be there by then.
const ANSWER: Duration = Duration::from_millis(2500);
/// Longest line of a worker, bytes.
const LINE: usize = 16 * 1024;

/// Mounts what `agent-mounts.json` names; done when all are, or when it takes too long.
///
/// # Cancellation
/// Workers that are still at it are killed.
pub(crate) async fn at_start(agent: Rc<Agent>, list: Vec<u8>) {
    if !agent.policy.allows(Capability::Mounts) {
        return log::info(format_args!("policy: agent-mounts.json is not read"));
    }
    if let Err(why) = json::check(&list) {
        return agent.trouble(&format!("agent-mounts.json: {why}"));
    }
    let count = json::elements(&list).count();
    if count > MOST {
        agent.trouble(&format!("agent-mounts.json: only {MOST} of {count} are mounted"));
    }
    let tasks: Vec<_> = json::elements(&list)
        .take(MOST)
        .map(|entry| {
            let (task, entry) = (agent.clone(), entry.to_vec());
            agent.executor.spawn(async move { send(&task, &entry, START).await })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

/// Does what a device event asks for: for LXD before it is answered, for Incus beside it.
///
/// # Cancellation
/// The work goes on by itself.
pub(crate) async fn event(agent: &Rc<Agent>, event: &[u8]) {
    match wanted(agent.flavour, event, hash) {
        Ok(Wanted::Nothing) => return,
        Ok(_) => {}
        Err(why) => return agent.trouble(&format!("device event: {why}")),
    }
    if !agent.policy.allows(Capability::Mounts) {
        return log::info(format_args!("policy: a device event mounts nothing"));
    }
    let (task, event) = (agent.clone(), event.to_vec());
    let work = agent.executor.spawn(async move {
        // One after the other: a device that comes and goes is gone in the end.
        let _turn = task.plugging.clone().take().await;
        send(&task, &event, PLUGGED).await;
    });
    match agent.flavour {
        Flavour::Lxd | Flavour::LxdOld => {
            let mut work = work;
            if within(ANSWER, &mut work).await.is_none() {
                log::info(format_args!("a device takes its time; the host is answered before"));
                work.detach();
            }
        }
        Flavour::Incus => work.detach(),
    }
}

async fn send(agent: &Rc<Agent>, document: &[u8], (patience, limit): Patience) {
    let millis = patience.as_millis().to_string();
    let done = worker::run(agent, &["mount-worker", &millis], document, LINE, limit).await;
    match done {
        Ok(line) => {
            log::info(format_args!("mount: {}", String::from_utf8_lossy(&line).trim_end()));
        }
        Err(why) => agent.trouble(&format!("mount: {why}")),
    }
}
