//! mote-host: plays the LXD or Incus host, so that an agent can be run and tested without either.

mod agent_client;
mod api;
mod certs;
mod control;
mod daemon;
mod devlxd;
mod http;
mod instance;
mod status;

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::control::ask;
use crate::daemon::Daemon;
use crate::instance::{Channel, Flavour, Instance, Vsock};

const HELP: &str = "\
mote-host: plays the LXD or Incus host for a guest agent

Usage: mote-host --dir DIR COMMAND

  init NAME --flavour lxd|lxd-5.0|incus
            --vsock-uds PATH | --vsock-plain PREFIX | --vsock-cid CID
            --qmp PATH | --serial PATH [--shared-memory]
            [--agent FILE] [--config KEY=VALUE ...]
                         make an instance; prints the directory of its config share
  daemon [--port N]      run the host in the foreground
  list | show NAME       instances
  agent-state NAME [--json]
  get NAME KEY | set NAME KEY=VALUE ... | unset NAME KEY
  device-add NAME DEVICE KEY=VALUE ... | device-remove NAME DEVICE
  events [NAME]          follow
  query NAME METHOD PATH [BODY]
                         send any request to the agent
  stop NAME              the VM was switched off
  fault NAME KIND [N]    none, stall N s, slow N ms, reset, wrong-cert, forbidden, huge,
                         garbage, deny-put
";

fn main() -> ExitCode {
    match run(std::env::args().skip(1).collect()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mote-host: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(mut args: VecDeque<String>) -> Result<()> {
    if args.iter().any(|arg| arg == "--help" || arg == "-h") || args.is_empty() {
        print!("{HELP}");
        return Ok(());
    }
    let root = PathBuf::from(option(&mut args, "--dir").context("--dir is needed")?);
    let command = args.pop_front().context("a command is needed; see --help")?;
    if command == "init" {
        return init(&root, args);
    }
    if command == "daemon" {
        return daemon(&root, option(&mut args, "--port").as_deref());
    }
    let is_json = flag(&mut args, "--json");
    let mut next = || args.pop_front().context("an argument is missing; see --help");
    match command.as_str() {
        "list" => print(&ask(&root, "GET", "/1.0/instances", &Value::Null)?),
        "show" => print(&ask(&root, "GET", &format!("/1.0/instances/{}", next()?), &Value::Null)?),
        "agent-state" => {
            let target = format!("/1.0/internal/{}/agent-state", next()?);
            let state = ask(&root, "GET", &target, &Value::Null)?;
            if is_json { println!("{state}") } else { print(&state) }
        }
        "get" => {
            let (name, key) = (next()?, next()?);
            let shown = ask(&root, "GET", &format!("/1.0/instances/{name}"), &Value::Null)?;
            println!("{}", shown["config"][&key].as_str().context("not set")?);
        }
        "set" | "unset" => {
            let target = format!("/1.0/instances/{}/config", next()?);
            let unset = || args.iter().map(|key| (key.clone(), Value::Null)).collect();
            let changes = if command == "set" { json!(pairs(&args)?) } else { unset() };
            ask(&root, "PATCH", &target, &changes)?;
        }
        "device-add" | "device-remove" => {
            let (name, device) = (next()?, next()?);
            let config = if command == "device-add" { json!(pairs(&args)?) } else { Value::Null };
            let target = format!("/1.0/instances/{name}/devices");
            ask(&root, "PATCH", &target, &json!({"name": device, "config": config}))?;
        }
        "events" => control::print_events(&root, args.pop_front().as_deref())?,
        "query" => {
            let (name, method, path) = (next()?, next()?, next()?);
            let body = args.pop_front().unwrap_or_default();
            let query = json!({"method": method, "path": path, "body": body});
            let answer = ask(&root, "POST", &format!("/1.0/instances/{name}/query"), &query)?;
            println!("{}\n{}", answer["status"], answer["body"].as_str().unwrap_or(""));
        }
        "stop" => {
            ask(&root, "POST", &format!("/1.0/instances/{}/stop", next()?), &Value::Null)?;
        }
        "fault" => {
            let (name, kind) = (next()?, next()?);
            let number: u64 = args.pop_front().map_or(Ok(0), |number| number.parse())?;
            let body = json!({"kind": kind, "number": number});
            ask(&root, "POST", &format!("/1.0/instances/{name}/fault"), &body)?;
        }
        other => bail!("unknown command {other}; see --help"),
    }
    Ok(())
}

fn print(value: &Value) {
    println!("{value:#}");
}

/// Takes `name VALUE` out of the arguments.
fn option(args: &mut VecDeque<String>, name: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == name)?;
    drop(args.remove(at));
    args.remove(at)
}

fn flag(args: &mut VecDeque<String>, name: &str) -> bool {
    let at = args.iter().position(|arg| arg == name);
    at.and_then(|at| args.remove(at)).is_some()
}

fn pairs<'a>(args: impl IntoIterator<Item = &'a String>) -> Result<BTreeMap<String, String>> {
    let pair = |arg: &'a String| {
        let (key, value) = arg.split_once('=').with_context(|| format!("{arg} is no KEY=VALUE"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    args.into_iter().map(pair).collect()
}

fn init(root: &Path, mut args: VecDeque<String>) -> Result<()> {
    let flavour = match option(&mut args, "--flavour").as_deref() {
        Some("lxd") | None => Flavour::Lxd,
        Some("lxd-5.0") => Flavour::LxdOld,
        Some("incus") => Flavour::Incus,
        Some(other) => bail!("unknown flavour {other}"),
    };
    let mut place = |name| option(&mut args, name);
    let vsock = match (place("--vsock-uds"), place("--vsock-plain"), place("--vsock-cid")) {
        (Some(path), None, None) => Vsock::Uds(path.into()),
        (None, Some(prefix), None) => Vsock::Plain(prefix.into()),
        (None, None, Some(cid)) => Vsock::Cid(cid.parse()?),
        _ => bail!("one of --vsock-uds, --vsock-plain and --vsock-cid is needed"),
    };
    let shared = flag(&mut args, "--shared-memory");
    let channel = match (option(&mut args, "--qmp"), option(&mut args, "--serial")) {
        (Some(path), None) => Channel::Qmp(path.into()),
        (None, Some(path)) => Channel::Serial { path: path.into(), shared },
        _ => bail!("one of --qmp and --serial is needed"),
    };
    let agent = option(&mut args, "--agent").map(PathBuf::from);
    let mut given = Vec::new();
    while let Some(pair) = option(&mut args, "--config") {
        given.push(pair);
    }
    let config = pairs(&given)?;
    let name = args.pop_front().context("a name is needed")?;
    if let Some(extra) = args.pop_front() {
        bail!("unexpected argument {extra}");
    }
    let (devices, volumes) = (BTreeMap::new(), BTreeMap::new());
    let instance = Instance { name, flavour, vsock, channel, config, devices, volumes };
    println!("{}", instance.create(root, agent.as_deref())?.display());
    Ok(())
}

fn daemon(root: &Path, port: Option<&str>) -> Result<()> {
    let port = match port {
        Some(port) => port.parse()?,
        None => {
            let mut bytes = [0; 2];
            ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
                .map_err(|_| anyhow::anyhow!("no random numbers"))?;
            // As real hosts do at each start (P§3.3).
            1024 + u32::from(u16::from_be_bytes(bytes)) % 64_000
        }
    };
    let daemon = Daemon::new(root, port)?;
    let ends = [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT];
    let mut signals = signal_hook::iterator::Signals::new(ends)?;
    let sockets: Vec<_> =
        daemon.instances().values().filter_map(|live| live.instance.vsock.listener(port)).collect();
    let control = control::path(root);
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _gone = std::fs::remove_file(control);
            for socket in sockets {
                let _gone = std::fs::remove_file(socket);
            }
            #[expect(clippy::exit, reason = "the other threads wait for sockets for ever")]
            std::process::exit(0);
        }
    });
    daemon.run()
}
