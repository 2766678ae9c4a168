//! The servers, and where their command lines differ.

use std::num::ParseIntError;

use clap::{Parser, ValueEnum};

use crate::outer::Spec;
use crate::prelude::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// Incus 7.0.2 of Debian 13's backports.
    Incus,
    /// Incus 6.0.4 of Debian 13.
    #[value(name = "incus-6.0")]
    Incus60,
    /// LXD 5.0.2 of Debian 12.
    Lxd,
}

impl Server {
    pub const ALL: [Self; 3] = [Self::Incus, Self::Incus60, Self::Lxd];

    /// Returns its name on the command line of `scripts/real-server` and in the record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Incus => "incus",
            Self::Incus60 => "incus-6.0",
            Self::Lxd => "lxd",
        }
    }

    pub fn is_incus(self) -> bool {
        self != Self::Lxd
    }

    pub fn is_incus_7(self) -> bool {
        self == Self::Incus
    }

    fn either(self, incus: &'static str, lxd: &'static str) -> &'static str {
        if self.is_incus() { incus } else { lxd }
    }

    /// Returns the name of its service, which headers and metrics use too.
    pub fn service(self) -> &'static str {
        self.either("incus", "lxd")
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Incus => "Incus 7.0.2 (Debian 13, backports)",
            Self::Incus60 => "Incus 6.0.4 (Debian 13)",
            Self::Lxd => "LXD 5.0.2 (Debian 12)",
        }
    }

    pub fn own_agent(self) -> &'static str {
        self.either("incus-agent", "lxd-agent")
    }

    pub fn cli(self) -> &'static str {
        self.either("incus", "lxc")
    }

    pub fn socket(self) -> &'static str {
        self.either("/var/lib/incus/unix.socket", "/var/lib/lxd/unix.socket")
    }

    pub fn guest_socket(self) -> &'static str {
        self.either("/dev/incus/sock", "/dev/lxd/sock")
    }

    pub fn guest_api(self) -> &'static str {
        self.either("security.guestapi", "security.devlxd")
    }

    /// Returns whether it has the status Ready: since LXD 5.5 (`instance_ready_state`).
    pub fn has_ready(self) -> bool {
        self.is_incus()
    }

    pub fn resume(self) -> &'static str {
        self.either("resume", "start")
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    Mote,
    Own,
}

impl Agent {
    pub const ALL: [Self; 2] = [Self::Mote, Self::Own];

    /// Returns its name on the command line, which is also the name of its image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => "own",
        }
    }

    pub fn title(self, server: Server) -> &'static str {
        match self {
            Self::Mote => "mote",
            Self::Own => server.own_agent(),
        }
    }
}

#[derive(Debug, Parser)]
#[command(name = "mote-servers")]
pub enum Command {
    /// Drives agents with a real server
    #[command(name = "drive", bin_name = "scripts/real-server")]
    Drive(Box<Options>),
    /// Runs checks in the outer VM; without a check it only sets the server up
    Check {
        #[command(flatten)]
        world: World,
        #[arg(value_delimiter = ',')]
        wanted: Vec<String>,
    },
}

#[derive(Clone, Debug, Args)]
pub struct Options {
    pub server: Server,
    /// Only mote, or only the server's own agent; both by default, one after the other
    #[arg(long = "agent", value_name = "AGENT", default_values = ["mote", "own"], hide_default_value = true)]
    pub agents: Vec<Agent>,
    /// Only these; a group's name is all of its checks
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only every Nth check, from the Ith on, and always the first
    #[arg(long, value_name = "I/N", value_parser = share)]
    pub share: Option<(usize, usize)>,
    /// Maximum number of outer VMs for each agent
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub boots: usize,
    /// Maximum duration in minutes, from when everything is built
    #[arg(long = "minutes", value_name = "N", value_parser = until, default_value = "1440")]
    pub until: Instant,
    /// Time limits N times as long
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub slow: u32,
    /// Prints the checks' names, and runs none
    #[arg(long)]
    pub list: bool,
    /// The run's date and time.
    #[arg(long, hide = true, default_value = "")]
    pub at: String,
    /// What mote was built from.
    #[arg(long, hide = true, default_value = "")]
    pub build: String,
    /// Where the instances' images are.
    #[arg(long, hide = true, default_value = ".")]
    pub images: PathBuf,
    /// A directory for this run.
    #[arg(long, hide = true, default_value = ".")]
    pub work: PathBuf,
    #[command(flatten)]
    pub spec: Spec,
}

fn until(minutes: &str) -> Result<Instant, ParseIntError> {
    Ok(Instant::now() + Duration::from_secs(60 * minutes.parse::<u64>()?))
}

/// `2/7`.
fn share(text: &str) -> Try<(usize, usize)> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parts.filter(|&(i, n)| (1..=n).contains(&i)).ok_or_else(|| format!("{text}: not I/N"))
}

pub fn wanted(options: &Options) -> Try<Vec<String>> {
    let all: Vec<_> = checks::of(options.server).collect();
    for only in &options.only {
        if !all.iter().any(|check| check.id() == *only || check.group == only) {
            return Err(format!("no check {only}; --list shows them"));
        }
    }
    let asked = |(at, check): &(usize, &checks::Check)| {
        let named = options.only.is_empty()
            || options.only.iter().any(|only| *only == check.id() || only == check.group);
        named && options.share.is_none_or(|(i, n)| *at == 0 || at % n == i - 1)
    };
    Ok(all.iter().enumerate().filter(asked).map(|(_, check)| check.id()).collect())
}
