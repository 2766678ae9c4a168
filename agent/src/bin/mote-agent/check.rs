//! `--check`: what the agent would find and do, one line a fact, nothing left behind.

use std::process::ExitCode;

use mote_agent::flavour::Flavour;

use crate::options::Options;
use crate::{lock, modules, policy, port, share, socket, tls};

/// Reports; success if the agent could run.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut good = true;
    let mut fact = |fine: Result<String, String>, needed: bool| match fine {
        Ok(text) => println!("ok       {text}"),
        Err(text) if needed => {
            println!("missing  {text}");
            good = false;
        }
        Err(text) => println!("absent   {text}"),
    };
    let found = port::discover(&options.root);
    let flavour = options.flavour.or(found.as_ref().map(|found| found.flavour));
    fact(
        match &found {
            Some(found) => Ok(format!("port: {} ({})", found.path.display(), found.flavour.name())),
            None => Err("port: none of the three names; the host cannot see this agent".into()),
        },
        false,
    );
    match share::find(options) {
        Ok(files) => {
            fact(Ok(format!("files: {}", files.from)), true);
            fact(tls::check(&files).map(|()| "certificates: usable".into()), true);
            let conf = files.agent_conf.as_deref().map(mote_agent::peer::Told::parse);
            fact(
                match conf {
                    Some(Ok(told)) => {
                        let (address, devlxd) = (told.address, told.guest_api);
                        Ok(format!("agent.conf: {}:{}, devlxd {devlxd}", address.cid, address.port))
                    }
                    Some(Err(why)) => Err(format!("agent.conf: {why}")),
                    None => Err("agent.conf: none; devlxd waits for the host's call".into()),
                },
                false,
            );
        }
        Err(why) => fact(Err(why), true),
    }
    let (policy, troubles) = policy::find(options, flavour.unwrap_or(Flavour::Lxd));
    troubles.into_iter().for_each(|trouble| fact(Err(format!("policy: {trouble}")), true));
    fact(Ok(format!("policy: {policy}")), false);
    if options.vsock_unix.is_none() {
        let vsock =
            modules::load_vsock(&options.root).and_then(|()| socket::probe_vsock(&options.root));
        fact(vsock.map(|cid| format!("vsock: context id {cid}")), true);
    }
    let socket = flavour.unwrap_or(Flavour::Lxd).socket_path();
    fact(Ok(format!("devlxd: would be at {socket}")), false);
    if lock::is_held(&options.root) {
        fact(Ok("agent: running".into()), false);
    } else {
        fact(Err("agent: not running".into()), false);
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
