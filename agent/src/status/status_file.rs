//! Writes two files in `/run/mote` when their content changes: the status file for `mote-agent
//! status`, and the last state that an application set, for the next agent. A full `/run` must not
//! leave outdated ones.

use std::path::Path;

use mote_core::status::State;
use mote_core::status::view::{View, WAITING};

use crate::agent::Agent;
use crate::built::VERSION;
use crate::options::Options;
use crate::runtime::{log, now, run_dir, run_dir::unwritable, write_small};
use crate::sys::{file, process_id};

/// Writes the status file if its text differs from `last`, its directory was replaced, or the last
/// write failed. Also keeps the ready file up to date.
pub(crate) fn update(agent: &Agent, port: Option<&Path>, last: &mut String) {
    if agent.run_files.moved(&agent.options.root) {
        last.clear();
    }
    let text = describe(agent, port);
    let mut written = keep_ready(agent);
    if text != *last {
        let path = agent.options.root.join(run_dir::STATUS);
        let done = agent.run_files.judge(&path, write_small(&path, text.as_bytes()));
        written &= done;
        *last = if done { text } else { String::new() };
    }
    if written && agent.run_files.failing.replace(false) {
        log::info(format_args!(
            "{} can be written again",
            agent.options.root.join(run_dir::STATUS).display()
        ));
    }
}

/// Stores the state that was set, to repeat Ready after the host restarts (decisions §2). Writes it
/// even if unchanged: an agent that this one replaced may have had a call in progress.
pub(crate) fn remember(agent: &Agent) {
    agent.run_files.ready.set(None);
    let _said = keep_ready(agent);
    agent.status_changed.raise();
}

/// Writes the ready file if it lacks an application's state. Returns whether it is up to date.
pub(crate) fn keep_ready(agent: &Agent) -> bool {
    let state = agent.ready.get();
    let Some(state) = state.filter(|_| state != agent.run_files.ready.get()) else { return true };
    let path = agent.options.root.join(run_dir::READY);
    let done = agent.run_files.judge(&path, write_small(&path, state.name().as_bytes()));
    if done {
        agent.run_files.ready.set(Some(state));
    }
    done
}

/// Writes the status file of an agent that still waits for `what`.
pub(crate) fn waiting(options: &Options, what: &str, why: &str) {
    let out = View {
        state: Some(format!("{WAITING}{what}").into()),
        since_uptime_ms: Some(now().as_millis()),
        last_error: Some(why.into()),
        ..own()
    };
    let path = options.root.join(run_dir::STATUS);
    if let Err(error) = write_small(&path, out.write().as_bytes()) {
        log::warn(format_args!("{}", unwritable("write", &path, &error)));
    }
}

/// The constant part of this process's views.
fn own() -> View<'static> {
    let (version, pid) = (Some(VERSION.into()), Some(process_id().into()));
    View { running: true, version, pid, ..View::default() }
}

fn describe(agent: &Agent, port: Option<&Path>) -> String {
    let status = agent.status.borrow();
    let host = status.address().filter(|_| status.state() != State::Stopped);
    let (errors, policy) = (agent.errors.borrow(), agent.policy.text.borrow());
    let view = View {
        files: Some((&*agent.files).into()),
        flavour: Some(agent.flavour.name().into()),
        port: port.and_then(Path::to_str).map(Into::into),
        state: Some(status.state().name().into()),
        since_uptime_ms: Some(status.since().as_millis()),
        host: host.map(|address| address.to_string().into()),
        devlxd: agent.devlxd.get().then(|| agent.flavour.socket_path().into()),
        ready: agent.ready.get().map(|state| state.name().into()),
        policy: Some((&**policy).into()),
        last_error: errors.first().map(Into::into),
        program: program(agent).map(Into::into),
        called: agent.has_called(),
        blocked: errors.is_blocked(),
        ..own()
    };
    view.write()
}

/// Returns a remark about the program: it will re-exec, or its file has been replaced.
fn program(agent: &Agent) -> Option<&'static str> {
    if agent.will_reexec.get() {
        return Some("restarts when no host command is running");
    }
    let name = file::readlink("/proc/self/exe".as_ref()).ok()?;
    let newer = name.to_str()?.strip_suffix(file::REMOVED)?;
    file::exists(newer.as_ref()).then_some("replaced; SIGHUP starts the newer one")
}
