//! Options of `exec` and the request made from them: the host adds what the caller omits (P§4.1).

use std::collections::BTreeMap;

use clap::Args;
use serde_json::{Value, json};

use super::output::Tail;
use super::terminal;
use crate::Instance;
use crate::common::printable::pair;

/// A command for a guest.
#[derive(Clone, Debug, Default, Args)]
#[expect(clippy::struct_excessive_bools, reason = "clap represents a switch as a bool")]
pub struct Exec {
    /// The instance
    pub name: String,
    /// Command to run, with its arguments
    #[arg(required = true, trailing_var_arg = true)]
    pub command: Vec<String>,
    /// Run it as this user id
    #[arg(long, value_name = "ID")]
    pub user: Option<u32>,
    /// Run it as this group id
    #[arg(long, value_name = "ID")]
    pub group: Option<u32>,
    /// Run it in this directory
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    #[command(flatten)]
    pub terminal: Terminal,
    /// No input
    #[arg(short = 'n', long)]
    pub no_stdin: bool,
    /// Set a variable in the command's environment
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    pub env: Vec<(String, String)>,
    /// Whether signals that end a process are not passed on to the command.
    #[arg(skip)]
    pub keeps_signals: bool,
    /// The ends of stdout and stderr to keep.
    #[arg(skip)]
    pub tails: [Tail; 2],
}

/// The choice of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Args)]
#[expect(clippy::struct_excessive_bools, reason = "clap represents a switch as a bool")]
pub struct Terminal {
    /// Use a terminal (default: if stdin and stdout are terminals)
    #[arg(short = 't', long, overrides_with = "force_noninteractive")]
    force_interactive: bool,
    /// Use no terminal
    #[arg(short = 'T', long)]
    force_noninteractive: bool,
}

impl Terminal {
    pub const YES: Self = Self { force_interactive: true, force_noninteractive: false };
    pub const NO: Self = Self { force_interactive: false, force_noninteractive: true };
}

#[derive(Debug, Args)]
pub struct ShellArgs {
    /// The instance
    name: String,
    #[command(flatten)]
    terminal: Terminal,
    /// Set a variable in the shell's environment
    #[arg(short, long, value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
}

impl From<ShellArgs> for Exec {
    fn from(ShellArgs { name, terminal, env }: ShellArgs) -> Self {
        let command = ["su", "-l"].map(String::from).into();
        Self { name, command, terminal, env, ..Self::default() }
    }
}

impl Exec {
    pub fn is_interactive(&self) -> bool {
        let Terminal { force_interactive, force_noninteractive } = self.terminal;
        force_interactive || !force_noninteractive && terminal::is_both()
    }

    /// Returns whether the agent must support users, groups and directories (P§3.4).
    pub fn needs_identity(&self) -> bool {
        self.user.is_some() || self.group.is_some() || self.cwd.is_some()
    }

    pub fn body(&self, instance: &Instance, interactive: bool) -> Value {
        let mut environment = self.env.iter().cloned().collect();
        let mut cwd = self.cwd.clone().unwrap_or_default();
        fill(&mut environment, instance, self.user);
        if cwd.is_empty() {
            cwd = environment.get("HOME").map_or("/", String::as_str).to_owned();
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

/// Adds the instance's `environment.*` and the variables that every command gets.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::Flavour;

    fn parse(line: &str) -> anyhow::Result<Exec> {
        crate::common::printable::parsed(line)
    }

    #[test]
    fn reads_the_command_after_the_name_or_two_dashes() {
        let exec = parse("--user 5 vm1 --cwd /x -T -- ls --user 6").unwrap();
        assert_eq!((exec.name.as_str(), exec.user), ("vm1", Some(5)));
        assert_eq!(exec.command, ["ls", "--user", "6"]);
        assert_eq!(parse("vm1 ls -t").unwrap().command, ["ls", "-t"]);
        assert_eq!(parse("vm1 -T ls -- -t").unwrap().command, ["ls", "--", "-t"]);
        assert_eq!(parse("vm1 -- -odd").unwrap().command, ["-odd"]);
        assert_eq!(parse("vm1 -t -T ls").unwrap().terminal, Terminal::NO);
        assert_eq!(parse("vm1 -T -t ls").unwrap().terminal, Terminal::YES);
        assert_eq!(parse("vm1 -eA=b --env C=d=e ls").unwrap().env[1].1, "d=e");
        for line in ["vm1", "vm1 --", "vm1 --what -- ls", "-- ls", "vm1 --user x -- ls"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn adds_defaults() {
        let instance = Instance::sample(Flavour::Lxd, &[("environment.A", "of the instance")]);
        let body = parse("vm1 -T --env A=mine -- id").unwrap().body(&instance, false);
        let environment = &body["environment"];
        assert_eq!((&environment["A"], &environment["HOME"]), (&json!("mine"), &json!("/root")));
        let other = parse("vm1 -T --user 1 -- id").unwrap().body(&instance, false);
        assert_eq!((&other["environment"]["HOME"], &other["cwd"]), (&Value::Null, &json!("/")));
    }
}
