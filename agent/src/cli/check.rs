//! `--check`: prints what the agent would find and do, one fact per line. Changes nothing.

use std::fmt::Arguments;
use std::path::Path;
use std::time::Duration;

use mote_core::flavour::Flavour;
use mote_core::hostapi::host_info::HostInfo;
use mote_core::hostapi::mount;
use mote_core::hostapi::mount::wanted;
use mote_core::hostapi::policy::{Capability, Policy};
use mote_core::json::{Document, Value};
use mote_core::status::State;
use mote_core::status::view::View;

use crate::config::files::{self, ConfigFiles};
use crate::config::policy::{self, Grade, Judged};
use crate::first_boot::templates;
use crate::handover::running::{self, Running};
use crate::handover::{others, view};
use crate::net::tls;
use crate::options::Options;
use crate::runtime::{run_dir, sha256};
use crate::start::listen::SERIAL_ONLY;
use crate::start::prepare::{flavour_by, or_default};
use crate::start::sandbox;
use crate::status::port;
use crate::sys::sandbox::Needs;
use crate::sys::{self, file};
use crate::system::devices;
use crate::system::modules::{self, NodeWait};
use crate::transport::probe_vsock;
use crate::{built, print};

/// Advice for a full `/run`.
const RUN_FULL_ADVICE: &str =
    "free some space, or 'status' may be stale and Ready may be lost when the agent ends";
/// Message for a `server.crt` that no host uses to call (P§1.2).
const SERVERS_OWN: &str =
    "server.crt is the server's own certificate: copy the instance's agent-client.crt";
/// Time limit for a child to enter the sandbox.
const SANDBOXED: Duration = Duration::from_secs(1);

struct Fact {
    about: &'static str,
    mark: &'static str,
    text: String,
}

#[derive(Default)]
struct Facts {
    /// What prevents the host from seeing or using the agent.
    missing: Vec<Fact>,
    others: Vec<Fact>,
}

impl Facts {
    #[inline(never)] // its size
    fn add(&mut self, mark: &'static str, about: &'static str, text: Arguments<'_>) {
        let facts = if mark == "missing" { &mut self.missing } else { &mut self.others };
        facts.push(Fact { about, mark, text: text.to_string() });
    }

    fn ok(&mut self, about: &'static str, text: Arguments<'_>) {
        self.add("ok", about, text);
    }

    /// Adds a limitation or a hint.
    fn note(&mut self, about: &'static str, text: Arguments<'_>) {
        self.add("note", about, text);
    }

    fn missing(&mut self, about: &'static str, text: Arguments<'_>) {
        self.add("missing", about, text);
    }

    #[inline(never)] // its size
    fn print(mut self, json: bool) -> u8 {
        let good = self.missing.is_empty();
        self.missing.append(&mut self.others);
        let facts = self.missing;
        let printed = if json {
            let document = Document::new(4096, |json| {
                json.begin_object();
                json.key("ok");
                json.boolean(good);
                let cause = facts.first().filter(|_| !good);
                json.maybe("cause", cause.map(|fact| fact.text.as_str()));
                json.key("facts");
                json.begin_array();
                for Fact { about, mark, text } in &facts {
                    json.begin_object();
                    json.pair("mark", mark);
                    json.pair("about", about);
                    json.pair("text", text);
                    json.end_object();
                }
                json.end_array();
                json.end_object();
            });
            print::passed_on(document.line().as_bytes())
        } else {
            let mut lines = String::with_capacity(4096);
            for Fact { about, mark, text } in &facts {
                let pad = "         ".get(mark.len()..).unwrap_or_default();
                lines.extend([mark, pad, about, ": ", text, "\n"]);
            }
            print::out(format_args!("{lines}"))
        };
        if good && printed.is_ok() { 0 } else { 1 }
    }
}

/// Runs all checks; succeeds if the host can see and use this agent.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> u8 {
    let mut facts = Facts::default();
    let running = running::running(&options.root);
    let view = view::read(&options.root).ok().filter(|_| matches!(running, Running::Yes));
    let theirs = view.as_ref();
    about_agent(&mut facts, &running, theirs);
    let found = about_port(&mut facts, options, &running, theirs);
    let known = options.flavour.or(found);
    let known = known.or_else(|| Flavour::parse(theirs?.flavour.as_deref()?));
    let judged = policy::read(options);
    let known = about_files(&mut facts, options, known, &judged.policy, theirs);
    if options.transport.is_vsock() {
        about_vsock(&mut facts, &options.root, known);
    }
    about_root(&mut facts, &options.root);
    about_policy(&mut facts, &judged, theirs);
    about_sandbox(&mut facts, options, &judged.policy);
    about_devlxd(&mut facts, &judged.policy, known, theirs);
    if let Some(why) = others::left(&options.root) {
        facts.note("service", format_args!("{why}"));
    }
    facts.ok("build", format_args!("{}", built::Build));
    facts.print(options.json)
}

/// Checks the running agent: its state, and why the host cannot use it.
#[inline(never)] // its size
fn about_agent(facts: &mut Facts, running: &Running, theirs: Option<&View<'_>>) {
    match (running, theirs) {
        (Running::Yes, Some(View { state: Some(state), .. })) => {
            facts.ok("agent", format_args!("running, {state}"));
        }
        (Running::Yes, _) => facts.ok("agent", format_args!("running")),
        (Running::Hidden(hidden), _) => facts.note("agent", format_args!("{hidden}")),
        (Running::No, _) => facts.note("agent", format_args!("not running")),
        (Running::Unknown(why), _) => facts.note("agent", format_args!("{why}")),
    }
    let Some(view) = theirs else { return };
    if let Some(why) = &view.last_error {
        if view.state.as_deref() == Some(State::Connected.name()) && !view.blocked {
            facts.note("agent", format_args!("its last error: {why}"));
        } else {
            facts.missing("agent", format_args!("{why}"));
        }
    }
    if !view.called && !view.is_waiting() {
        facts.note("agent", format_args!("the host has not called yet"));
    }
}

#[inline(never)] // its size
fn about_devlxd(
    facts: &mut Facts,
    policy: &Policy,
    known: Option<Flavour>,
    theirs: Option<&View<'_>>,
) {
    match (theirs.and_then(|view| view.devlxd.as_deref()), known) {
        _ if !policy.allows(Capability::GuestApi) => {
            facts.note("devlxd", format_args!("off: the policy denies guestapi"));
        }
        (Some(path), _) => facts.ok("devlxd", format_args!("{path}")),
        (None, Some(flavour)) => {
            facts.ok("devlxd", format_args!("would be at {}", flavour.socket_path()));
        }
        (None, None) => facts.note(
            "devlxd",
            format_args!(
                "at {} or {}, depending on the status port's name",
                Flavour::Lxd.socket_path(),
                Flavour::Incus.socket_path()
            ),
        ),
    }
}

#[inline(never)] // its size
fn about_root(facts: &mut Facts, root: &Path) {
    if let Some(why) = devices::without_proc(root) {
        facts.missing("proc", format_args!("{why}"));
    }
    // The agent's directory, or its nearest existing parent.
    let mut path = root.join(run_dir::DIRECTORY);
    while !file::exists(&path) && path.pop() {}
    if let Err(error) = file::access(&path, file::Access::WRITE_OK) {
        let why = run_dir::unwritable("write", &path, &error.into());
        facts.missing("run", format_args!("{why}"));
    } else if file::statfs(&path).is_ok_and(|about| about.f_bavail == 0) {
        let path = path.display();
        facts.note("run", format_args!("no space left in {path}: {RUN_FULL_ADVICE}"));
    }
}

/// Checks the status port; returns the flavour that its name shows.
#[inline(never)] // its size
fn about_port(
    facts: &mut Facts,
    options: &Options,
    running: &Running,
    view: Option<&View<'_>>,
) -> Option<Flavour> {
    let theirs = view.and_then(|view| view.port.as_deref());
    let found = port::find_early(options);
    match &found {
        Ok(found) => {
            let path = found.path.display();
            // A running agent keeps the port busy itself.
            let is_ours = !matches!(running, Running::No);
            match port::busy(&options.root, &found.path).filter(|_| !is_ours) {
                Some(why) => facts.missing("port", format_args!("{why}")),
                None => facts.ok("port", format_args!("{path} ({})", found.flavour.name())),
            }
            if let Some(doubt) = &found.doubt {
                // If the host has called, the port is the right one.
                let add =
                    if view.is_some_and(|view| view.called) { Facts::note } else { Facts::missing };
                add(facts, "port", format_args!("{doubt}"));
            }
            if let Some(theirs) = theirs.filter(|theirs| found.path != Path::new(theirs)) {
                facts.note("port", format_args!("the running agent uses {theirs}"));
            }
        }
        Err(why) => match theirs {
            Some(theirs) => facts.ok("port", format_args!("{theirs}, used by the running agent")),
            None => facts.missing("port", format_args!("{why}")),
        },
    }
    port::flavour(options, &found)
}

#[inline(never)] // its size
fn about_policy(facts: &mut Facts, judged: &Judged, theirs: Option<&View<'_>>) {
    let is_another =
        |theirs: &&str| theirs.strip_suffix(sandbox::WORD).unwrap_or(theirs) != judged.text;
    if let Some(theirs) = theirs.and_then(|view| view.policy.as_deref()).filter(is_another) {
        let why = "because of its options or until SIGHUP";
        facts.note("policy", format_args!("the running agent's policy differs {why}: {theirs}"));
    }
    let add = match judged.grade {
        Grade::Good => Facts::ok,
        Grade::Loophole => Facts::note,
        Grade::Broken => Facts::missing,
    };
    add(facts, "policy", format_args!("{}", judged.text));
}

fn about_sandbox(facts: &mut Facts, options: &Options, policy: &Policy) {
    if !sandbox::is_for(policy) {
        return;
    }
    // Try it in a child, because a process cannot leave the sandbox.
    if sys::run_in_fork(SANDBOXED, &|| sys::sandbox::enter(&options.root, &Needs::default())) {
        facts.ok("sandbox", format_args!("would be in a sandbox"));
    } else {
        let why = "would be in a sandbox without Landlock, seccomp or a user of its own";
        facts.note("sandbox", format_args!("{why}"));
    }
}

#[inline(never)] // its size
fn about_vsock(facts: &mut Facts, root: &Path, flavour: Option<Flavour>) {
    let why = match modules::load_vsock(root, NodeWait::Timeout) {
        Ok(doubt) => match probe_vsock(root) {
            Ok(cid) => return facts.ok("vsock", format_args!("context id {cid}")),
            Err(why) => doubt.unwrap_or(why),
        },
        Err(why) => why,
    };
    if flavour == Some(Flavour::Incus) {
        facts.missing("vsock", format_args!("{why}; {SERIAL_ONLY}"));
    } else {
        facts.missing("vsock", format_args!("{why}"));
    }
}

/// Checks the host's files; returns the flavour if they show it.
#[inline(never)] // its size
fn about_files(
    facts: &mut Facts,
    options: &Options,
    mut known: Option<Flavour>,
    policy: &Policy,
    theirs: Option<&View<'_>>,
) -> Option<Flavour> {
    let theirs = theirs.and_then(|view| view.files.as_deref());
    let mut due = Ok(0);
    let mut visit = |place: &Path, _: &ConfigFiles| {
        if built::FIRST_BOOT && policy.allows(Capability::Templates) {
            due = templates::count(place);
        }
        Ok(())
    };
    match (files::find(options, &mut visit), theirs) {
        (Ok(mut files), theirs) => {
            if !policy.allows(Capability::Network) {
                files.nics.clear();
            }
            known = known.or_else(|| flavour_by(&files));
            about_found(facts, known, &files, due);
            if let Some(theirs) = theirs.filter(|theirs| *theirs != files.from) {
                facts.note("files", format_args!("the running agent uses the files from {theirs}"));
            }
        }
        (Err(_), Some(theirs)) => {
            facts.ok("files", format_args!("read by the running agent: {theirs}"));
        }
        (Err(why), None) => facts.missing("files", format_args!("{why}")),
    }
    known
}

#[inline(never)] // its size
fn about_found(
    facts: &mut Facts,
    flavour: Option<Flavour>,
    files: &ConfigFiles,
    due: Result<usize, String>,
) {
    facts.ok("files", format_args!("{}", files.from));
    match tls::Identity::load(files) {
        Ok(_) => facts.ok("certificates", format_args!("they match")),
        Err(why) => facts.missing("certificates", format_args!("{why}")),
    }
    match files.agent_conf.as_deref().map(HostInfo::parse) {
        Some(Ok(info)) => {
            let mut pem = Vec::new();
            info.certificate_pem(|piece| pem.extend_from_slice(piece));
            if tls::is_same(&pem, &files.server_crt) {
                facts.missing("certificates", format_args!("{SERVERS_OWN}"));
            }
            facts.ok("agent.conf", format_args!("{}, devlxd {}", info.address, info.guest_api));
        }
        Some(Err(why)) => facts.note("agent.conf", format_args!("{why}")),
        None => facts.note("agent.conf", format_args!("none; devlxd waits for the host's call")),
    }
    if built::FIRST_BOOT {
        match due {
            Ok(due) => facts.ok("templates", format_args!("{due} due at start")),
            Err(why) => facts.note("templates", format_args!("{why}")),
        }
        facts.ok("nics", format_args!("{} to be named", files.nics.len()));
    }
    let Some(list) = files.mounts.as_ref().filter(|_| built::MOUNTS) else { return };
    let list = match Value::parse(list) {
        Ok(list) => list,
        Err(why) => return facts.note("mounts", format_args!("agent-mounts.json: {why}")),
    };
    for entry in list.elements().take(mount::MAX_MOUNTS) {
        match wanted(or_default(flavour), entry, sha256) {
            Ok(mount::Wanted::Mount { source, target, .. }) => {
                facts.ok("mounts", format_args!("{source} on /{target}"));
            }
            Ok(_) => facts.note("mounts", format_args!("no entry")),
            Err(why) => facts.note("mounts", format_args!("{why}")),
        }
    }
}
