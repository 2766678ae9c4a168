//! The command line of `scripts/real-server`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::checks;
use crate::outer::{Machine, Spec};
use crate::page;
use crate::seen;
use crate::server::{Agent, Server};

const HELP: &str = "\
scripts/real-server incus|incus-6.0|lxd [options]: drives an agent by a real server

  --agent mote|own   only mote, or only the server's own agent (both, one after the other)
  --only CHECK,...   only these; a group's name is all of its checks
  --share I/N        only every Nth check, from the Ith on, and always the first
  --kvm              use this machine's /dev/kvm, with nested virtualisation; never used unasked
  --boots N          so many outer VMs at most for each agent (5)
  --minutes N        so long at most, from when everything is built
  --cpus N           CPUs of the outer VM (2)
  --big N            MiB of a large transfer (4; with --kvm 50)
  --turns N          commands in turn (40; with --kvm 200)
  --slow N           time limits N times as long (1)
  --keep             when all is said, leave the outer VM running until Enter, and say how to get in
  --list             the checks' names
  --page             write docs/results/servers.md from the record, without a run
  --qemu OPTION      one more option for QEMU, for trying
";

/// Limit for a run without one.
const NO_LIMIT: Duration = Duration::from_secs(24 * 3600);
#[derive(Clone, Debug)]
pub struct Options {
    pub server: Server,
    pub agents: Vec<Agent>,
    /// Only these checks or groups; all if empty.
    pub only: Vec<String>,
    /// Only a share: one of every n.
    pub share: Option<(usize, usize)>,
    /// Upper bound of outer VMs for each agent.
    pub boots: usize,
    /// Time at which the run ends.
    pub until: Instant,
    /// MiB of a large transfer.
    pub big: Option<usize>,
    pub turns: Option<usize>,
    /// Factor for time limits.
    pub slow: u32,
    /// Whether the outer VM keeps running.
    pub keep: bool,
    /// The run's date and time.
    pub at: String,
    /// What mote was built from.
    pub build: String,
    /// Where the instances' images are.
    pub images: PathBuf,
    /// A directory for this run.
    pub work: PathBuf,
    /// What the outer VMs are made of.
    pub spec: Spec,
}

/// Parses the options. Returns `None` after printing help.
pub fn parse(words: &[String]) -> Result<Option<Options>, String> {
    let (server, words) = words.split_first().ok_or(HELP)?;
    let server = Server::named(server).ok_or(HELP)?;
    let mut options = defaults(server);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse().map_err(|_| format!("{word} needs a number"));
        match word.as_str() {
            "--agent" => options.agents = vec![Agent::named(&value()?).ok_or(HELP)?],
            "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
            "--share" => options.share = Some(share(&value()?)?),
            "--kvm" => options.spec.machine = Machine::Kvm,
            "--clock" => options.spec.clock = value()?.into(),
            "--boots" => options.boots = number(value()?)?,
            "--minutes" => {
                let minutes: u64 = value()?.parse().map_err(|_| "--minutes needs a number")?;
                options.until = Instant::now() + Duration::from_secs(60 * minutes);
            }
            "--cpus" => options.spec.cpus = number(value()?)?,
            "--big" => options.big = Some(number(value()?)?),
            "--turns" => options.turns = Some(number(value()?)?),
            "--slow" => options.slow = value()?.parse().map_err(|_| "--slow needs a number")?,
            "--keep" => options.keep = true,
            "--qemu" => options.spec.more.push(value()?),
            "--outer" => options.spec.outer = value()?.into(),
            "--emulator" => options.spec.emulator = value()?.into(),
            "--at" => options.at = value()?,
            "--build" => options.build = value()?,
            "--images" => options.images = value()?.into(),
            "--work" => options.work = value()?.into(),
            "--list" => {
                checks::of(server).for_each(|check| println!("{}", check.id()));
                return Ok(None);
            }
            "--page" => {
                page::write(server, &seen::load(server)?)?;
                return Ok(None);
            }
            "--help" => {
                print!("{HELP}");
                return Ok(None);
            }
            _ => return Err(format!("{word}?\n{HELP}")),
        }
    }
    Ok(Some(options))
}

fn defaults(server: Server) -> Options {
    Options {
        server,
        agents: Agent::ALL.into(),
        only: Vec::new(),
        share: None,
        boots: 5,
        until: Instant::now() + NO_LIMIT,
        big: None,
        turns: None,
        slow: 1,
        keep: false,
        at: String::new(),
        build: String::new(),
        images: PathBuf::new(),
        work: PathBuf::new(),
        spec: Spec { cpus: 2, ..Spec::default() },
    }
}

/// `2/7`.
fn share(text: &str) -> Result<(usize, usize), String> {
    let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
    parts.filter(|&(i, n)| (1..=n).contains(&i)).ok_or_else(|| format!("{text}: not I/N"))
}

pub fn wanted(options: &Options) -> Result<Vec<String>, String> {
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
