//! The command line: one struct, filled once.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_agent::flavour::Flavour;
use mote_agent::policy::Policy;

/// `--help`.
pub(crate) const HELP: &str = "\
mote-agent: guest agent for LXD and Incus virtual machines

Usage: mote-agent [OPTIONS]            run the agent
       mote-agent [OPTIONS] COMMAND    ask the running agent

Commands:
  ready            tell the host that this instance is Ready
  started          take that back
  get KEY          print a configuration value (mote-agent get user.foo)
  config           print all configuration values
  metadata         print the cloud-init meta-data
  devices          print the devices (JSON)
  events           print events as they come, one JSON document a line
  status           print what the agent itself knows
  report state     print what the host is told of this instance (JSON); needs no agent
  report metrics   the same for its metrics
  sftp-server [-d DIR]
                   serve SFTP on standard input and output, relative to DIR, as OpenSSH's
                   sftp-server does; the agent starts it by itself for the host

Options:
  --config-dir DIR         where agent.crt, agent.key and server.crt are (default: working
                           directory, /run/lxd_agent, /run/incus_agent, else the config share,
                           which is mounted, read and unmounted)
  -s, --secrets-location DIR   where only these three are; the rest is in --config-dir, or in
                           the working directory
  --port PATH              status port (default: found by name)
  --flavour NAME           incus, lxd or lxd-5.0 (default: by the port's name)
  --deny LIST              what the host may not do: guestapi, exec, files, mounts,
                           port-forward, metrics, state; separated by commas
  --allow LIST             the only things that it may do; a denied one stays denied
                           (also /etc/mote-agent.yml, on Incus /etc/incus-agent.yml)
  --no-replay-ready        do not repeat Ready to a host that was restarted
  --interval-connect MS    pace in state CONNECT (100)
  --interval-started MS    pace in state STARTED (1000)
  --interval-connected MS  pace in state CONNECTED (30000)
  --root DIR               prefix of every absolute path (for tests)
  --vsock-unix PREFIX      unix sockets in place of vsock (for tests)
  --check                  report what would be done; exit 0 if the agent could run
  -d, --debug              log more
  --version, -h, --help

Exit codes: 0 done, 1 the host said no or a fatal error, 2 usage, 3 no agent, 4 no host.
";

/// What the command line says.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "three switches that have nothing in common")]
pub(crate) struct Options {
    /// Where the host's files are.
    pub(crate) config_dir: Option<PathBuf>,
    /// Where the certificates are, if not there.
    pub(crate) secrets_dir: Option<PathBuf>,
    /// Prefix of every absolute path.
    pub(crate) root: PathBuf,
    /// The status port.
    pub(crate) port: Option<PathBuf>,
    /// Which server.
    pub(crate) flavour: Option<Flavour>,
    /// Unix sockets in place of vsock.
    pub(crate) vsock_unix: Option<PathBuf>,
    /// What the host may do, as far as the command line says.
    pub(crate) policy: Policy,
    /// Whether to repeat Ready.
    pub(crate) replay_ready: bool,
    /// CONNECT, STARTED, CONNECTED.
    pub(crate) intervals: (Option<Duration>, Option<Duration>, Option<Duration>),
    /// Log more.
    pub(crate) debug: bool,
    /// Whether we are called by the name of one of the agents that we replace: they ignore words
    /// that they do not know (P§1.1).
    pub(crate) stands_in: bool,
    /// What to do.
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Be the agent.
    Run,
    /// Report and exit.
    Check,
    /// Mount or unmount one share, in so much time.
    MountWorker(Duration),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
    /// Say Ready.
    Ready,
    /// Say Started.
    Started,
    /// One configuration value.
    Get(String),
    /// All of them.
    Config,
    /// The meta-data.
    Metadata,
    /// The devices.
    Devices,
    /// Events as they come.
    Events,
    /// The agent's own view.
    Status,
    /// What the host is told; the agent starts itself with this for each answer.
    Report(Report),
    /// Serve SFTP on standard input and output, from a directory on.
    SftpServer(Option<PathBuf>),
}

/// What to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// `GET /1.0/state`.
    State,
    /// `GET /1.0/metrics`.
    Metrics,
}

/// Reads the command line; its first word is the name we are called by.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Options, String> {
    let name = args.next().unwrap_or_default();
    let stands_in = Path::new(&name).file_name().is_some_and(|name| {
        ["lxd-agent", "incus-agent"].into_iter().any(|original| name == original)
    });
    let mut options = Options {
        config_dir: None,
        secrets_dir: None,
        root: "/".into(),
        port: None,
        flavour: None,
        vsock_unix: None,
        policy: Policy::ALL,
        replay_ready: true,
        intervals: (None, None, None),
        debug: false,
        stands_in,
        command: Command::Run,
    };
    let mut words = Vec::new();
    while let Some(arg) = args.next() {
        let arg = arg.into_string().map_err(|_| "arguments must be UTF-8".to_owned())?;
        if arg.starts_with('-') {
            option(&mut options, &arg, &mut args)?;
        } else if words.is_empty() && arg == "sftp-server" {
            // What follows is its own: its -d is not ours.
            options.command = Command::SftpServer(sftp_directory(args)?);
            return Ok(options);
        } else {
            words.push(arg);
        }
    }
    match command(&words) {
        Ok(Some(command)) => options.command = command,
        Ok(None) => {}
        Err(_) if options.stands_in => {}
        Err(why) => return Err(why),
    }
    Ok(options)
}

/// `-d DIR`, as OpenSSH's sftp-server has it.
fn sftp_directory(mut args: impl Iterator<Item = OsString>) -> Result<Option<PathBuf>, String> {
    let Some(option) = args.next() else { return Ok(None) };
    match (option == "-d", args.next(), args.next()) {
        (true, Some(directory), None) => Ok(Some(directory.into())),
        _ => Err("sftp-server takes -d DIR and nothing else".to_owned()),
    }
}

fn option(
    options: &mut Options,
    arg: &str,
    args: &mut impl Iterator<Item = OsString>,
) -> Result<(), String> {
    let (name, given) = match arg.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (arg, None),
    };
    if flag(options, name) {
        return if given.is_some() { Err(format!("{name} takes no value")) } else { Ok(()) };
    }
    let mut value = || match &given {
        Some(value) => Ok(value.clone()),
        None => args
            .next()
            .and_then(|value| value.into_string().ok())
            .ok_or_else(|| format!("{name} needs a value")),
    };
    let mut millis = || -> Result<Option<Duration>, String> {
        match value()?.parse() {
            Ok(millis @ 10..=3_600_000) => Ok(Some(Duration::from_millis(millis))),
            _ => Err(format!("{name} takes 10 to 3600000 milliseconds")),
        }
    };
    match name {
        "--interval-connect" => options.intervals.0 = millis()?,
        "--interval-started" => options.intervals.1 = millis()?,
        "--interval-connected" => options.intervals.2 = millis()?,
        "--secrets-location" | "-s" => options.secrets_dir = Some(value()?.into()),
        "--config-dir" => options.config_dir = Some(value()?.into()),
        "--deny" | "--allow" => {
            let list = value()?;
            let restrict = if name == "--deny" { Policy::without } else { Policy::only };
            let policy = restrict(&list).map_err(|_| {
                format!("{name} takes guestapi,exec,files,mounts,port-forward,metrics,state")
            })?;
            options.policy = options.policy.and(policy);
        }
        "--root" => options.root = value()?.into(),
        "--port" => options.port = Some(value()?.into()),
        "--vsock-unix" => options.vsock_unix = Some(value()?.into()),
        "--flavour" => {
            let name = value()?;
            let flavour = Flavour::parse(&name);
            options.flavour = Some(flavour.ok_or_else(|| format!("no flavour is called {name}"))?);
        }
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}

/// An option without a value; false if it is none.
fn flag(options: &mut Options, name: &str) -> bool {
    match name {
        "--no-replay-ready" => options.replay_ready = false,
        // The real agents know both letters.
        "--debug" | "-d" | "--verbose" | "-v" => options.debug = true,
        "--check" => options.command = Command::Check,
        "--version" => options.command = Command::Version,
        "--help" | "-h" => options.command = Command::Help,
        _ => return false,
    }
    true
}

fn command(words: &[String]) -> Result<Option<Command>, String> {
    let mut words = words.iter().map(String::as_str);
    let Some(word) = words.next() else { return Ok(None) };
    let command = match word {
        "ready" => Command::Ready,
        "started" => Command::Started,
        "get" => Command::Get(words.next().ok_or("get needs a key")?.to_owned()),
        "config" => Command::Config,
        "metadata" => Command::Metadata,
        "devices" => Command::Devices,
        "events" => Command::Events,
        "status" => Command::Status,
        "report" => Command::Report(match words.next() {
            Some("state") => Report::State,
            Some("metrics") => Report::Metrics,
            _ => return Err("report needs state or metrics".to_owned()),
        }),
        "mount-worker" => {
            let limit = words.next().and_then(|limit| limit.parse().ok());
            let limit = limit.ok_or("mount-worker needs its limit in milliseconds")?;
            Command::MountWorker(Duration::from_millis(limit))
        }
        _ => return Err(format!("unknown command {word}")),
    };
    match words.next() {
        Some(extra) => Err(format!("unexpected argument {extra}")),
        None => Ok(Some(command)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, String> {
        parse(["mote-agent"].into_iter().chain(line.split_whitespace()).map(OsString::from))
    }

    #[test]
    fn values_come_after_a_space_or_an_equals_sign() {
        for line in
            ["--config-dir /x --interval-started=50", "--config-dir=/x --interval-started 50"]
        {
            let options = parsed(line).unwrap();
            assert_eq!(options.config_dir, Some("/x".into()));
            assert_eq!(options.intervals.1, Some(Duration::from_millis(50)));
            assert_eq!(options.command, Command::Run);
        }
    }

    #[test]
    fn commands_take_exactly_their_arguments() {
        assert_eq!(parsed("get user.a").unwrap().command, Command::Get("user.a".into()));
        assert_eq!(parsed("--debug status").unwrap().command, Command::Status);
        for bad in [
            "get",
            "get a b",
            "report",
            "report x",
            "status x",
            "nope",
            "--nope",
            "--root",
            "--debug=1",
            "--flavour x",
        ] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("--interval-connect 0").is_err());
    }

    #[test]
    fn what_follows_sftp_server_is_its_own() {
        let plain = parsed("--root /r --debug sftp-server").unwrap();
        assert_eq!((plain.command, plain.debug), (Command::SftpServer(None), true));
        let options = parsed("sftp-server -d /x").unwrap();
        assert_eq!(options.command, Command::SftpServer(Some("/x".into())));
        assert!(!options.debug);
        for bad in ["sftp-server -d", "sftp-server -e", "sftp-server -d /x y", "sftp-server /x"] {
            assert!(parsed(bad).is_err(), "{bad}");
        }
        assert!(parsed("get sftp-server").unwrap().command == Command::Get("sftp-server".into()));
    }

    #[test]
    fn called_as_an_original_it_takes_what_the_original_takes() {
        let called = |line: &str| parse(line.split_whitespace().map(OsString::from));
        let options = called("/run/incus_agent/incus-agent -d -s /run/x whatever else").unwrap();
        assert_eq!(options.command, Command::Run);
        assert_eq!(options.secrets_dir, Some("/run/x".into()));
        assert_eq!(
            called("lxd-agent --secrets-location=/y").unwrap().secrets_dir,
            Some("/y".into())
        );
        assert!(called("lxd-agent --nope").is_err());
        assert!(called("mote-agent whatever").is_err());
    }

    #[test]
    fn lists_of_what_is_allowed_only_restrict() {
        let policy = |line| parsed(line).unwrap().policy;
        assert_eq!(policy(""), Policy::ALL);
        let both = policy("--allow exec,state --deny exec");
        assert_eq!(both, policy("--deny=exec --allow=state,exec"));
        assert_eq!(both, Policy::only("state").unwrap());
        assert!(parsed("--deny exec,ssh").is_err());
    }
}
