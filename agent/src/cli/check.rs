//! `--check`: prints what the agent would find and do, one line a fact. Leaves nothing behind.

use std::fmt::Arguments;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::host_info::HostInfo;
use mote_core::hostapi::mount;
use mote_core::hostapi::mount::wanted;
use mote_core::hostapi::policy::{Capability, Policy};
use mote_core::json::Value;
use mote_core::status::{CONNECTED, State};
use rustix::fs::{Access, access, statvfs};

use crate::agent::REFUSED;
use crate::built;
use crate::cli::options::Options;
use crate::cli::print;
use crate::config::files;
use crate::config::files::ConfigFiles;
use crate::config::policy::{self, Grade, Judged};
use crate::first_boot::templates;
use crate::net::tls;
use crate::net::transport::{Transport, probe_vsock};
use crate::runtime::digest::sha256;
use crate::runtime::run_dir;
use crate::start::listen::PORT_ALONE;
use crate::start::lock::Running;
use crate::start::modules::Patience;
use crate::start::prepare::flavour_by;
use crate::start::{lock, modules, others, sandbox};
use crate::status::{port, view};
use crate::sys;

/// Longest time for a child to enter the sandbox.
const SANDBOXED: Duration = Duration::from_secs(1);

/// Prints facts and keeps the overall result.
struct Facts {
    /// Whether nothing is missing.
    good: bool,
    /// The first error of printing.
    printed: io::Result<()>,
}

impl Facts {
    fn print(&mut self, mark: &str, text: Arguments<'_>) {
        let printed = print::out(format_args!("{mark:<9}{text}\n"));
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }

    fn ok(&mut self, text: Arguments<'_>) {
        self.print("ok", text);
    }

    /// Prints a fact that limits the agent, although the host will see it.
    fn absent(&mut self, text: Arguments<'_>) {
        self.print("absent", text);
    }

    /// Prints a fact that keeps the host from seeing the agent.
    fn missing(&mut self, text: Arguments<'_>) {
        self.good = false;
        self.print("missing", text);
    }
}

/// Runs all checks; success if the host will see this agent.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut facts = Facts { good: true, printed: Ok(()) };
    let running = lock::running(&options.root);
    let view = view::read(&options.root).ok().filter(|_| running == Running::Yes);
    about_root(&mut facts, &options.root);
    let found = about_port(&mut facts, options, &running);
    let theirs = |key: &str| view.as_ref().and_then(|view| view::member(view.value(), key));
    let by_view = || view::flavour(view.as_ref()?.value());
    let mut known = options.flavour.or(found).or_else(by_view);
    let policies = policy::read(options);
    let mut due = Ok(0);
    let mut visit = |place: &Path, _: &ConfigFiles| {
        if built::FIRST_BOOT && policies.features(known).allows(Capability::Templates) {
            due = templates::count(place);
        }
        Ok(())
    };
    let files = files::find(options, &mut visit);
    let last_error = theirs("last_error");
    let last_error = last_error.as_deref();
    match (files, theirs("files")) {
        (Ok(mut files), theirs) => {
            if !policies.features(known).allows(Capability::Network) {
                files.nics.clear();
            }
            known = known.or_else(|| flavour_by(&files));
            // A refusal by the host counts more than the files' own consistency.
            let same = theirs.as_ref() == Some(&files.from);
            let refused = last_error.filter(|why| same && why.starts_with(REFUSED));
            about_files(&mut facts, known.unwrap_or(Flavour::Lxd), &files, due, refused);
            if let Some(theirs) = theirs.filter(|theirs| *theirs != files.from) {
                facts.ok(format_args!("files: the running agent uses those of {theirs}"));
            }
        }
        (Err(_), Some(theirs)) => {
            facts.ok(format_args!("files: read by the running agent: {theirs}"));
        }
        (Err(why), None) => facts.missing(format_args!("{why}")),
    }
    facts.ok(format_args!("build: {}", built::Build));
    let flavour = known.unwrap_or(Flavour::Lxd);
    let judged = policies.under(known);
    about_policy(&mut facts, &judged);
    about_sandbox(&mut facts, options, &judged.policy);
    if matches!(options.transport, Transport::Vsock) {
        about_vsock(&mut facts, &options.root, flavour);
    }
    match known {
        Some(flavour) => facts.ok(format_args!("devlxd: would be at {}", flavour.socket_path())),
        None => facts.absent(format_args!(
            "devlxd: at {} or {}, as the status port's name says",
            Flavour::Lxd.socket_path(),
            Flavour::Incus.socket_path()
        )),
    }
    if let Some(why) = others::left(&options.root) {
        facts.absent(format_args!("{why}"));
    }
    about_agent(&mut facts, &running, theirs("state"), last_error);
    if facts.good && facts.printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Checks the running agent: its state, and why it is not CONNECTED.
fn about_agent(
    facts: &mut Facts,
    running: &Running,
    state: Option<String>,
    last_error: Option<&str>,
) {
    match (running, &state) {
        (Running::Yes, Some(state)) => facts.ok(format_args!("agent: running, {state}")),
        (Running::Yes, None) => facts.ok(format_args!("agent: running")),
        (Running::Hidden(hidden), _) => facts.absent(format_args!(
            "agent: {hidden}; within {} s it writes its files again, until then 'status' shows no more",
            CONNECTED.as_secs()
        )),
        (Running::No, _) => facts.absent(format_args!("agent: not running")),
        (Running::Unknown(why), _) => facts.absent(format_args!("agent: {why}")),
    }
    let Some(why) = last_error else { return };
    if state.as_deref() == Some(State::Connected.name()) {
        facts.absent(format_args!("its last error: {why}"));
    } else {
        facts.missing(format_args!("it is not CONNECTED: {why}"));
    }
}

/// Checks `/proc`, and that `/run/mote` can be written.
fn about_root(facts: &mut Facts, root: &Path) {
    if !root.join("proc/self").exists() {
        facts.absent(format_args!(
            "/proc: not mounted; the host gets no commands, files or reports: mount -t proc proc /proc"
        ));
    }
    // The agent's directory, or the parent in which it would be created.
    let directories = ["run/mote", "run", ""].map(|directory| root.join(directory));
    let Some(existing) = directories.iter().find(|path| path.exists()) else { return };
    if let Err(error) = access(existing, Access::WRITE_OK) {
        let why = run_dir::unwritable("write", existing, &error.into());
        return facts.missing(format_args!("{why}"));
    }
    if statvfs(existing).is_ok_and(|about| about.f_bavail == 0) {
        facts.absent(format_args!(
            "{}: no space left: 'status' may be old, and Ready is forgotten when the agent ends; free \
             some",
            existing.display()
        ));
    }
}

/// Checks the status port; returns the flavour by its name.
fn about_port(facts: &mut Facts, options: &Options, running: &Running) -> Option<Flavour> {
    let found = port::find_early(options);
    match &found {
        Ok(found) => match port::busy(&options.root, &found.path) {
            // While an agent runs, it has the port open itself.
            Some(why) if !matches!(running, Running::Yes | Running::Hidden(_)) => {
                facts.missing(format_args!("port: {why}"));
            }
            Some(_) | None => {
                facts.ok(format_args!("port: {} ({})", found.path.display(), found.flavour.name()));
                if let Some(doubt) = &found.doubt {
                    facts.missing(format_args!("port: {doubt}"));
                }
            }
        },
        Err(why) => facts.missing(format_args!("port: {why}")),
    }
    port::flavour(options, &found)
}

fn about_policy(facts: &mut Facts, judged: &Judged) {
    let text = &judged.text;
    match judged.grade {
        Grade::Good => facts.ok(format_args!("policy: {text}")),
        Grade::Void => facts.absent(format_args!("policy: {text}")),
        Grade::Broken => facts.missing(format_args!("policy: {text}")),
    }
}

fn about_sandbox(facts: &mut Facts, options: &Options, policy: &Policy) {
    if !sandbox::is_for(policy) {
        return;
    }
    // In a child, as there is no way out.
    if sys::apart(SANDBOXED, &|| sys::sandbox::enter(&options.root, [None; 2])) {
        facts.ok(format_args!("in a sandbox"));
    } else {
        facts.absent(format_args!("in a sandbox without Landlock or seccomp"));
    }
}

fn about_vsock(facts: &mut Facts, root: &Path, flavour: Flavour) {
    let loaded = modules::load_vsock(root, Patience::Wait);
    let probed = loaded.and_then(|doubt| probe_vsock(root).map_err(|why| doubt.unwrap_or(why)));
    match probed {
        Ok(cid) => facts.ok(format_args!("vsock: context id {cid}")),
        Err(why) if flavour == Flavour::Incus => {
            facts.missing(format_args!("vsock: {why}; {PORT_ALONE}, and cannot call it"));
        }
        Err(why) => facts.missing(format_args!("vsock: {why}")),
    }
}

fn about_files(
    facts: &mut Facts,
    flavour: Flavour,
    files: &ConfigFiles,
    due: Result<usize, String>,
    refused: Option<&str>,
) {
    facts.ok(format_args!("files: {}", files.from));
    match (tls::check(files), refused) {
        (Ok(()), None) => facts.ok(format_args!("certificates: usable")),
        (Ok(()), Some(why)) => {
            facts.missing(format_args!("certificates: they fit together, but {why}"));
        }
        (Err(why), _) => facts.missing(format_args!("certificates: {why}")),
    }
    match files.agent_conf.as_deref().map(HostInfo::parse) {
        Some(Ok(told)) => {
            facts.ok(format_args!("agent.conf: {}, devlxd {}", told.address, told.guest_api))
        }
        Some(Err(why)) => facts.absent(format_args!("agent.conf: {why}")),
        None => facts.absent(format_args!("agent.conf: none; devlxd waits for the host's call")),
    }
    if built::FIRST_BOOT {
        match due {
            Ok(due) => facts.ok(format_args!("templates: {due} due at start")),
            Err(why) => facts.absent(format_args!("templates: {why}")),
        }
        facts.ok(format_args!("NICs: {} to be named", files.nics.len()));
    }
    let Some(list) = files.mounts.as_ref().filter(|_| built::MOUNTS) else { return };
    let list = match Value::parse(list) {
        Ok(list) => list,
        Err(why) => return facts.absent(format_args!("agent-mounts.json: {why}")),
    };
    for entry in list.elements().take(mount::MOST) {
        match wanted(flavour, entry, sha256) {
            Ok(mount::Wanted::Mount { source, target, .. }) => {
                facts.ok(format_args!("mount: {source} on /{target}"));
            }
            Ok(_) => facts.absent(format_args!("mount: no entry")),
            Err(why) => facts.absent(format_args!("mount: {why}")),
        }
    }
}
