//! Says Ready by itself once what the guest's file asks for has been seen (`ready-when`), in place of an application. A process
//! of its own looks: this binary again. So the agent does nothing until that has ended, and runs no commands.

pub(crate) mod watch;

use std::rc::Rc;
use std::time::Duration;

use mote_core::devlxd::ready::ReadyState;
use mote_core::status::State;
use smol::future::FutureExt;
use smol::future::pending;

use crate::agent::{Agent, READY_LOCK_PERMITS};
use crate::runtime::children::Ended;
use crate::runtime::clock::sleep;
use crate::runtime::log;
use crate::status::status_file::remember;
use crate::sys::sandbox;
use crate::workers::run::connected;

/// The command of the process that looks.
pub(crate) const COMMAND: &str = "ready-when";
/// Interval of tries once all conditions have held and the host cannot be told.
const TRY: Duration = Duration::from_secs(1);
/// Pause until another process looks in place of one that has been killed, or could not be started.
const PAUSE: Duration = Duration::from_secs(10);

/// Waits for all conditions, each once, then tells the host. An application that says something is believed instead, also
/// one of before this agent's start. A policy that changes meanwhile replaces the list, and ends what runs by the old one.
pub(crate) async fn run(agent: Rc<Agent>) {
    let is_said = || agent.ready.borrow().get().map(drop);
    loop {
        let seen = agent.policy.changed.seen();
        let list: Vec<_> = agent.policy.get().ready_when().map(str::to_owned).collect();
        let held = async {
            if list.is_empty() {
                return pending().await;
            }
            if sandbox::is_entered() {
                log::warn(format_args!("ready-when: cannot look from the sandbox"));
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
                log::warn(format_args!("ready-when: its process failed; starting it again"));
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

/// Says Ready in place of an application.
async fn say(agent: &Agent) {
    let _exclusive = agent.ready_lock.clone().take_many(READY_LOCK_PERMITS).await;
    // An application may have been faster.
    if agent.ready.borrow().get().is_none() && agent.tell(ReadyState::Ready).await {
        log::info(format_args!("ready-when holds: Ready"));
        remember(agent, ReadyState::Ready);
    }
}
