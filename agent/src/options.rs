//! Parses the command line.

pub(crate) mod command;

pub(crate) use command::Command;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use mote_core::decimal::digits;
use mote_core::flavour::Flavour;
use mote_core::freeze;
use mote_core::hostapi::exec::{BY_AGENT, BY_HOST};
use mote_core::hostapi::policy::Features;

use self::command::{Ask, Freeze, Starter};
use crate::built;
use crate::transport::Transport;

pub(crate) const INITRAMFS: &str = "--initramfs";
/// The option that an initramfs' agent passes to itself when it re-executes in the real root.
pub(crate) const LEFT: &str = "--left-initramfs";

/// The long name of `-s`.
const SECRETS: &str = "--secrets-location";

#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
pub(crate) struct Options {
    pub(crate) config_dir: Option<PathBuf>,
    /// Directory of the three certificate files, if different.
    pub(crate) secrets_dir: Option<PathBuf>,
    /// Directory in which to store the host's files for a start without them.
    pub(crate) remember: Option<PathBuf>,
    /// Prefix of every absolute path.
    pub(crate) root: PathBuf,
    pub(crate) port: Option<PathBuf>,
    pub(crate) flavour: Option<Flavour>,
    pub(crate) transport: Transport,
    /// Capabilities left by `--deny` and `--allow`.
    pub(crate) features: Features,
    /// Whether to wait at start for missing devices and files.
    pub(crate) wait: bool,
    pub(crate) replay_ready: bool,
    /// Whether an initramfs started the agent.
    pub(crate) initramfs: Initramfs,
    /// Periods in the states CONNECT, STARTED and CONNECTED.
    pub(crate) intervals: [Option<Duration>; 3],
    pub(crate) length: Option<Duration>,
    /// Time limit for `connect`.
    pub(crate) timeout: Option<Duration>,
    /// Whether `freeze` only prints what is frozen.
    pub(crate) status_only: bool,
    /// Whether `grow` only prints what it would do.
    pub(crate) dry_run: bool,
    pub(crate) json: bool,
    pub(crate) debug: bool,
    /// Whether the program was started as `lxd-agent` or `incus-agent`, which ignore unknown
    /// arguments (P§1.1).
    pub(crate) stands_in: bool,
    pub(crate) command: Command,
}

impl Options {
    /// Returns whether to wait for missing devices and files, as only the agent does.
    pub(crate) fn waits(&self) -> bool {
        self.wait && self.is_agent()
    }

    pub(crate) fn is_agent(&self) -> bool {
        matches!(self.command, Command::Run)
    }

    /// Returns whether the agent still runs in its initramfs.
    pub(crate) fn is_early(&self) -> bool {
        built::INITRAMFS && self.initramfs == Initramfs::Within
    }

    /// Returns whether an initramfs started the agent, which later hands over to another one.
    pub(crate) fn makes_room(&self) -> bool {
        built::INITRAMFS && self.initramfs != Initramfs::Never
    }

    /// Checks that the starter, given by the variable [`STARTED_BY`], may run this command. Only
    /// the agent may start workers. A host that may run this program chooses its arguments, which
    /// must not give it more rights: no agent with another root or policy, and no work that the
    /// policy denies. Errors: the starter is not allowed to run it.
    ///
    /// [`STARTED_BY`]: mote_core::hostapi::exec::STARTED_BY
    pub(crate) fn check_starter(&self, by: Option<&OsStr>) -> Result<(), String> {
        let starter = self.command.starter();
        if starter == Starter::Agent && by != Some(OsStr::new(BY_AGENT)) {
            return Err("only the agent starts this command".into());
        }
        let paths = [&self.config_dir, &self.secrets_dir, &self.remember, &self.port];
        let is_plain = self.root == Path::new("/")
            && paths.into_iter().all(Option::is_none)
            && self.transport.is_vsock()
            && starter == Starter::Host;
        if by == Some(OsStr::new(BY_HOST)) && !is_plain {
            return Err("a host command may not start this; see mote-agent.yml(5)".into());
        }
        Ok(())
    }

    fn wants_help(&self) -> bool {
        matches!(self.command, Command::Help)
    }
}

/// Whether an initramfs started the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Initramfs {
    #[default]
    Never,
    /// An initramfs started the agent, which still runs in it.
    Within,
    Left,
}

/// Parses the command line, including `argv[0]`.
pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Options, String> {
    let name = args.next().unwrap_or_default();
    let called = Path::new(&name).file_name();
    let is_called =
        |names: &[&str]| called.is_some_and(|name| names.iter().any(|original| name == *original));
    let stands_in = is_called(&["lxd-agent", "incus-agent"]);
    let leaves = built::INIT && is_called(&["halt", "poweroff", "reboot"]);
    let mut options = Options {
        root: "/".into(),
        features: Features::ALL,
        wait: true,
        replay_ready: true,
        stands_in,
        ..Options::default()
    };
    let (mut words, mut given) = (Vec::new(), Vec::new());
    if leaves {
        // Shut down regardless of the arguments.
        words.extend(called.and_then(|name| name.to_str()).map(str::to_owned));
        args.by_ref().for_each(drop);
    }
    while let Some(arg) = args.next() {
        let arg = arg.into_string().map_err(|_| "arguments must be UTF-8")?;
        if arg.starts_with('-') {
            option(&mut options, &arg, &mut args, &mut given)?;
        } else if words.is_empty() && arg == "sftp-server" {
            // `-d` has another meaning after this command.
            let command = command::sftp_server(args)?;
            if !options.wants_help() {
                options.command = command;
            }
            return Ok(options);
        } else {
            words.push(arg);
        }
    }
    if options.wants_help() {
        // Print help even if other arguments are invalid or missing.
        return Ok(options);
    }
    match command::parse(&words, stands_in) {
        Ok(Some(command)) => options.command = command,
        Ok(None) => {}
        Err(_) if stands_in => {}
        Err(why) => return Err(why),
    }
    about_freeze(&mut options)?;
    if options.timeout.is_some() && !matches!(options.command, Command::Connect(_)) {
        return Err("--timeout needs connect".into());
    }
    if options.dry_run && !matches!(options.command, Command::Grow(_)) {
        return Err("--dry-run needs grow".into());
    }
    if options.json && !matches!(options.command, Command::Ask(Ask::Status) | Command::Check) {
        return Err("--json needs status or --check".into());
    }
    Ok(options)
}

/// Parses an option: `NAME=VALUE`, or `NAME` with the value in `args`. `given` are earlier names.
fn option(
    options: &mut Options,
    arg: &str,
    args: &mut impl Iterator<Item = OsString>,
    given: &mut Vec<String>,
) -> Result<(), String> {
    let (name, value) = match arg.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (arg, None),
    };
    let name = if name == "-s" { SECRETS } else { name };
    if flag(options, name) {
        return if value.is_some() { Err(format!("{name} takes no value")) } else { Ok(()) };
    }
    // Cumulative options may be repeated. A Go agent uses the last occurrence.
    let is_cumulative = options.stands_in || matches!(name, "--deny" | "--allow");
    let mut value = || {
        if !is_cumulative && given.iter().any(|other| other == name) {
            return Err(format!("{name} is given twice"));
        }
        given.push(name.to_owned());
        let value = value.map(str::to_owned).or_else(|| args.next()?.into_string().ok());
        value.ok_or_else(|| format!("{name} needs a value"))
    };
    match name {
        SECRETS => options.secrets_dir = Some(value()?.into()),
        "--config-dir" => options.config_dir = Some(value()?.into()),
        "--for" | "--timeout" => {
            let length = freeze::length(&value()?);
            length.ok_or_else(|| format!("{name} needs a time, such as 60s or 5m"))?;
            *(if name == "--for" { &mut options.length } else { &mut options.timeout }) = length;
        }
        "--remember" => options.remember = Some(value()?.into()),
        "--root" => options.root = value()?.into(),
        "--port" => options.port = Some(value()?.into()),
        "--vsock-unix" => options.transport = Transport::Unix(value()?.into()),
        #[cfg(feature = "tcp")]
        "--vsock-tcp" => {
            let port = digits(&value()?).ok_or_else(|| format!("{name} needs a port"))?;
            options.transport = Transport::Tcp(port);
        }
        "--flavour" => {
            let value = value()?;
            let flavour = Flavour::parse(&value);
            options.flavour = Some(flavour.ok_or_else(|| format!("unknown flavour {value}"))?);
        }
        "--deny" | "--allow" => {
            let restrict = if name == "--deny" { Features::without } else { Features::only };
            let features = restrict(&value()?).map_err(|why| format!("{name}: {why}"))?;
            options.features = options.features.and(features);
        }
        "--interval-connect" | "--interval-started" | "--interval-connected" => {
            let Some(millis @ 10..=3_600_000) = digits(&value()?) else {
                return Err(format!("{name} takes 10 to 3600000 milliseconds"));
            };
            let [connect, started, connected] = &mut options.intervals;
            *match name {
                "--interval-connect" => connect,
                "--interval-started" => started,
                _ => connected,
            } = Some(Duration::from_millis(millis));
        }
        _ => return Err(format!("unknown option {name}")),
    }
    Ok(())
}

/// Parses an option without a value; returns false for any other argument.
fn flag(options: &mut Options, name: &str) -> bool {
    match name {
        "--no-wait" => options.wait = false,
        "--status" => options.status_only = true,
        "--dry-run" => options.dry_run = true,
        "--json" => options.json = true,
        "--no-replay-ready" => options.replay_ready = false,
        INITRAMFS => options.initramfs = Initramfs::Within,
        LEFT => options.initramfs = Initramfs::Left,
        "--debug" | "-d" => options.debug = true,
        // Accept these only under the Go agents' names (P§1.1): elsewhere -v often means version.
        "--verbose" | "-v" if options.stands_in => options.debug = true,
        // Help takes precedence.
        "--check" | "--version" | "-V" if options.wants_help() => {}
        "--check" => options.command = Command::Check,
        "--version" | "-V" => options.command = Command::Version,
        "--help" | "-h" => options.command = Command::Help,
        _ => return false,
    }
    true
}

fn about_freeze(options: &mut Options) -> Result<(), String> {
    if let Command::Freeze(Freeze::For(length)) = &mut options.command {
        *length = options.length.unwrap_or(*length);
        if options.status_only {
            options.command = Command::Freeze(Freeze::Status);
        }
    } else if options.status_only || options.length.is_some() {
        return Err("--for and --status need freeze".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
