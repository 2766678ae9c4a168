//! `status`: prints the agent's own view.

use mote_core::status::State;
use mote_core::status::view::View;
use mote_core::time::Uptime;

use crate::handover::running::{self, Running};
use crate::handover::view::{self, Unreadable};
use crate::options::Options;
use crate::print;
use crate::runtime::now;

/// Why a command failed; each kind has its exit code.
pub(super) enum Failure {
    /// The host refuses the request, or its result is unusable.
    Refused(String),
    /// No agent answers.
    NoAgent(String),
    /// The agent cannot reach its host.
    NoHost(String),
}

impl Failure {
    pub(super) fn report(self) -> u8 {
        let (code, text) = match self {
            Self::Refused(text) => (1, text),
            Self::NoAgent(text) => (3, text),
            Self::NoHost(text) => (4, text),
        };
        print::complain(format_args!("{}", text.trim_end()));
        code
    }
}

/// Prints the agent's own view; fails if no agent runs, or if the host cannot use it.
#[inline(never)] // its size
pub(super) fn print(options: &Options) -> Result<(), Failure> {
    let (running, hidden) = match running::running(&options.root) {
        Running::Yes => (true, None),
        Running::Hidden(hidden) => (true, Some(hidden.to_string())),
        Running::No => (false, None),
        Running::Unknown(why) => return Err(Failure::NoAgent(why)),
    };
    // The view could be another agent's.
    let read = hidden.map_or_else(|| view::read(&options.root), |why| Err(Unreadable(why)));
    let unread = read.as_ref().err().filter(|_| running).map(|Unreadable(why)| why.clone());
    let mut view = read.unwrap_or_default();
    let mut ended = (None, None);
    if !running {
        // Most of a dead agent's view no longer applies.
        let View { version, flavour, last_error, pid, state, .. } = view;
        ended = (pid, state);
        view = View { version, flavour, last_error, ..View::default() };
    }
    view.running = running;
    view.last_error = unread.map(Into::into).or(view.last_error);
    let printed = if options.json {
        print::passed_on(view.write().as_bytes())
    } else {
        print::out(format_args!("{}", lines(&view)))
    };
    printed.map_err(|error| Failure::Refused(error.to_string()))?;
    if view.blocked {
        return Err(Failure::NoHost(view.last_error.unwrap_or_default().into_owned()));
    }
    match ended {
        _ if running => Ok(()),
        (Some(pid), Some(state)) if state != State::Stopped.name() => Err(Failure::NoAgent(
            format!("no agent is running; process {pid} ended unexpectedly in state {state}"),
        )),
        _ => Err(Failure::NoAgent("no agent is running".into())),
    }
}

fn lines(view: &View<'_>) -> String {
    let pid = view.pid.map(|pid| pid.to_string());
    let lasts = view.since_uptime_ms.map(|since| {
        let lasts = now() - Uptime::from_millis(since);
        format!("{}.{:03} s", lasts.as_secs(), lasts.subsec_millis())
    });
    let mut out = String::with_capacity(512);
    for (key, value) in [
        ("running", Some(if view.running { "yes" } else { "no" })),
        ("version", view.version.as_deref()),
        ("program", view.program.as_deref()),
        ("pid", pid.as_deref()),
        ("flavour", view.flavour.as_deref()),
        ("files", view.files.as_deref()),
        ("port", view.port.as_deref()),
        ("state", view.state.as_deref()),
        ("host", view.host.as_deref()),
        ("devlxd", view.devlxd.as_deref()),
        ("ready", view.ready.as_deref()),
        ("policy", view.policy.as_deref()),
        ("called", view.called.then_some("yes")),
        ("last_error", view.last_error.as_deref()),
        ("for", lasts.as_deref()),
    ] {
        if key != "for" || value.is_some() {
            out.extend([key, ": ", value.unwrap_or("-"), "\n"]);
        }
    }
    out
}
