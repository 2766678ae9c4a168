//! The manual pages and the completion of the packages say what the programs say of themselves.

use std::collections::BTreeSet;
use std::process::Command;

use mote_tests::{Scratch, agent, tool};

const PAGE: &str = include_str!("../../image/packages/mote-agent.8");
const COMPLETION: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../image/packages/mote-agent.bash");

fn help() -> String {
    let output = Command::new(agent()).arg("--help").output().expect("the agent");
    String::from_utf8(output.stdout).expect("text")
}

/// The words that begin an item of the help between two headings.
fn items(help: &str, from: &str) -> BTreeSet<String> {
    let (_, part) = help.split_once(from).expect("the heading");
    let part = part.split_once("\n\n").map_or(part, |(part, _)| part);
    let begins = part.lines().filter_map(|line| line.strip_prefix("  "));
    let begins = begins.filter(|line| !line.starts_with(' '));
    begins.map(|line| line.split_once("  ").map_or(line, |(item, _)| item).to_owned()).collect()
}

/// The options of the help, without their dashes.
fn options(help: &str) -> BTreeSet<String> {
    let items = items(help, "Options:\n");
    let words = items.iter().flat_map(|item| item.split([' ', ',']));
    words.filter_map(|word| word.strip_prefix('-')).map(str::to_owned).collect()
}

/// What the page's list of options has: the words after `Fl` in its items.
fn page_options() -> BTreeSet<String> {
    let (_, section) = PAGE.split_once(".Sh OPTIONS\n").expect("the section");
    let (section, _) = section.split_once("\n.Ss ").expect("its end");
    let items = section.lines().filter_map(|line| line.strip_prefix(".It "));
    let names = items.flat_map(|item| item.split("Fl ").skip(1).map(word).collect::<Vec<_>>());
    names.collect()
}

fn word(text: &str) -> String {
    text.split([' ', ',']).next().unwrap_or_default().to_owned()
}

#[test]
fn the_page_has_each_option_of_the_help_and_no_other() {
    let help = help();
    let has = options(&help);
    assert!(has.len() > 15, "{has:?}");
    assert_eq!(has, page_options());
}

#[test]
fn the_page_has_each_command_of_the_help_and_no_other() {
    let help = help();
    let commands: BTreeSet<_> = items(&help, "Commands:\n").iter().map(|item| word(item)).collect();
    assert!(commands.len() > 8, "{commands:?}");
    let (_, section) = PAGE.split_once(".Sh DESCRIPTION\n").expect("the section");
    let (section, _) = section.split_once(".Sh OPTIONS\n").expect("its end");
    let items = section.lines().filter_map(|line| line.strip_prefix(".It Cm "));
    assert_eq!(commands, items.map(word).collect());
}

#[test]
fn the_page_has_the_features_and_exit_codes_of_the_help() {
    let help = help();
    let (_, codes) = help.split_once("Exit codes: ").expect("exit codes");
    assert!(PAGE.contains(codes.trim()), "{codes}");
    let (_, features) = help.split_once("--deny LIST").expect("features");
    let (features, _) = features.split_once("; separated").expect("their end");
    let features = features.replace("(also lets it feed cloud-init)", "");
    let features: Vec<_> = features.split_once(':').expect("a colon").1.split(',').collect();
    assert_eq!(features.len(), 10, "{features:?}");
    for feature in features {
        assert!(PAGE.contains(&format!(".Cm {} ", feature.trim())), "{feature}");
    }
}

#[test]
fn bash_completes_what_the_help_has() {
    let complete = |words: &str, current: &str| {
        let script = format!(
            "source {COMPLETION}; COMP_WORDS=({words} '{current}'); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
             _mote_agent; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let directory = agent().parent().expect("a directory").to_owned();
        let path = format!("{}:/usr/bin:/bin", directory.display());
        let output = Command::new("/bin/bash").args(["-c", &script]).env("PATH", path).output();
        let output = output.expect("bash");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let set = |words: &str| words.split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(complete("mote-agent", "me"), set("metadata"));
    assert_eq!(complete("mote-agent", "--inter"), {
        set("--interval-connect --interval-started --interval-connected")
    });
    assert_eq!(complete("mote-agent --flavour", "lxd"), set("lxd lxd-5.0"));
    assert_eq!(complete("mote-agent report", ""), set("state metrics"));
    let long = options(&help()).into_iter().filter(|name| name.starts_with('-'));
    let long: BTreeSet<_> = long.map(|name| format!("-{name}")).collect();
    assert_eq!(complete("mote-agent", "--"), long);
}

#[test]
fn mote_host_writes_a_page_for_each_of_its_commands() {
    let scratch = Scratch::new();
    let host = tool("MOTE_HOST", "target/debug/mote-host");
    let output = Command::new(&host).arg("man").arg(&scratch.0).output().expect("mote-host");
    assert!(output.status.success(), "{output:?}");
    let help = Command::new(&host).arg("--help").output().expect("mote-host");
    let help = String::from_utf8(help.stdout).expect("text");
    let commands = items(&help, "Commands:\n");
    assert!(commands.len() > 20, "{commands:?}");
    for command in commands.iter().map(|item| word(item)).filter(|command| command != "help") {
        let page = scratch.0.join(format!("mote-host-{command}.1"));
        assert!(page.exists(), "{}", page.display());
    }
    let page = std::fs::read_to_string(scratch.0.join("mote-host.1")).expect("the main page");
    assert!(page.contains("\\-\\-dir") && page.contains("MOTE_HOST_DIR"), "{page}");
}
