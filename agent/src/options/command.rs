//! The commands, and how they are parsed.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mote_core::init::shutdown::Goal;

use super::bad_option::BadOption;
use crate::built;

/// How long `freeze` freezes if nothing else is said.
const FREEZE: Duration = Duration::from_secs(60);

/// The command that sets the clock.
pub(crate) const SYNC: &str = "sync-time";

/// The command to run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run the agent.
    Run,
    /// Report what the agent would do.
    Check,
    /// Mount or unmount one share within this time.
    MountWorker(Duration),
    /// Do this for a VM that runs again: see `workers/after_resume`.
    AfterResume(String),
    /// Grow what is on disks that have become larger, or on this one.
    Grow(Option<String>),
    /// The same for the agent.
    GrowWorker,
    /// Name NICs that were plugged in, of this number or a higher one, by the host's files.
    Nics(u32),
    /// Freeze file systems, or what is about that.
    Freeze(Freeze),
    /// Look until these conditions of being Ready have held.
    ReadyWhen(Vec<String>),
    /// Be process 1.
    Init,
    /// Tell process 1 to switch off or to reboot.
    Leave(Goal),
    /// Print the version.
    Version,
    /// Print the help.
    Help,
    /// Set the instance's state to Ready.
    Ready,
    /// Set the instance's state to Started.
    Started,
    /// Print the configuration value of this key.
    Get(String),
    /// Print all configuration values.
    Config,
    /// Print the cloud-init meta-data.
    Metadata,
    /// Print the devices.
    Devices,
    /// Print events as they come.
    Events,
    /// Print the agent's own view.
    Status,
    /// Print a report for the host; the agent starts itself with this for each request.
    Report(Report),
    /// Serve SFTP on standard input and output.
    SftpServer(Sftp),
}

/// Who may start a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// The agent alone: a worker, which does what the agent was asked for.
    Agent,
    /// The guest.
    Guest,
    /// A host too that may run this program: it gets no right by it that the policy does not give.
    Host,
}

impl Command {
    /// Who may start this.
    pub(crate) fn starter(&self) -> Starter {
        match self {
            Self::AfterResume(what) if what == SYNC => Starter::Guest,
            Self::MountWorker(_)
            | Self::AfterResume(_)
            | Self::GrowWorker
            | Self::Nics(_)
            | Self::ReadyWhen(_)
            | Self::SftpServer(_) => Starter::Agent,
            Self::Run | Self::Grow(_) | Self::Init | Self::Report(_) => Starter::Guest,
            Self::Check
            | Self::Freeze(_)
            | Self::Leave(_)
            | Self::Version
            | Self::Help
            | Self::Ready
            | Self::Started
            | Self::Get(_)
            | Self::Config
            | Self::Metadata
            | Self::Devices
            | Self::Events
            | Self::Status => Starter::Host,
        }
    }
}

/// What is done about frozen file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freeze {
    /// Freeze for so long.
    For(Duration),
    /// Say what is frozen.
    Status,
    /// Thaw.
    Thaw,
    /// Tell the disks which blocks are not used.
    Trim,
}

/// How SFTP is served.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sftp {
    /// Where relative paths begin.
    pub(crate) directory: Option<PathBuf>,
    /// Whether to refuse all that changes anything.
    pub(crate) read_only: bool,
    /// The only directories shown, if there are any.
    pub(crate) below: Vec<PathBuf>,
    /// The user with whose rights it is done, if another than this one.
    pub(crate) user: Option<u32>,
    /// The group with whose rights it is done, with those of a user.
    pub(crate) group: u32,
}

/// A report for the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// `GET /1.0/state`.
    State,
    /// `GET /1.0/metrics`.
    Metrics,
}

/// Parses the arguments of `sftp-server`: `-d` and `-R` as for OpenSSH's, and `-b`, `-U`, `-G`.
pub(super) fn sftp_server(mut args: impl Iterator<Item = OsString>) -> Result<Command, BadOption> {
    let mut how = Sftp::default();
    while let Some(option) = args.next() {
        match option.to_str() {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("-R") => how.read_only = true,
            Some(option @ ("-d" | "-b" | "-U" | "-G")) => {
                let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
                // There is no user, and no group, of the highest number.
                let id = || value.to_str().and_then(|id| id.parse().ok()).unwrap_or(u32::MAX);
                match option {
                    "-d" => how.directory = Some(value.into()),
                    "-b" => how.below.push(value.into()),
                    "-U" => how.user = Some(id()),
                    _ => how.group = id(),
                }
            }
            _ => return Err("sftp-server takes -d, -R, -b, -U, -G and nothing else".into()),
        }
    }
    Ok(Command::SftpServer(how))
}

/// Parses the command and its arguments; `None` if there is no command.
pub(super) fn parse(words: &[String], stands_in: bool) -> Result<Option<Command>, BadOption> {
    let mut words = words.iter().map(String::as_str);
    let Some(word) = words.next() else { return Ok(None) };
    let command = match word {
        "help" if !stands_in => return Ok(Some(Command::Help)),
        "version" if !stands_in => Command::Version,
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
            _ => return Err("report needs state or metrics".into()),
        }),
        SYNC => Command::AfterResume(SYNC.to_owned()),
        "after-resume" => Command::AfterResume(words.next().unwrap_or_default().to_owned()),
        "grow" => Command::Grow(words.next().map(str::to_owned)),
        "grow-worker" => Command::GrowWorker,
        "nics" => Command::Nics(words.next().and_then(|first| first.parse().ok()).unwrap_or(1)),
        "freeze" => Command::Freeze(Freeze::For(FREEZE)),
        "thaw" => Command::Freeze(Freeze::Thaw),
        "trim" => Command::Freeze(Freeze::Trim),
        "ready-when" => Command::ReadyWhen(words.by_ref().map(str::to_owned).collect()),
        "init" if built::INIT => Command::Init,
        "halt" | "poweroff" if built::INIT => Command::Leave(Goal::Off),
        "reboot" if built::INIT => Command::Leave(Goal::Reboot),
        "mount-worker" => {
            let limit = words.next().and_then(|limit| limit.parse().ok());
            let limit = limit.ok_or("mount-worker needs its limit in milliseconds")?;
            Command::MountWorker(Duration::from_millis(limit))
        }
        _ => return Err(format!("unknown command {word}").into()),
    };
    match words.next() {
        Some(extra) => Err(format!("unexpected argument {extra}").into()),
        None => Ok(Some(command)),
    }
}
