//! `--check`: what the agent would find and do, one line a fact, nothing left behind.

use std::io;
use std::process::ExitCode;

use mote_agent::flavour::Flavour;
use mote_agent::mount::wanted;
use mote_agent::peer::Told;
use mote_agent::{json, mount};

use crate::mount_worker::hash;
use crate::options::Options;
use crate::share::ConfigFiles;
use crate::{built, lock, modules, policy, port, print, share, socket, templates, tls};

/// Facts as they are found.
struct Facts {
    good: bool,
    printed: io::Result<()>,
}

impl Facts {
    fn say(&mut self, mark: &str, text: &str) {
        let printed = print::out(format_args!("{mark:<9}{text}\n"));
        // The first failure counts.
        if self.printed.is_ok() {
            self.printed = printed;
        }
    }

    /// The agent can run without this.
    fn fact(&mut self, fine: Result<String, String>) {
        match fine {
            Ok(text) => self.say("ok", &text),
            Err(text) => self.say("absent", &text),
        }
    }

    /// It cannot.
    fn needed(&mut self, fine: Result<String, String>) {
        match fine {
            Ok(text) => self.say("ok", &text),
            Err(text) => {
                self.good = false;
                self.say("missing", &text);
            }
        }
    }
}

/// Reports; success if the agent could run.
#[inline(never)] // the agent itself needs none of its stack
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut facts = Facts { good: true, printed: Ok(()) };
    let found = port::discover(&options.root);
    let flavour = options.flavour.or(found.as_ref().map(|found| found.flavour));
    let flavour = flavour.unwrap_or(Flavour::Lxd);
    facts.fact(match &found {
        Some(found) => Ok(format!("port: {} ({})", found.path.display(), found.flavour.name())),
        None => Err("port: none of the three names; the host cannot see this agent".into()),
    });
    let mut due = Ok(0);
    match share::find(options, |place, _| {
        if built::FIRST_BOOT {
            due = templates::count(place);
        }
    }) {
        Ok(files) => about_files(&mut facts, flavour, &files, due),
        Err(why) => facts.needed(Err(why)),
    }
    facts.fact(Ok(format!("build: {}", built::Build)));
    let (policy, troubles) = policy::find(options, flavour);
    troubles.into_iter().for_each(|trouble| facts.needed(Err(format!("policy: {trouble}"))));
    facts.fact(Ok(format!("policy: {policy}")));
    if options.vsock_unix.is_none() {
        let vsock =
            modules::load_vsock(&options.root).and_then(|()| socket::probe_vsock(&options.root));
        facts.needed(vsock.map(|cid| format!("vsock: context id {cid}")));
    }
    facts.fact(Ok(format!("devlxd: would be at {}", flavour.socket_path())));
    facts.fact(if lock::is_held(&options.root) {
        Ok("agent: running".into())
    } else {
        Err("agent: not running".into())
    });
    if facts.good && facts.printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn about_files(
    facts: &mut Facts,
    flavour: Flavour,
    files: &ConfigFiles,
    due: Result<usize, String>,
) {
    facts.needed(Ok(format!("files: {}", files.from)));
    facts.needed(tls::check(files).map(|()| "certificates: usable".into()));
    facts.fact(match files.agent_conf.as_deref().map(Told::parse) {
        Some(Ok(told)) => {
            let (address, devlxd) = (told.address, told.guest_api);
            Ok(format!("agent.conf: {}:{}, devlxd {devlxd}", address.cid, address.port))
        }
        Some(Err(why)) => Err(format!("agent.conf: {why}")),
        None => Err("agent.conf: none; devlxd waits for the host's call".into()),
    });
    if built::FIRST_BOOT {
        facts.fact(match due {
            Ok(due) => Ok(format!("templates: {due} due at start")),
            Err(why) => Err(format!("templates: {why}")),
        });
        facts.fact(Ok(format!("NICs: {} to be named", files.nics.len())));
    }
    let Some(list) = files.mounts.as_ref().filter(|_| built::MOUNTS) else { return };
    if let Err(why) = json::check(list) {
        return facts.fact(Err(format!("agent-mounts.json: {why}")));
    }
    for entry in json::elements(list).take(mount::MOST) {
        facts.fact(match wanted(flavour, entry, hash) {
            Ok(mount::Wanted::Mount { source, target, .. }) => {
                Ok(format!("mount: {source} on /{target}"))
            }
            Ok(_) => Err("mount: no entry".into()),
            Err(why) => Err(format!("mount: {why}")),
        });
    }
}
