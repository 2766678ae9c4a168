//! Completion by the shells: their scripts ask this program, which knows its commands and its instances.

use std::ffi::{OsStr, OsString};
use std::io::{Write, stdout};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use super::values::directory;
use mote_client::instance::store;

/// The variable by which the shells' scripts ask.
const ASKED: &str = "MOTE_HOST_COMPLETE";
/// As users call this program; the scripts find it by PATH.
const PROGRAM: &str = "mote-host";

/// The shells there are scripts for.
pub(super) fn shells() -> Vec<&'static str> {
    Shells::builtins().names().collect()
}

/// Answers a shell's script and ends, if it is one that asks.
pub(super) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(ASKED).complete();
}

/// Prints a shell's script.
pub(super) fn print(shell: &str) -> Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(shell).context("no such shell")?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell.name() == "zsh" {
        // Loaded as a function by its first use, it has to complete there and then.
        script.extend_from_slice(
            b"[ \"$funcstack[1]\" != _mote-host ] || _clap_dynamic_completer_mote_host \"$@\"\n",
        );
    }
    Ok(stdout().write_all(&script)?)
}

/// Lets instances' names be completed wherever one is to be given.
pub(super) fn with_instances(command: Command) -> Command {
    let is_new = matches!(command.get_name(), "boot" | "init");
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "name" if !is_new => arg.add(ArgValueCandidates::new(|| candidates(""))),
        "paths" => arg.add(ArgValueCompleter::new(Paths)),
        _ => arg,
    });
    command.mut_subcommands(with_instances)
}

/// The instances' names, with something behind them.
fn candidates(end: &str) -> Vec<CompletionCandidate> {
    let root = directory(named(std::env::args_os()));
    let names = root.map(|root| store::names(&root)).unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(name + end)).collect()
}

/// What the command line that is being completed gives as `--dir`.
fn named(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let words: Vec<OsString> = words.collect();
    let pairs = words.windows(2).filter(|two| two[0] == "--dir").map(|two| two[1].clone());
    let whole = words.iter().filter_map(|word| Some(word.to_str()?.strip_prefix("--dir=")?.into()));
    pairs.chain(whole).next()
}

/// `NAME/PATH` or a file here.
struct Paths;

impl ValueCompleter for Paths {
    fn complete(&self, current: &OsStr) -> Vec<CompletionCandidate> {
        let begins = |candidate: &CompletionCandidate| {
            let value = candidate.get_value().as_encoded_bytes();
            value.starts_with(current.as_encoded_bytes())
        };
        let mut all: Vec<_> = candidates("/").into_iter().filter(begins).collect();
        all.extend(PathCompleter::any().complete(current));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_taken_from_the_line_that_is_completed() {
        let of = |line: &str| named(line.split(' ').map(OsString::from));
        assert_eq!(of("mote-host -- mote-host --dir /d exec"), Some("/d".into()));
        assert_eq!(of("mote-host -- mote-host exec --dir=/d x"), Some("/d".into()));
        assert_eq!(of("mote-host -- mote-host exec --dir"), None);
    }

    #[test]
    fn every_name_of_an_instance_is_completed_but_a_new_one() {
        let command = super::super::command();
        let mut seen = 0;
        for command in command.get_subcommands() {
            let Some(name) = command.get_arguments().find(|arg| arg.get_id() == "name") else {
                continue;
            };
            let has = name.get::<ArgValueCandidates>().is_some();
            let is_new = matches!(command.get_name(), "boot" | "init");
            assert_eq!(has, !is_new, "{}", command.get_name());
            seen += 1;
        }
        assert!(seen > 20, "{seen}");
    }
}
