//! The command line. `init` and `daemon` work on the directory, other commands call the daemon.

mod change;
mod init;
mod look;
mod manual;
mod port_forward;

use std::env::var_os;
use std::ffi::OsString;
use std::io::stdout;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;
use serde_json::json;

use self::change::{change, object};
use mote_client::common::printable::pair;
use mote_client::exec::request::{Exec, ShellArgs};
use mote_client::exec::run as exec;
use mote_client::files::args::FileCommand;
use mote_client::files::commands;
use mote_client::net::stream::be_patient;
use mote_run::args::RunArgs;
use mote_stub::daemon::fault::Kind;

const BEGIN: &str = "To begin: mote-host run boots a VM for one command, mote-host boot one that stays. If you start \
                     QEMU yourself, mote-host init prints how, and mote-host daemon runs the host, which every \
                     command except run, boot, init, qemu, completions and man needs.";

/// Emulates the LXD or Incus host for a guest agent, so that an agent or an image can be tried without
/// either.
#[derive(Debug, Parser)]
#[command(
    name = "mote-host",
    version = manual::VERSION,
    arg_required_else_help = true,
    subcommand_required = true,
    after_help = BEGIN,
    after_long_help = format!(
        "{BEGIN}\n\n\
         Exit codes: 0 success, 1 failure, 2 invalid command line; wait: 124 timed out; run, exec and shell: the command's \
         own, 126 and 127 if it cannot be run, 129 if the guest is lost; run: 124 timed out, 125 any other failure."
    )
)]
struct Cli {
    /// Directory of the instances [default: $XDG_STATE_HOME/mote-host, or else
    /// ~/.local/state/mote-host]
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "MOTE_HOST_DIR",
        hide_env_values = true,
        value_hint = clap::ValueHint::DirPath
    )]
    dir: Option<OsString>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Boot a VM, run a command in it, and clean up; the output and the exit code are the command's
    ///
    /// Needs no daemon, instance, network or root. The image must contain mote, or any agent of LXD
    /// or Incus. Its files are not changed.
    Run(Box<RunArgs>),
    /// Boot a persistent VM, as an instance, and wait for its agent
    ///
    /// Starts a daemon if none runs. Without --write the disk is not changed: writes are kept with
    /// the instance, also while it is stopped, and deleted with it.
    Boot(Box<change::BootArgs>),
    /// Create an instance; prints the directory of its config share, and on stderr how to boot a VM
    /// with it
    Init(Box<init::InitArgs>),
    /// Print QEMU's options for an instance on stdout
    Qemu(init::QemuArgs),
    /// Run the host in the foreground
    Daemon(init::DaemonArgs),
    /// List the instances with their states; asks the daemon (mote-host daemon)
    List(look::ListArgs),
    /// Show an instance and its agent: state, address, version, last error, and why it is not
    /// connected; asks the daemon (mote-host daemon)
    Info(ReportArgs),
    /// Wait until an agent or instance is in a state; exit code 124 on timeout
    Wait(change::WaitArgs),
    /// Remove an instance and its files
    Delete {
        /// The instance
        name: String,
        /// Delete it even if its VM runs; ends the VM first
        #[arg(long, short)]
        force: bool,
    },
    /// Print what the host knows about an instance's agent (JSON)
    AgentState(OneArgs),
    /// Print one configuration value
    Get {
        /// The instance
        name: String,
        /// The configuration key
        key: String,
    },
    /// Set configuration values
    ///
    /// Keys of mote-host's own: mote.bearer (the token for storage, instances and operations),
    /// mote.image.size (size of any image, in bytes).
    Set {
        /// The instance
        name: String,
        /// Keys and values
        #[arg(required = true, value_name = "KEY=VALUE", value_parser = pair)]
        pairs: Vec<(String, String)>,
    },
    /// Remove a configuration value
    Unset {
        /// The instance
        name: String,
        /// The key to remove
        key: String,
    },
    /// Add or change a device
    DeviceAdd {
        /// The instance
        name: String,
        /// The device
        device: String,
        /// Its configuration, for example type=disk path=/mnt
        #[arg(value_name = "KEY=VALUE", value_parser = pair)]
        config: Vec<(String, String)>,
    },
    /// Remove a device
    DeviceRemove {
        /// The instance
        name: String,
        /// The device
        device: String,
    },
    /// Print the agent's events as they happen
    Events(OneArgs),
    /// Send any request to the agent
    Query {
        /// The instance
        name: String,
        /// GET, PUT, POST ...
        method: String,
        /// Path of the request, for example /1.0
        path: String,
        /// The body of the request
        #[arg(default_value = "", allow_hyphen_values = true)]
        body: String,
    },
    /// Run a command in the guest; the exit code is the command's, 129 if the guest is lost
    Exec(Exec),
    /// Start a login shell in the guest, as lxc shell does
    Shell(ShellArgs),
    /// Transfer files, and use other functions of SFTP
    #[command(subcommand)]
    File(FileCommand),
    /// Connect stdin and stdout to SFTP, for sftp -D "mote-host --dir DIR sftp NAME"
    Sftp(OneArgs),
    /// Print the state that the agent reports; fails if a host would not decode it
    State(ReportArgs),
    /// Print the metrics that the agent reports; fails if a host would not decode them
    Metrics(ReportArgs),
    /// Forward connections into the guest; for LXD by mote-agent connect
    PortForward(port_forward::ForwardArgs),
    /// Start the VM that boot created; for another VM, report its start to the host
    ///
    /// mote-host qemu NAME prints how to start such a VM. The host notices its start through QEMU's
    /// monitor, and needs a report only without one.
    Start(OneArgs),
    /// Press the VM's power button and wait until it is off
    ///
    /// Works as lxc stop does, through QEMU's monitor. If that does not answer, the host only
    /// records that the VM is off.
    Stop(change::StopArgs),
    /// Make the host misbehave towards an instance; without KIND, show the current fault
    Fault {
        /// The instance
        name: String,
        /// The fault
        #[arg(value_enum)]
        kind: Option<Kind>,
        /// Duration or delay
        number: Option<u64>,
    },
    /// Print completions for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write manual pages, one per command, into a directory
    Man {
        /// The directory
        directory: PathBuf,
    },
}

#[derive(Debug, Args)]
struct OneArgs {
    /// The instance
    name: String,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// The instance
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the directory of the instances: from the option, the environment, or the user's default.
fn directory(said: Option<OsString>) -> Option<PathBuf> {
    let set = |name: &str| var_os(name).filter(|value| !value.is_empty());
    if let Some(directory) = said.or_else(|| set("MOTE_HOST_DIR")) {
        return Some(directory.into());
    }
    let state = set("XDG_STATE_HOME").map(PathBuf::from);
    let state = state.or_else(|| Some(Path::new(&set("HOME")?).join(".local/state")));
    Some(state?.join("mote-host"))
}

fn command() -> clap::Command {
    manual::with_examples(Cli::command(), "")
}

fn is_run(mut words: impl Iterator<Item = OsString>) -> bool {
    while let Some(word) = words.next() {
        if word == "--dir" {
            words.next();
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return word == "run";
        }
    }
    false
}

pub(crate) fn act_on_line() -> Result<u8> {
    let parsed = command().try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let Cli { dir, command: asked } = match parsed {
        Ok(cli) => cli,
        // A command in a VM may exit with 2, too.
        Err(error) if error.use_stderr() && is_run(std::env::args_os().skip(1)) => {
            error.print()?;
            return Ok(mote_run::NOT_RUN);
        }
        Err(error) => error.exit(),
    };
    if let Command::Completions { shell } = asked {
        clap_complete::generate(shell, &mut command(), "mote-host", &mut stdout());
        return Ok(0);
    }
    if let Command::Man { directory } = asked {
        manual::write(Cli::command(), &directory)?;
        return Ok(0);
    }
    if let Command::Run(args) = asked {
        be_patient();
        return Ok(mote_run::run(*args));
    }
    let root = directory(dir).context(
        "the directory of the instances is unknown, because HOME is not set: use --dir DIR, or set \
         MOTE_HOST_DIR",
    )?;
    act(&root, asked).map_err(|error| look::explained(&root, error))
}

fn act(root: &Path, command: Command) -> Result<u8> {
    if !matches!(command, Command::Daemon(_)) {
        be_patient();
    }
    match command {
        Command::Exec(args) => return exec::run(root, &args),
        Command::Shell(args) => return exec::run(root, &args.into()),
        Command::Wait(args) => return change::wait(root, &args),
        Command::Boot(args) => return change::boot(root, *args),
        Command::Init(args) => init::run(root, *args),
        Command::Qemu(args) => init::qemu(root, &args),
        Command::Daemon(args) => init::daemon(root, &args),
        Command::List(args) => look::list(root, &args),
        Command::Info(args) => look::info(root, &args.name, args.json),
        Command::Delete { name, force } => change::delete(root, &name, force),
        Command::AgentState(args) => look::agent_state(root, &args.name),
        Command::Get { name, key } => look::get(root, &name, &key),
        Command::Set { name, pairs } => change(root, &name, "config", &object(pairs)),
        Command::Unset { name, key } => change(root, &name, "config", &json!({ key: null })),
        Command::DeviceAdd { name, device, config } => {
            let body = json!({"name": device, "config": object(config)});
            change(root, &name, "devices", &body)
        }
        Command::DeviceRemove { name, device } => {
            change(root, &name, "devices", &json!({"name": device, "config": null}))
        }
        Command::Events(args) => look::events(root, &args.name),
        Command::Query { name, method, path, body } => {
            look::query(root, &name, &json!({"method": method, "path": path, "body": body}))
        }
        Command::File(command) => commands::run(root, command),
        Command::Sftp(args) => commands::pipe(root, &args.name),
        Command::State(args) => look::state(root, &args.name, args.json),
        Command::Metrics(args) => look::metrics(root, &args.name, args.json),
        Command::PortForward(args) => port_forward::run(root, &args),
        Command::Start(args) => change::start(root, &args.name),
        Command::Stop(args) => change::stop(root, &args),
        Command::Fault { name, kind, number } => change::fault(root, &name, kind, number),
        // Handle these before the directory is needed.
        Command::Completions { .. } | Command::Man { .. } | Command::Run(_) => Ok(()),
    }
    .map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_valid_and_has_help() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
        }
    }

    #[test]
    fn recognises_the_command_of_an_invalid_command_line() {
        let is_run = |line: &str| is_run(line.split(' ').map(OsString::from));
        for line in ["run --x", "run", "--dir run run --x", "--dir=d -h run"] {
            assert!(is_run(line), "{line}");
        }
        for line in ["exec run", "--dir run", "--x", "runs", "--dir d exec v -- run"] {
            assert!(!is_run(line), "{line}");
        }
    }

    #[test]
    fn accepts_the_directory_before_or_after_the_command() {
        for line in ["mote-host --dir /d list", "mote-host list --dir /d"] {
            let cli = Cli::try_parse_from(line.split(' ')).unwrap();
            assert_eq!(cli.dir, Some("/d".into()), "{line}");
        }
        // After exec's NAME, the option belongs to the command.
        let cli = Cli::try_parse_from("mote-host exec vm1 ls --dir /d".split(' ')).unwrap();
        assert_eq!(cli.dir, None);
    }
}
