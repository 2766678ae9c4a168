//! Reports Ready once the conditions of `ready-when` in the guest's policy are met. A worker
//! process checks them, so the agent neither polls nor runs commands.

pub(crate) mod watch;

use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::ready::{Ready, ReadyState};
use mote_core::status::State;
use smol::future::{FutureExt, pending};

use crate::agent::Agent;
use crate::runtime::{Ended, log, sleep};
use crate::status::status_file::remember;
use crate::sys::sandbox;
use crate::workers::run::connected;

pub(crate) const COMMAND: &str = "ready-when";
/// Retry interval while the conditions hold but the host is unreachable.
const TRY: Duration = Duration::from_secs(1);
/// Pause before a failed worker is replaced.
const PAUSE: Duration = Duration::from_secs(10);

/// Waits until each condition has held once, then reports Ready. An application's report takes
/// precedence, even one from before this agent's start. A changed policy replaces the list and its
/// worker.
pub(crate) async fn run(agent: Rc<Agent>) {
    let is_said = || agent.ready.get().map(drop);
    loop {
        let seen = agent.policy.changed.seen();
        let list: Vec<_> = agent.policy.get().ready_when().map(str::to_owned).collect();
        let held = async {
            if list.is_empty() {
                return pending().await;
            }
            if sandbox::is_entered() {
                log::warn(format_args!("ready-when: not available in the sandbox"));
                return pending().await;
            }
            let words: Vec<_> =
                [COMMAND].into_iter().chain(list.iter().map(|one| &**one)).collect();
            // The process ends when its socket is closed.
            let Ok((child, _socket)) = connected(&agent, &words) else { return Some(false) };
            Some(child.ended().await == Ended::Code(0))
        };
        let said = async {
            agent.status_changed.until(is_said).await;
            Some(true)
        };
        let changed = async {
            agent.policy.changed.after(seen).await;
            None
        };
        match said.or(changed).or(held).await {
            Some(true) => break,
            Some(false) => {
                log::warn(format_args!("ready-when: worker failed; restarting it"));
                sleep(PAUSE).await;
            }
            None => {}
        }
    }
    while is_said().is_none() {
        if agent.state() == State::Connected {
            say(&agent).await;
        }
        sleep(TRY).await;
    }
}

async fn say(agent: &Agent) {
    // An application may have reported meanwhile.
    let unless_said = |ready: &Ready| ready.get().is_none().then_some(ReadyState::Ready);
    if let Some(state) = agent.report(&unless_said).await {
        log::info(format_args!("ready-when: all conditions held; reported Ready"));
        agent.ready.set(state);
        remember(agent);
    }
}
