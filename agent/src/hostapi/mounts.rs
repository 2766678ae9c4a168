//! Mounts shared directories (P§1.8, P§4.3): starts one worker process (`workers/mount`) per share
//! and limits its time, so that a mount that hangs blocks no other.

use std::cell::Cell;
use std::fmt::Arguments;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::mount::{MAX_MOUNTS, Wanted, is_answered, refusal, wanted};
use mote_core::hostapi::policy::Capability;
use mote_core::json::Value;

use crate::agent::Agent;
use crate::runtime::{
    io_error, log, log::audit, log::audit::Quoted, log::printable, sha256, within,
};
use crate::sys::process_id;
use crate::workers::run;

/// A worker's time limits: how long a device may take to appear, and when the worker is killed.
type Timeouts = (Duration, Duration);
/// At start, the devices exist, but drivers may still be loading. STARTED waits for the mounts.
const START: Timeouts = (Duration::from_secs(2), Duration::from_secs(5));
/// After a hot-plug, as long as Incus' agent: 20 attempts 500 ms apart.
const PLUGGED: Timeouts = (Duration::from_millis(9500), Duration::from_secs(10));
/// Maximum delay of the answer to LXD, which waits 3 s for the share to be mounted (P§3.2).
const ANSWER: Duration = Duration::from_millis(2500);
/// Memory that a waiting device event needs in addition to its document, in bytes.
const TASK: usize = 16 * 1024;
/// Maximum size of a worker's output, one line, in bytes.
const LINE: usize = 16 * 1024;

/// Starts a worker that reads `agent-mounts.json` again after the host was lost and mounts what is
/// missing, because events sent meanwhile are lost (P§1.8).
pub(crate) async fn again(agent: Rc<Agent>) {
    if !agent.options.is_early() && agent.policy.allows(Capability::Mounts) {
        // Keeps the order of this and device events.
        let _permit = agent.device_event_lock.clone().take().await;
        drop(send(&agent, &[], START).await);
    }
}

/// Mounts the shares of `agent-mounts.json`; returns once each is mounted, failed or timed out.
/// Cancellation: workers still running are killed.
pub(crate) async fn at_start(agent: Rc<Agent>, list: Vec<u8>) {
    if !agent.policy.allows(Capability::Mounts) {
        return log::info(format_args!("policy: ignoring agent-mounts.json"));
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
            agent.task(async move { drop(send(&task, entry.as_bytes(), START).await) })
        })
        .collect();
    for task in tasks {
        task.await;
    }
}

/// Mounts or unmounts for a device event. Under LXD, waits for the result up to [`ANSWER`]; under
/// Incus, does not wait.
///
/// Returns the error for the host, in LXD's words, if it expects one (P§4.3).
///
/// Under LXD the worker is killed; under Incus it continues.
pub(crate) async fn event(agent: &Rc<Agent>, event: Value<'_>) -> Option<String> {
    let source = match wanted(agent.flavour, event, sha256) {
        Ok(Wanted::Nothing) => return None,
        Ok(Wanted::Mount { source, .. }) => source,
        Ok(_) => String::new(),
        Err(why) => {
            let why = refusal(event, why);
            agent.report_error(format_args!("device event: {why}"));
            return answer(agent, event, format_args!("{why}"));
        }
    };
    let why = carry_out(agent, event).await.err()?;
    let source = Quoted(&source);
    answer(agent, event, format_args!("Failed hotpluging device {source}: {why}"))
}

/// Returns the text for the host, if it expects one. The text may contain names from the guest, and
/// a terminal of the host prints it.
fn answer(agent: &Agent, event: Value<'_>, text: Arguments<'_>) -> Option<String> {
    is_answered(agent.flavour, event).then(|| printable(LINE, false, text))
}

/// Runs a worker for the event once earlier events are handled. The worker continues after
/// [`ANSWER`], because a slow guest may see the device late.
async fn carry_out(agent: &Rc<Agent>, event: Value<'_>) -> io::Result<()> {
    let (task, document) = (agent.clone(), event.raw().to_owned());
    // A worker may take 10 s, and a host may send events faster.
    let Some(share) = agent.operations.memory.try_take_many(document.len() + TASK) else {
        log::warn(format_args!("too many device events at once"));
        return Err(io_error("too many device events at once"));
    };
    let outcome = Rc::new(Cell::new(Ok(())));
    let result = outcome.clone();
    let mut work = agent.task(async move {
        let _share = share;
        // Keeps the order: a device that is added and then removed must end up removed.
        let _permit = task.device_event_lock.clone().take().await;
        result.set(if task.policy.allows(Capability::Mounts) {
            send(&task, document.as_bytes(), PLUGGED).await
        } else {
            log::info(format_args!("policy: ignoring a device event"));
            Err(io_error("the guest's policy does not allow mounts"))
        });
    });
    if agent.flavour == Flavour::Incus {
        work.detach();
    } else if within(ANSWER, &mut work).await.is_none() {
        work.detach();
        return Err(io_error("not mounted yet; the agent keeps trying for a few seconds"));
    }
    outcome.replace(Ok(()))
}

/// Runs a worker; without a document, for all shares.
async fn send(agent: &Rc<Agent>, document: &[u8], (timeout, limit): Timeouts) -> io::Result<()> {
    let (millis, id) = (timeout.as_millis().to_string(), process_id().to_string());
    let directory = agent.options.config_dir.as_deref().and_then(Path::to_str);
    let words = ["mount-worker", &millis, &id, "--config-dir", directory.unwrap_or_default()];
    let words = if directory.is_some() { &words[..] } else { &words[..3] };
    let done = run::run(agent, words, document, LINE, limit).await;
    let line = done.inspect_err(|why| agent.report_error(format_args!("mount: {why}")))?;
    let line = String::from_utf8_lossy(&line);
    if !line.trim_ascii_end().is_empty() {
        audit::note(format_args!("mount {}", Quoted(line.trim_ascii_end())));
    }
    Ok(())
}
