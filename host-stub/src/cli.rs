//! The command line. `init` and `daemon` work on the directory, everything else asks the daemon.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Args, flag, next, none_left, option, pair, pairs};
use crate::control::{self, ask};
use crate::daemon::Daemon;
use crate::instance::{Channel, Flavour, Instance, VSOCK_ID, Vsock};
use crate::share::{Device, Template};
use crate::store;
use crate::{agent_cli, exec, file, port_forward};

const HELP: &str = "\
mote-host: plays the LXD or Incus host for a guest agent

Usage: mote-host --dir DIR COMMAND

  init NAME --flavour lxd|lxd-5.0|incus
            --vsock-uds PATH | --vsock-plain PREFIX | --vsock-cid CID
            --qmp PATH | --serial PATH [--shared-memory]
            [--agent FILE] [--config KEY=VALUE ...] [--nic NAME=MAC[,mtu=N] ...]
            [--template TARGET=FILE[,create_only][,mode=M][,uid=N][,gid=N] ...]
                         make an instance; prints the directory of its config share
  daemon [--port N]      run the host in the foreground
  list | show NAME       instances
  agent-state NAME [--json]
  get NAME KEY | set NAME KEY=VALUE ... | unset NAME KEY
  device-add NAME DEVICE KEY=VALUE ... | device-remove NAME DEVICE
  events [NAME]          follow
  events NAME --agent [--type A,B]
                         follow the agent's own
  query NAME METHOD PATH [BODY]
                         send any request to the agent
  exec [OPTIONS] NAME [--] COMMAND ...
                         run it in the guest, with its exit code; 129 if the guest is lost
    --user N  --group N  --cwd DIR  --env KEY=VALUE
    -t | -T              with a terminal, or without (otherwise: if we have one)
    -n                   no input
    --bare               leave the defaults to the agent
    --fault KIND         skip=S, bad-secret=S, twice=S (S: control, 0, 1, 2), no-barrier,
                         drop-control=MILLISECONDS, stall=SECONDS (output is not read)
  file push NAME FILE ... PATH | file pull NAME PATH ... FILE
                         - is stdin or stdout, -r whole trees, -p directories above too;
                         push: --mode M, --uid N, --gid N
  file ls NAME [PATH] | rm [-r] | mkdir [-p] [--mode M] | stat | readlink | realpath NAME PATH ...
  file ln [-s] NAME TARGET PATH | mv NAME PATH PATH | chmod NAME MODE PATH ... | df NAME [PATH]
  sftp NAME              the stream on stdin and stdout, for
                         sftp -D \"mote-host --dir DIR sftp NAME\"
  state NAME [--json] | metrics NAME [--json]
                         what the agent reports; an error if a host would not understand it
  operations NAME [list | show ID | wait ID [--timeout SECONDS] | delete ID]
                         the agent's own
  port-forward NAME LISTEN_ADDRESS:PORT [ADDRESS:]PORT
                         Incus: carry connections into the guest
  start NAME | stop NAME the VM was switched on, or off
  fault NAME KIND [N]    none, stall [s], slow ms, reset, wrong-cert, forbidden, huge,
                         garbage, deny-put, no-tickets [ms]

Keys of its own: mote.bearer (the token for storage, instances and operations),
mote.image.size (bytes of any image), mote.operation.ms (how long operations take).
";

/// Does what the arguments say.
pub(crate) fn run(mut args: Args) -> Result<u8> {
    // What follows `exec` may be for the command.
    let mut ours = args.iter().take_while(|arg| *arg != "exec");
    if args.is_empty() || ours.any(|arg| arg == "--help" || arg == "-h") {
        print!("{HELP}");
        return Ok(0);
    }
    let root = PathBuf::from(option(&mut args, "--dir").context("--dir is needed")?);
    let command = args.pop_front().context("a command is needed; see --help")?;
    match command.as_str() {
        "exec" => return exec::run(&root, args),
        "state" | "metrics" => agent_cli::report(&root, &command, args),
        "operations" => agent_cli::operations(&root, args),
        "port-forward" => port_forward::run(&root, args),
        "file" => file::run(&root, args),
        "sftp" => file::pipe(&root, args),
        "init" => init(&root, args),
        "daemon" => daemon(&root, args),
        "list" | "show" | "agent-state" | "get" | "events" | "query" => {
            look(&root, &command, &mut args)?;
            none_left(&args)
        }
        "set" | "unset" | "device-add" | "device-remove" | "start" | "stop" | "fault" => {
            change(&root, &command, &mut args)
        }
        other => bail!("unknown command {other}; see --help"),
    }
    .map(|()| 0)
}

/// Commands that print something.
fn look(root: &Path, command: &str, args: &mut Args) -> Result<()> {
    if command == "list" {
        let all = ask(root, "GET", "/1.0/instances", &Value::Null)?;
        for name in all.as_array().into_iter().flatten().filter_map(Value::as_str) {
            println!("{name}");
        }
        return Ok(());
    }
    if command == "events" && flag(args, "--agent") {
        let types = option(args, "--type");
        let name = next(args)?;
        none_left(args)?;
        return agent_cli::events(root, &name, types.as_deref());
    }
    if command == "events" {
        return control::print_events(root, args.pop_front().as_deref());
    }
    let is_json = flag(args, "--json");
    let name = next(args)?;
    let show = || ask(root, "GET", &format!("/1.0/instances/{name}"), &Value::Null);
    match command {
        "show" => println!("{:#}", show()?),
        "get" => {
            let shown = show()?;
            println!("{}", shown["config"][next(args)?].as_str().context("not set")?);
        }
        "agent-state" => {
            let target = format!("/1.0/internal/{name}/agent-state");
            let state = ask(root, "GET", &target, &Value::Null)?;
            if is_json { println!("{state}") } else { print!("{}", readable(&name, &state)) }
        }
        _ => {
            let (method, path) = (next(args)?, next(args)?);
            let body = args.pop_front().unwrap_or_default();
            let query = json!({"method": method, "path": path, "body": body});
            let answer = ask(root, "POST", &format!("/1.0/instances/{name}/query"), &query)?;
            println!("{}\n{}", answer["status"], answer["body"].as_str().unwrap_or(""));
        }
    }
    Ok(())
}

/// Commands that change something.
fn change(root: &Path, command: &str, args: &mut Args) -> Result<()> {
    let name = next(args)?;
    let (method, what, body) = match command {
        "set" => ("PATCH", "config", json!(pairs(args.drain(..))?)),
        "unset" => ("PATCH", "config", json!({ next(args)?: null })),
        "device-add" => {
            let device = next(args)?;
            ("PATCH", "devices", json!({"name": device, "config": pairs(args.drain(..))?}))
        }
        "device-remove" => ("PATCH", "devices", json!({"name": next(args)?, "config": null})),
        "fault" => {
            let kind = next(args)?;
            let number = args.pop_front().map(|number| number.parse::<u64>()).transpose();
            let number = number.context("a fault's argument is a number")?;
            ("POST", "fault", json!({"kind": kind, "number": number}))
        }
        power => ("POST", power, Value::Null),
    };
    none_left(args)?;
    ask(root, method, &format!("/1.0/instances/{name}/{what}"), &body).map(drop)
}

fn readable(name: &str, state: &Value) -> String {
    let text = |key: &str| match state[key].as_str() {
        Some("") => "-".to_owned(),
        Some(text) => text.to_owned(),
        None => state[key].to_string(),
    };
    let put = &state["last_put"];
    let at = put["at"].as_str().unwrap_or("");
    let put = match (put.is_null(), put["error"].as_str()) {
        (true, _) => "-".to_owned(),
        (false, None) => format!("ok in {} ms, {at}", put["ms"]),
        (false, Some(why)) => format!("failed after {} ms, {at}: {why}", put["ms"]),
    };
    format!(
        "{name}: agent {} since {}\n  status        {}\n  started       {}\n  last line     {}\n  \
         last PUT      {put}\n  connections   {}, {} resumed\n  last request  {}\n  \
         host port     {}\n",
        text("state"),
        text("since"),
        text("status"),
        text("started"),
        text("last_line"),
        text("connections"),
        text("resumed"),
        text("last_request"),
        text("port"),
    )
}

fn init(root: &Path, mut args: Args) -> Result<()> {
    let mut templates = Vec::new();
    while let Some(text) = option(&mut args, "--template") {
        templates.push(Template::parse(&text)?);
    }
    let (instance, agent) = described(&mut args)?;
    let share = store::create(root, &instance, agent.as_deref(), &templates)?;
    println!("{}", share.display());
    // A daemon that runs is told; if there is none, the next one finds it.
    if std::os::unix::net::UnixStream::connect(control::path(root)).is_ok() {
        let target = format!("/1.0/instances/{}/adopt", instance.name);
        ask(root, "POST", &target, &Value::Null)?;
    }
    Ok(())
}

/// The instance that the arguments of `init` describe, and the agent to put into its share.
fn described(args: &mut Args) -> Result<(Instance, Option<PathBuf>)> {
    let flavour = match option(args, "--flavour").as_deref() {
        Some("lxd") => Flavour::Lxd,
        Some("lxd-5.0") => Flavour::LxdOld,
        Some("incus") => Flavour::Incus,
        Some(other) => bail!("unknown flavour {other}"),
        None => bail!("--flavour is needed"),
    };
    // Paths are used by a daemon that may run elsewhere.
    let path = |path: String| std::path::absolute(&path).with_context(|| path.clone());
    let mut config = BTreeMap::new();
    let cid = option(args, "--vsock-cid").map(|cid| context_id(&cid)).transpose()?;
    if let Some(cid) = cid {
        config.insert(VSOCK_ID.to_owned(), cid.to_string());
    }
    let vsock = match (option(args, "--vsock-uds"), option(args, "--vsock-plain"), cid) {
        (Some(uds), None, _) => Vsock::Uds(path(uds)?),
        (None, Some(prefix), _) => Vsock::Plain(path(prefix)?),
        (None, None, Some(cid)) => Vsock::Cid(cid),
        _ => bail!("one of --vsock-uds, --vsock-plain and --vsock-cid is needed"),
    };
    let shared = flag(args, "--shared-memory");
    let channel = match (option(args, "--qmp"), option(args, "--serial")) {
        (Some(_), None) if shared => bail!("--shared-memory goes with --serial"),
        (Some(qmp), None) => Channel::Qmp(path(qmp)?),
        (None, Some(serial)) => Channel::Serial { path: path(serial)?, shared },
        _ => bail!("one of --qmp and --serial is needed"),
    };
    let agent = option(args, "--agent").map(PathBuf::from);
    while let Some(pair) = option(args, "--config") {
        config.extend(pairs([pair])?);
    }
    let mut devices = BTreeMap::new();
    while let Some(text) = option(args, "--nic") {
        let (name, device) = nic(&text)?;
        devices.insert(name, device);
        config.insert("agent.nic_config".into(), "true".into());
    }
    let name = next(args)?;
    none_left(args)?;
    let volumes = BTreeMap::new();
    Ok((Instance { name, flavour, vsock, channel, config, devices, volumes }, agent))
}

/// `NAME=MAC[,mtu=N]`: a NIC that the guest is to call so.
fn nic(text: &str) -> Result<(String, Device)> {
    let (name, rest) = pair(text)?;
    let (address, more) = rest.split_once(',').unwrap_or((&rest, ""));
    let mut device = pairs(more.split(',').filter(|more| !more.is_empty()).map(str::to_owned))?;
    if device.keys().any(|key| key != "mtu") {
        bail!("a NIC is NAME=MAC[,mtu=N]");
    }
    let about = [("type", "nic"), ("name", name.as_str()), ("hwaddr", address)];
    device.extend(about.map(|(key, value)| (key.to_owned(), value.to_owned())));
    Ok((name, device))
}

/// Up to 2 they are taken (P§3.2).
fn context_id(text: &str) -> Result<u32> {
    text.parse()
        .ok()
        .filter(|id| *id > 2)
        .with_context(|| format!("{text} is no guest's context id"))
}

fn daemon(root: &Path, mut args: Args) -> Result<()> {
    let port = match option(&mut args, "--port") {
        Some(port) => port.parse().with_context(|| format!("{port} is no port"))?,
        None => random_port()?,
    };
    none_left(&args)?;
    let _lock = store::lock(root)?;
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let daemon = Daemon::new(root, port)?;
    let ending = daemon.clone();
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            ending.unbind();
            #[expect(clippy::exit, reason = "the other threads wait for sockets for ever")]
            std::process::exit(0);
        }
    });
    daemon.run()
}

/// As real hosts choose one at each start (P§3.3).
fn random_port() -> Result<u32> {
    const FIRST: u32 = 1024;
    let mut bytes = [0; 4];
    SystemRandom::new().fill(&mut bytes).map_err(|_| anyhow!("no random numbers"))?;
    Ok(FIRST + u32::from_be_bytes(bytes) % (65_536 - FIRST))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_instance_is_read_from_the_arguments_in_any_order() {
        let line = "--vsock-plain /p --config a=b --config c=d=e vm1 --flavour incus \
                    --serial /s --shared-memory --vsock-cid 7";
        let (instance, agent) = described(&mut args(line)).unwrap();
        assert_eq!((instance.name.as_str(), instance.flavour), ("vm1", Flavour::Incus));
        assert_eq!(instance.channel, Channel::Serial { path: "/s".into(), shared: true });
        assert_eq!(instance.vsock, Vsock::Plain("/p".into()));
        assert_eq!(instance.config["c"], "d=e");
        assert_eq!(instance.config[VSOCK_ID], "7");
        assert_eq!(agent, None);
        let line = "vm1 --flavour lxd --qmp /q --vsock-cid 7";
        assert_eq!(described(&mut args(line)).unwrap().0.vsock, Vsock::Cid(7));
    }

    #[test]
    fn nics_are_devices_and_switch_their_configuration_on() {
        let line = "vm1 --flavour lxd --qmp /q --vsock-cid 7 --nic eth0=AA:bb,mtu=1400 --nic x=cc";
        let (instance, _) = described(&mut args(line)).unwrap();
        assert_eq!(instance.devices["eth0"]["mtu"], "1400");
        assert_eq!(instance.devices["x"]["hwaddr"], "cc");
        assert_eq!(instance.config["agent.nic_config"], "true");
        assert!(nic("eth0=aa,mut=1").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "vm1 --vsock-plain /p --qmp /q",
            "vm1 --flavour lxc --vsock-plain /p --qmp /q",
            "vm1 --flavour lxd --qmp /q",
            "vm1 --flavour lxd --vsock-plain /p --vsock-uds /u --qmp /q",
            "vm1 --flavour lxd --vsock-plain /p",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --shared-memory",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --vsock-cid 2",
            "vm1 --flavour lxd --vsock-plain /p --qmp /q --config novalue",
            "vm1 extra --flavour lxd --vsock-plain /p --qmp /q",
            "--flavour lxd --vsock-plain /p --qmp /q",
        ] {
            assert!(described(&mut args(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn the_readable_state_says_what_failed() {
        let state = json!({"state": "STARTED", "since": "t", "status": "Running", "started": true,
            "last_line": "", "connections": 3, "resumed": 1, "last_request": "GET /", "port": 5,
            "last_put": {"ok": false, "error": "refused", "at": "u", "ms": 7}});
        let text = readable("vm1", &state);
        assert!(text.starts_with("vm1: agent STARTED since t\n"), "{text}");
        assert!(text.contains("last line     -\n"), "{text}");
        assert!(text.contains("last PUT      failed after 7 ms, u: refused\n"), "{text}");
    }
}
