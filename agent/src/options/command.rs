//! Parses commands.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use mote_core::decimal::digits;
use mote_core::devlxd::ready::ReadyState;
use mote_core::hostapi::exec::power::Power;

use crate::built;

/// Default duration of `freeze`.
const FREEZE: Duration = Duration::from_secs(60);

pub(crate) const SYNC: &str = "sync-time";

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Command {
    #[default]
    Run,
    Check,
    /// Mount or unmount one share within this time limit, for the agent of this process id.
    MountWorker(Duration, i32),
    /// Run this step after a resume: see `workers/after_resume`.
    AfterResume(String),
    /// Grow the contents of disks that have become larger, or of this one.
    Grow(Option<String>),
    GrowWorker,
    /// Rename hot-plugged NICs with this index or a higher one, as the host's files say.
    Nics(u32),
    Freeze(Freeze),
    ReadyWhen(Vec<String>),
    Init,
    /// Ask process 1 to shut down or reboot.
    Leave(&'static Power),
    Version,
    Help,
    Ask(Ask),
    /// Join standard input and output to this port or socket.
    Connect(String),
    /// Print a report for the host; the agent starts this for each request.
    Report(Report),
    SftpServer(Sftp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Starter {
    /// Only the agent may start it, because it is a worker.
    Agent,
    /// The guest.
    Guest,
    /// Anyone may start it, even the host: it gives no right that the policy denies.
    Host,
}

impl Command {
    pub(crate) fn starter(&self) -> Starter {
        match self {
            Self::AfterResume(what) if what == SYNC => Starter::Guest,
            Self::MountWorker(..)
            | Self::AfterResume(_)
            | Self::GrowWorker
            | Self::Nics(_)
            | Self::ReadyWhen(_)
            | Self::SftpServer(_) => Starter::Agent,
            Self::Run | Self::Grow(_) | Self::Init | Self::Leave(_) | Self::Report(_) => {
                Starter::Guest
            }
            Self::Check
            | Self::Connect(_)
            | Self::Freeze(_)
            | Self::Version
            | Self::Help
            | Self::Ask(_) => Starter::Host,
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Set(ReadyState),
    Get(String),
    Config,
    /// Print the answer to a request for this path.
    Show(&'static str),
    Events,
    Status,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freeze {
    /// Freeze for this long.
    For(Duration),
    Status,
    Thaw,
    Trim,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Sftp {
    /// Directory to which paths are relative.
    pub(crate) directory: Option<PathBuf>,
    pub(crate) read_only: bool,
    /// The only accessible directories; empty: all.
    pub(crate) below: Vec<PathBuf>,
    /// The user whose rights apply, if not the current one.
    pub(crate) user: Option<u32>,
    /// The group whose rights apply together with `user`.
    pub(crate) group: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    State,
    Metrics,
}

/// Parses the arguments of `sftp-server`: `-d` and `-R` as for OpenSSH's, and `-b`, `-U`, `-G`.
pub(super) fn sftp_server(mut args: impl Iterator<Item = OsString>) -> Result<Command, String> {
    let mut how = Sftp::default();
    while let Some(option) = args.next() {
        match option.to_str() {
            Some("--help" | "-h") => return Ok(Command::Help),
            Some("-R") => how.read_only = true,
            Some(option @ ("-d" | "-b" | "-U" | "-G")) => {
                let value = args.next().ok_or_else(|| format!("{option} needs a value"))?;
                // No user or group has the highest number.
                let id = || value.to_str().and_then(digits).unwrap_or(u32::MAX);
                match option {
                    "-d" => how.directory = Some(value.into()),
                    "-b" => how.below.push(value.into()),
                    "-U" => how.user = Some(id()),
                    _ => how.group = id(),
                }
            }
            _ => return Err("sftp-server takes only -d, -R, -b, -U and -G".into()),
        }
    }
    Ok(Command::SftpServer(how))
}

/// Parses the command and its arguments; returns `None` if there is no command.
pub(super) fn parse(words: &[String], stands_in: bool) -> Result<Option<Command>, String> {
    let mut words = words.iter().map(String::as_str);
    let Some(word) = words.next() else { return Ok(None) };
    let command = match word {
        "help" if !stands_in => return Ok(Some(Command::Help)),
        "version" if !stands_in => Command::Version,
        "ready" => Command::Ask(Ask::Set(ReadyState::Ready)),
        "started" => Command::Ask(Ask::Set(ReadyState::Started)),
        "get" => Command::Ask(Ask::Get(words.next().ok_or("get needs a key")?.to_owned())),
        "config" => Command::Ask(Ask::Config),
        "metadata" => Command::Ask(Ask::Show("/1.0/meta-data")),
        "devices" => Command::Ask(Ask::Show("/1.0/devices")),
        "events" => Command::Ask(Ask::Events),
        "status" => Command::Ask(Ask::Status),
        "connect" => Command::Connect(words.next().unwrap_or_default().to_owned()),
        "report" => Command::Report(match words.next() {
            Some("state") => Report::State,
            Some("metrics") => Report::Metrics,
            _ => return Err("report needs state or metrics".into()),
        }),
        SYNC => Command::AfterResume(SYNC.to_owned()),
        "after-resume" => Command::AfterResume(words.next().unwrap_or_default().to_owned()),
        "grow" => Command::Grow(words.next().map(str::to_owned)),
        "grow-worker" => Command::GrowWorker,
        "nics" => Command::Nics(words.next().and_then(digits).unwrap_or(1)),
        "freeze" => Command::Freeze(Freeze::For(FREEZE)),
        "thaw" => Command::Freeze(Freeze::Thaw),
        "trim" => Command::Freeze(Freeze::Trim),
        "ready-when" => Command::ReadyWhen(words.by_ref().map(str::to_owned).collect()),
        "init" if built::INIT => Command::Init,
        "mount-worker" => {
            let limit = words.next().and_then(digits::<u32>).zip(words.next().and_then(digits));
            let (limit, agent) = limit.ok_or("mount-worker needs milliseconds and a process")?;
            Command::MountWorker(Duration::from_millis(limit.into()), agent)
        }
        _ => match if built::INIT { Power::named(word) } else { None } {
            Some(power) => Command::Leave(power),
            None => return Err(format!("unknown command {word}")),
        },
    };
    match words.next() {
        Some(extra) => Err(format!("unexpected argument {extra}")),
        None => Ok(Some(command)),
    }
}
