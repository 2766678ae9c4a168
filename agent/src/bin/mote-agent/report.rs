//! The agent's own view in a small file, for `mote-agent status`: written when it changes, whole or
//! not at all.

use std::fs;
use std::io;
use std::path::Path;

use mote_agent::json::quote;
use mote_agent::status::State;

use crate::agent::Agent;
use crate::log;

/// The file, below the root.
pub(crate) const PATH: &str = "run/mote/status";

/// Writes `bytes` to `path` by way of a file beside it.
///
/// # Errors
/// The system's.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

/// Writes the file if what it says has changed since `last`.
pub(crate) fn update(agent: &Agent, port: Option<&Path>, last: &mut String) {
    let text = describe(agent, port);
    if text == *last {
        return;
    }
    let path = agent.options.root.join(PATH);
    if let Err(error) = write_atomically(&path, text.as_bytes()) {
        log::debug(format_args!("cannot write {}: {error}", path.display()));
    }
    *last = text;
}

fn describe(agent: &Agent, port: Option<&Path>) -> String {
    let status = agent.status.borrow();
    let mut out = String::with_capacity(512);
    let mut add = |name: &str, value: Option<&str>| {
        out.push(if out.is_empty() { '{' } else { ',' });
        let _infallible = quote(&mut out, name);
        out.push(':');
        match value {
            Some(value) => drop(quote(&mut out, value)),
            None => out.push_str("null"),
        }
    };
    add("version", Some(env!("CARGO_PKG_VERSION")));
    add("pid", Some(&std::process::id().to_string()));
    add("flavour", Some(agent.flavour.name()));
    add("port", port.and_then(Path::to_str));
    add("state", Some(status.state().name()));
    add("since_uptime_ms", Some(&status.since().as_millis().to_string()));
    let host = status.address().map(|address| format!("{}:{}", address.cid, address.port));
    add("host", host.as_deref().filter(|_| status.state() != State::Stopped));
    add("devlxd", agent.devlxd.get().then(|| agent.flavour.socket_path()));
    add("ready", agent.ready.borrow().get().map(mote_agent::ready::ReadyState::name));
    add("last_error", agent.last_error.borrow().as_deref());
    out.push_str("}\n");
    out
}
