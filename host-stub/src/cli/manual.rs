//! Manual pages, and the parts of them and of `--help` that are not options: examples, exit codes,
//! files. A test parses each example.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

/// The release: the version that the package sets, or else that of the sources.
pub(super) const VERSION: &str = match option_env!("MOTE_VERSION") {
    Some(version) => version,
    None => env!("CARGO_PKG_VERSION"),
};

/// The examples of all commands with their effects. Each command has at least one.
const EXAMPLES: &str = include_str!("examples.txt");

fn examples(path: &str) -> Vec<(String, &'static str)> {
    let is_its = |rest: &str| rest.is_empty() || rest.starts_with(' ');
    let its = |line: &&str| !path.is_empty() && line.strip_prefix(path).is_some_and(is_its);
    let all =
        EXAMPLES.lines().filter(its).map(|line| line.split_once("    # ").unwrap_or((line, "")));
    all.map(|(line, what)| (format!("mote-host {line}"), what)).collect()
}

/// Exit codes: those of all commands, then additional ones of some.
const CODES: &str = include_str!("codes.txt");

fn codes(path: &str) -> Vec<(&'static str, &'static str)> {
    let own = |(code, what): (&'static str, &'static str)| {
        let is_common = code.parse::<u8>().is_ok();
        let code = if is_common { code } else { code.strip_prefix(path)?.strip_prefix(' ')? };
        Some((code, what))
    };
    pairs(CODES).filter_map(own).collect()
}

const FILES: &str = include_str!("files.txt");

fn pairs(text: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.lines().filter_map(|line| line.split_once("    # "))
}

pub(super) fn with_examples(command: Command, path: &str) -> Command {
    if command.has_subcommands() {
        return command.mut_subcommands(|below| {
            let path = format!("{path} {}", below.get_name());
            with_examples(below, path.trim_start())
        });
    }
    // Keep existing text.
    let before = command.get_after_help().map_or(String::new(), |help| format!("{help}\n\n"));
    let line = |(line, what): (String, &str)| {
        let what = if what.is_empty() { String::new() } else { format!("    # {what}") };
        format!("\n  {line}{what}")
    };
    let lines: String = examples(path).into_iter().map(line).collect();
    command.after_long_help(format!("{before}Examples:{lines}"))
}

/// Writes a page for each command into a directory. `command` has no examples in its help, because
/// pages have a section for them.
pub(super) fn write(command: Command, directory: &Path) -> Result<()> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    fs::create_dir_all(directory)
        .and_then(|()| write_all(&command, &[], directory))
        .with_context(|| format!("cannot write manual pages to {}", directory.display()))
}

fn write_all(command: &Command, path: &[&str], directory: &Path) -> std::io::Result<()> {
    let version = format!("mote-host {VERSION}");
    let man = Man::new(command.clone()).source(version).manual("mote-host");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    sections(command, path).to_writer(&mut page)?;
    fs::write(directory.join(man.get_filename()), page)?;
    command
        .get_subcommands()
        .try_for_each(|below| write_all(below, &[path, &[below.get_name()]].concat(), directory))
}

fn sections(command: &Command, path: &[&str]) -> Roff {
    let mut roff = Roff::new();
    let name = path.join(" ");
    if !command.has_subcommands() {
        listed(&mut roff, "EXAMPLES", &examples(&name));
    }
    listed(&mut roff, "EXIT STATUS", &codes(&name));
    listed(&mut roff, "FILES", &pairs(FILES).collect::<Vec<_>>());
    roff.control("SH", ["SEE ALSO"]);
    roff.text([roman("mote-host(1), mote-agent(8), qemu-system-x86_64(1)")]);
    roff
}

fn listed(roff: &mut Roff, heading: &str, items: &[(impl AsRef<str>, &str)]) {
    roff.control("SH", [heading]);
    for (item, what) in items {
        roff.control("TP", []);
        roff.text([bold(item.as_ref())]);
        roff.text([roman(*what)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            let path = format!("{path} {}", below.get_name()).trim().to_owned();
            if below.get_subcommands().count() == 0 {
                found.push(path.clone());
            }
            leaves(below, &path, found);
        }
    }

    /// Returns the words of an example, up to the part that the shell interprets.
    fn words(line: &str) -> Vec<&str> {
        let is_shells =
            |word: &&str| ["|", ">", "<", "2>", "&"].iter().any(|mark| word.starts_with(mark));
        line.split(' ').take_while(|word| !is_shells(word)).collect()
    }

    #[test]
    fn every_command_has_valid_examples() {
        let mut all = Vec::new();
        leaves(&command(), "", &mut all);
        let mut known = 0;
        for path in &all {
            let examples = examples(path);
            assert!(!examples.is_empty(), "{path}");
            known += examples.len();
            for (line, _) in examples {
                // A quoted word is a single argument.
                let line = line.replace("\"$(cat user-data)\"", "x");
                let taken = command().try_get_matches_from(words(&line));
                assert!(taken.is_ok(), "{line}: {}", taken.unwrap_err());
            }
        }
        assert_eq!(known, EXAMPLES.lines().count(), "examples of no command");
        let is_known =
            |line: &str| all.iter().any(|path| codes(path).len() > 3 && line.starts_with(path));
        assert!(CODES.lines().skip(3).all(is_known));
    }
}
