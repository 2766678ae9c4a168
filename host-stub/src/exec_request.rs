//! What `exec` was asked to do, and the request that follows from it: the host fills in what the
//! caller left out (P§4.1).

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::args::{Args, next, pair};
use crate::instance::Instance;
use crate::terminal;

/// An `exec`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Exec {
    /// Where.
    pub(crate) instance: String,
    command: Vec<String>,
    environment: BTreeMap<String, String>,
    user: Option<u32>,
    group: Option<u32>,
    cwd: Option<String>,
    mode: Mode,
    /// Where the command's input comes from.
    pub(crate) input: Input,
    defaults: Defaults,
    /// What goes wrong on purpose.
    pub(crate) faults: Vec<Fault>,
}

/// Whether there is a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// If we have one.
    #[default]
    Auto,
    Interactive,
    Pipes,
}

/// Where input comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Input {
    /// An empty stream.
    Nothing,
    /// Ours.
    #[default]
    Stdin,
}

/// Whether the host fills in what was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Defaults {
    /// As real hosts do.
    #[default]
    Host,
    /// Only what was said is sent, to see what the agent makes of it.
    Agent,
}

/// What a host may do wrong in an exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// This socket is asked for with a secret that nobody gave out.
    BadSecret(String),
    /// The control socket ends without a word after that long.
    DropControl(Duration),
    /// The input's socket ends without a barrier.
    NoBarrier,
    /// This socket is never connected.
    Skip(String),
    /// Output is not read for that long.
    Stall(Duration),
    /// This socket is asked for a second time.
    Twice(String),
}

impl Exec {
    /// Reads the arguments; from the first that is not for us, they are the command's.
    pub(crate) fn parse(mut args: Args) -> Result<Self> {
        let mut exec = Self::default();
        let mut has_name = false;
        while let Some(arg) = args.pop_front() {
            match arg.as_str() {
                "--" => break,
                "--user" => exec.user = Some(id(&mut args)?),
                "--group" => exec.group = Some(id(&mut args)?),
                "--cwd" => exec.cwd = Some(next(&mut args)?),
                "--env" => exec.environment.extend([pair(&next(&mut args)?)?]),
                "-t" | "--force-interactive" => exec.mode = Mode::Interactive,
                "-T" | "--force-noninteractive" => exec.mode = Mode::Pipes,
                "-n" | "--no-stdin" => exec.input = Input::Nothing,
                "--bare" => exec.defaults = Defaults::Agent,
                "--fault" => exec.faults.push(Fault::parse(&next(&mut args)?)?),
                option if option.starts_with('-') => bail!("unknown option {option}; see --help"),
                _ if has_name => {
                    args.push_front(arg);
                    break;
                }
                _ => {
                    exec.instance = arg;
                    has_name = true;
                }
            }
        }
        exec.command = args.into();
        if exec.instance.is_empty() || exec.command.is_empty() {
            bail!("an instance and a command are needed; see --help");
        }
        Ok(exec)
    }

    /// Whether the command gets a terminal.
    pub(crate) fn is_interactive(&self) -> bool {
        match self.mode {
            Mode::Interactive => true,
            Mode::Pipes => false,
            Mode::Auto => terminal::is_both(),
        }
    }

    /// Whether the agent has to know about users, groups and directories (P§3.4).
    pub(crate) fn needs_identity(&self) -> bool {
        self.user.is_some() || self.group.is_some() || self.cwd.is_some()
    }

    /// How long output is left unread.
    pub(crate) fn stall(&self) -> Duration {
        let stall = |fault: &Fault| if let Fault::Stall(time) = fault { Some(*time) } else { None };
        self.faults.iter().find_map(stall).unwrap_or_default()
    }

    /// The body of `POST /1.0/exec`.
    pub(crate) fn body(&self, instance: &Instance, interactive: bool) -> Value {
        let mut environment = self.environment.clone();
        let mut cwd = self.cwd.clone().unwrap_or_default();
        if self.defaults == Defaults::Host {
            fill(&mut environment, instance, self.user);
            if cwd.is_empty() {
                cwd = environment.get("HOME").map_or("/", String::as_str).to_owned();
            }
        }
        let (width, height) = interactive.then(terminal::size).flatten().unwrap_or((0, 0));
        json!({
            "command": self.command,
            "wait-for-websocket": true,
            "interactive": interactive,
            "environment": environment,
            "width": width,
            "height": height,
            "record-output": false,
            "user": self.user.unwrap_or(0),
            "group": self.group.unwrap_or(0),
            "cwd": cwd,
        })
    }
}

/// `environment.*` of the instance, and what every command finds.
fn fill(environment: &mut BTreeMap<String, String>, instance: &Instance, user: Option<u32>) {
    let set = |environment: &mut BTreeMap<String, String>, key: &str, value: &str| {
        environment.entry(key.to_owned()).or_insert_with(|| value.to_owned());
    };
    if let Ok(term) = std::env::var("TERM") {
        set(environment, "TERM", &term);
    }
    for (key, value) in &instance.config {
        if let Some(key) = key.strip_prefix("environment.") {
            set(environment, key, value);
        }
    }
    set(environment, "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    if user.unwrap_or(0) == 0 {
        set(environment, "HOME", "/root");
        set(environment, "USER", "root");
    }
    set(environment, "LANG", "C.UTF-8");
}

fn id(args: &mut Args) -> Result<u32> {
    let text = next(args)?;
    text.parse().ok().with_context(|| format!("{text} is no id"))
}

impl Fault {
    fn parse(text: &str) -> Result<Self> {
        let (kind, value) = text.split_once('=').unwrap_or((text, ""));
        let number = || value.parse().with_context(|| format!("{kind} needs a number"));
        let socket = || match value {
            "control" | "0" | "1" | "2" => Ok(value.to_owned()),
            _ => bail!("{kind} needs control, 0, 1 or 2"),
        };
        Ok(match kind {
            "bad-secret" => Self::BadSecret(socket()?),
            "drop-control" => Self::DropControl(Duration::from_millis(number()?)),
            "no-barrier" => Self::NoBarrier,
            "skip" => Self::Skip(socket()?),
            "stall" => Self::Stall(Duration::from_secs(number()?)),
            "twice" => Self::Twice(socket()?),
            other => bail!("there is no fault {other}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::Flavour;
    use crate::instance::tests::instance;

    fn parse(line: &str) -> Result<Exec> {
        Exec::parse(line.split_whitespace().map(str::to_owned).collect())
    }

    #[test]
    fn what_follows_the_name_or_two_dashes_is_the_command() {
        let exec = parse("--user 5 vm1 --cwd /x -T -- ls --user 6").unwrap();
        assert_eq!((exec.instance.as_str(), exec.user), ("vm1", Some(5)));
        assert_eq!(exec.command, ["ls", "--user", "6"]);
        assert_eq!(parse("vm1 ls -t").unwrap().command, ["ls", "-t"]);
        for line in ["vm1", "vm1 --", "vm1 --what -- ls", "-- ls", "vm1 --user x -- ls"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn the_host_fills_in_what_was_left_out_unless_told_not_to() {
        let config = [("environment.A", "of the instance"), ("environment.B", "b")];
        let instance = instance(Flavour::Lxd, &config);
        let body = parse("vm1 -T --env A=mine -- id").unwrap().body(&instance, false);
        let environment = &body["environment"];
        assert_eq!((&environment["A"], &environment["B"]), (&json!("mine"), &json!("b")));
        assert_eq!((&environment["HOME"], &body["cwd"]), (&json!("/root"), &json!("/root")));
        assert_eq!(body["wait-for-websocket"], true);
        let other = parse("vm1 -T --user 1 -- id").unwrap().body(&instance, false);
        assert_eq!((&other["environment"]["HOME"], &other["cwd"]), (&Value::Null, &json!("/")));
        let bare = parse("vm1 --bare -T -- id").unwrap().body(&instance, false);
        assert_eq!((&bare["environment"], &bare["cwd"]), (&json!({}), &json!("")));
    }
}
