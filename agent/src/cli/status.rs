//! `status`: prints the agent's own view.

use std::process::ExitCode;

use mote_core::json::{Document, Value};
use mote_core::status::State;
use mote_core::time::Uptime;

use crate::cli::options::Options;
use crate::cli::print;
use crate::runtime::clock::now;
use crate::start::lock::{self, Running};
use crate::status::view;

/// Why a command failed, in words; each kind has its exit code.
pub(super) enum Failure {
    /// The host refuses the request, or its result is unusable.
    Refused(String),
    /// No agent answers.
    NoAgent(String),
    /// The agent does not reach its host.
    NoHost(String),
}

impl Failure {
    /// Prints the message and returns the exit code.
    pub(super) fn report(self) -> ExitCode {
        let (code, text) = match self {
            Self::Refused(text) => (1, text),
            Self::NoAgent(text) => (3, text),
            Self::NoHost(text) => (4, text),
        };
        print::complain(format_args!("{}", text.trim_end()));
        ExitCode::from(code)
    }
}

/// Prints the agent's own view; fails if no agent runs, or if the host cannot use the one that runs.
#[inline(never)] // its size
pub(super) fn print(options: &Options) -> Result<(), Failure> {
    let (running, hidden) = match lock::running(&options.root) {
        Running::Yes => (true, None),
        Running::Hidden(hidden) => (true, Some(hidden.to_string())),
        Running::No => (false, None),
        Running::Unknown(why) => return Err(Failure::NoAgent(why)),
    };
    // What is there of a hidden one is another's.
    let text = hidden.map_or_else(|| view::read(&options.root), Err);
    let view = text.as_ref().map_or(Value::NULL, Document::value);
    let member = |key| view::member(view, key);
    let unread = text.as_ref().err().filter(|_| running);
    let cause = unread.cloned().or_else(|| member("last_error"));
    let printed = if options.json {
        let document = Document::new(128, |json| {
            json.begin_object();
            json.key("running");
            json.boolean(running);
            json.maybe("last_error", cause.as_deref());
            json.end_object();
        });
        let document = text.as_ref().ok().filter(|_| running).unwrap_or(&document).clone();
        print::passed_on(document.line().as_bytes())
    } else {
        let mut out = String::with_capacity(512);
        let mut line = |key: &str, value: &str| {
            out.extend([key, ": ", value, "\n"]);
        };
        line("running", if running { "yes" } else { "no" });
        for key in [
            "version", "program", "pid", "flavour", "files", "port", "state", "host", "devlxd",
            "ready", "policy",
        ] {
            // Most of a dead agent's view is no longer true.
            let counts = running || ["version", "flavour"].contains(&key);
            line(key, member(key).filter(|_| counts).as_deref().unwrap_or("-"));
        }
        line("called", if running && view::is(view, "called") { "yes" } else { "-" });
        line("last_error", cause.as_deref().unwrap_or("-"));
        let since = member("since_uptime_ms").and_then(|since| since.parse().ok());
        if let Some(since) = since.filter(|_| running) {
            let lasts = now() - Uptime::from_millis(since);
            line("for", &format!("{}.{:03} s", lasts.as_secs(), lasts.subsec_millis()));
        }
        print::out(format_args!("{out}"))
    };
    printed.map_err(|error| Failure::Refused(error.to_string()))?;
    match (running, member("pid"), member("state")) {
        (true, ..) if view::is(view, "blocked") => Err(Failure::NoHost(cause.unwrap_or_default())),
        (true, ..) => Ok(()),
        (false, Some(pid), Some(state)) if state != State::Stopped.name() => {
            Err(Failure::NoAgent(format!(
                "no agent is running; process {pid} was one, {state}, and ended without saying so"
            )))
        }
        (false, ..) => Err(Failure::NoAgent("no agent is running".into())),
    }
}
