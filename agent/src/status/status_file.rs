//! Two files in `/run/mote`, written when their content changes: the status file for `mote-agent status`, and the
//! last state that an application set, for the next agent. A full `/run` must not leave wrong ones.

use std::fs::read_link;
use std::path::Path;

use mote_core::devlxd::ready::ReadyState;
use mote_core::json::{Document, Writer};
use mote_core::status::State;

use crate::agent::Agent;
use crate::built::VERSION;
use crate::cli::options::Options;
use crate::runtime::clock::now;
use crate::runtime::run_dir::unwritable;
use crate::runtime::small_files::write_small;
use crate::runtime::{log, run_dir};
use crate::start::anew::REMOVED;
use crate::status::view::WAITING;

/// Writes the status file if its text differs from `last`, or again if its directory was replaced or the last
/// write failed; the ready file too.
pub(crate) fn update(agent: &Agent, port: Option<&Path>, last: &mut String) {
    if agent.notes.moved(&agent.options.root) {
        last.clear();
    }
    let text = describe(agent, port);
    let mut written = keep_ready(agent);
    if text != *last {
        let path = agent.options.root.join(run_dir::STATUS);
        let done = agent.notes.judge(&path, write_small(&path, text.as_bytes()));
        written &= done;
        *last = if done { text } else { String::new() };
    }
    if written && agent.notes.failing.replace(false) {
        log::info(format_args!(
            "{} is written again",
            agent.options.root.join(run_dir::STATUS).display()
        ));
    }
}

/// Writes the ready file if the state that an application set is not yet in it. Returns whether it is up to date.
pub(crate) fn keep_ready(agent: &Agent) -> bool {
    let state = agent.ready.borrow().get();
    let Some(state) = state.filter(|_| state != agent.notes.ready.get()) else { return true };
    let path = agent.options.root.join(run_dir::READY);
    let done = agent.notes.judge(&path, write_small(&path, state.name().as_bytes()));
    if done {
        agent.notes.ready.set(Some(state));
    }
    done
}

/// Writes the status file of an agent that still waits for `what`.
pub(crate) fn waiting(options: &Options, what: &str, why: &str) {
    let out = document(|json| {
        json.pair("state", &format!("{WAITING}{what}"));
        json.pair("since_uptime_ms", &now().as_millis().to_string());
        json.pair("last_error", why);
    });
    let path = options.root.join(run_dir::STATUS);
    if let Err(error) = write_small(&path, out.as_bytes()) {
        log::warn(format_args!("{}", unwritable("write", &path, &error)));
    }
}

/// Text of the status file, which `status --json` prints: version and process id, then the members that `more` writes.
fn document(more: impl FnOnce(&mut Writer<'_>)) -> String {
    let document = Document::new(512, |json| {
        json.begin_object();
        let pid = std::process::id().to_string();
        json.key("running");
        json.boolean(true);
        json.pair("version", VERSION);
        json.pair("pid", &pid);
        more(json);
        json.end_object();
    });
    document.line()
}

fn describe(agent: &Agent, port: Option<&Path>) -> String {
    let status = agent.status.borrow();
    let host = status.address().map(|address| address.to_string());
    document(|json| {
        json.pair("files", &agent.files);
        json.pair("flavour", agent.flavour.name());
        json.maybe("port", port.and_then(Path::to_str));
        json.pair("state", status.state().name());
        json.pair("since_uptime_ms", &status.since().as_millis().to_string());
        json.maybe("host", host.as_deref().filter(|_| status.state() != State::Stopped));
        json.maybe("devlxd", agent.devlxd.get().then(|| agent.flavour.socket_path()));
        json.maybe("ready", agent.ready.borrow().get().map(ReadyState::name));
        json.pair("policy", &agent.policy.text.borrow());
        let errors = agent.errors.borrow();
        json.maybe("last_error", errors.first());
        json.maybe("program", program(agent));
        json.key("called");
        json.boolean(agent.has_called());
        json.key("blocked");
        json.boolean(errors.is_blocked());
    })
}

/// What is to be said of the program: that it starts anew, or that its file is another one by now.
fn program(agent: &Agent) -> Option<&'static str> {
    if agent.starts_anew.get() {
        return Some("starts anew when no command of the host runs");
    }
    let name = read_link("/proc/self/exe").ok()?;
    let newer = name.to_str()?.strip_suffix(REMOVED)?;
    Path::new(newer).exists().then_some("replaced; SIGHUP starts the newer one")
}
