//! Completion in shells. Their scripts call this program, which knows its commands and instances.

use std::ffi::{OsStr, OsString};
use std::io::{Write, stdout};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{CompleteEnv, Shells};

use super::directory;
use mote_client::instance::store;

/// The variable that the shells' scripts set.
const ASKED: &str = "MOTE_HOST_COMPLETE";
/// This program's name, which the scripts find in PATH.
const PROGRAM: &str = "mote-host";

pub(super) fn shells() -> Vec<&'static str> {
    Shells::builtins().names().collect()
}

/// Answers a shell's script and exits, if one called.
pub(super) fn answer(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(ASKED).complete();
}

pub(super) fn print(shell: &str) -> Result<()> {
    let shells = Shells::builtins();
    let shell = shells.completer(shell).context("no such shell")?;
    let mut script = Vec::new();
    shell.write_registration(ASKED, PROGRAM, PROGRAM, PROGRAM, &mut script)?;
    if shell.name() == "zsh" {
        // A function that is loaded by its first use must complete immediately.
        script.extend_from_slice(
            b"[ \"$funcstack[1]\" != _mote-host ] || _clap_dynamic_completer_mote_host \"$@\"\n",
        );
    }
    Ok(stdout().write_all(&script)?)
}

/// Completes instance names wherever one is expected.
pub(super) fn with_instances(command: Command) -> Command {
    let is_new = matches!(command.get_name(), "boot" | "init");
    let command = command.mut_args(|arg| match arg.get_id().as_str() {
        "name" if !is_new => arg.add(ArgValueCandidates::new(|| candidates(""))),
        "paths" => arg.add(ArgValueCompleter::new(Paths)),
        _ => arg,
    });
    command.mut_subcommands(with_instances)
}

/// Returns the instances' names with a suffix.
fn candidates(end: &str) -> Vec<CompletionCandidate> {
    let root = directory(named(std::env::args_os()));
    let names = root.map(|root| store::names(&root)).unwrap_or_default();
    names.into_iter().map(|name| CompletionCandidate::new(name + end)).collect()
}

/// Returns the `--dir` of the command line that is being completed.
fn named(words: impl Iterator<Item = OsString>) -> Option<OsString> {
    let words: Vec<OsString> = words.collect();
    let pairs = words.windows(2).filter(|two| two[0] == "--dir").map(|two| two[1].clone());
    let whole = words.iter().filter_map(|word| Some(word.to_str()?.strip_prefix("--dir=")?.into()));
    pairs.chain(whole).next()
}

/// `NAME/PATH` or a local file.
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
    fn reads_the_directory_from_the_completed_line() {
        let of = |line: &str| named(line.split(' ').map(OsString::from));
        assert_eq!(of("mote-host -- mote-host --dir /d exec"), Some("/d".into()));
        assert_eq!(of("mote-host -- mote-host exec --dir=/d x"), Some("/d".into()));
        assert_eq!(of("mote-host -- mote-host exec --dir"), None);
    }

    #[test]
    fn completes_names_of_existing_instances() {
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
